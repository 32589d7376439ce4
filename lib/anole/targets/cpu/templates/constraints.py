"""Constraints common to the spaces of the CPU: enough registers, and work for all threads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from anole.space import Constraint
from anole.space.space import Columns
from anole.targets.cpu.device.vector_unit import VectorUnit

Count = Callable[[Columns], "NDArray[np.int64] | int"]
"""Maps the columns of n configs to a number for each, shape (n,), or to one number for all."""


def registers_suffice(unit: VectorUnit, accumulators: Count, operands: Count) -> Constraint:
    """Requires that accumulators, a panel of operands and one multiplier fit the vector registers."""
    return Constraint(
        "the accumulators do not fit the vector registers",
        lambda columns: np.asarray(accumulators(columns) + operands(columns) + 1 <= unit.registers),
    )


def latency_is_hidden(accumulators: Count, enough: Count) -> Constraint:
    """Requires enough independent multiply-adds in flight."""
    return Constraint(
        "too few accumulators to hide the latency of a multiply-add",
        lambda columns: np.asarray(accumulators(columns) >= enough(columns)),
    )


def threads_are_fed(chunks: Count, enough: Count) -> Constraint:
    """Requires enough chunks for all threads, or as many as there can be."""
    return Constraint(
        "fewer parallel chunks than threads", lambda columns: np.asarray(chunks(columns) >= enough(columns))
    )
