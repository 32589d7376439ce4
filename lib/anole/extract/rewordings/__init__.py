"""What decomposing says in other words: operators of torch that TVM's importer lacks or gets wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anole.extract.rewordings.arithmetic import ARITHMETIC
from anole.extract.rewordings.attention import ATTENTION
from anole.extract.rewordings.reductions import REDUCTIONS
from anole.extract.rewordings.windows import WINDOWS
from anole.extract.rewordings.writes import WRITES

REWORDED: dict[Any, Callable[..., Any]] = {**ARITHMETIC, **ATTENTION, **REDUCTIONS, **WINDOWS, **WRITES}
"""Functions of torch by the operators that they compute; one that returns NotImplemented leaves a call as it is."""
