"""What decomposing says in other words: operators of torch that TVM's importer lacks or gets wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anole.extract.decompositions.arithmetic import ARITHMETIC
from anole.extract.decompositions.attention import ATTENTION
from anole.extract.decompositions.lookups import LOOKUPS
from anole.extract.decompositions.products import PRODUCTS
from anole.extract.decompositions.promotion import PROMOTION
from anole.extract.decompositions.reductions import REDUCTIONS
from anole.extract.decompositions.scalars import SCALARS
from anole.extract.decompositions.windows import WINDOWS
from anole.extract.decompositions.writes import WRITES


def first_of(rewordings: list[Callable[..., Any]]) -> Callable[..., Any]:
    """Return what computes the first of these that does not leave a call as it is."""

    def compute(*given: Any, **named: Any) -> Any:
        found = (reworded(*given, **named) for reworded in rewordings)
        return next((each for each in found if each is not NotImplemented), NotImplemented)

    return compute


def _joined(*tables: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    operators = dict.fromkeys(operator for table in tables for operator in table)
    return {each: first_of([table[each] for table in tables if each in table]) for each in operators}


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = _joined(
    SCALARS, PROMOTION, ARITHMETIC, ATTENTION, LOOKUPS, PRODUCTS, REDUCTIONS, WINDOWS, WRITES
)
"""Functions of torch by the operators that they compute; one that returns NotImplemented leaves a call as it is."""
