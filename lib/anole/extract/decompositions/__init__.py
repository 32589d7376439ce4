"""Decompositions of torch operators that TVM's importer does not support or gets wrong."""

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


def first_applicable(decompositions: list[Callable[..., Any]]) -> Callable[..., Any]:
    """Return a function that tries several decompositions of an operator in order."""

    def compute(*args: Any, **kwargs: Any) -> Any:
        results = (decomposition(*args, **kwargs) for decomposition in decompositions)
        return next((result for result in results if result is not NotImplemented), NotImplemented)

    return compute


def _merge_tables(*tables: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    operators = dict.fromkeys(operator for table in tables for operator in table)
    return {op: first_applicable([table[op] for table in tables if op in table]) for op in operators}


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = _merge_tables(
    SCALARS, PROMOTION, ARITHMETIC, ATTENTION, LOOKUPS, PRODUCTS, REDUCTIONS, WINDOWS, WRITES
)
"""The decomposition of each operator; it returns NotImplemented to leave a call as it is."""
