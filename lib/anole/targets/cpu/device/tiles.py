"""Calls of the runtime's products of tiles (``runtime/tiles.c``) from TensorIR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from anole.targets.cpu.runtime import TILES_FUNCTION

Place = tuple[Any, Sequence[Any]]
"""An element of a buffer: the buffer and the element's indices."""


def multiply(first: Sequence[Place], last: Sequence[Place], sizes: Sequence[Any]) -> tirx.Stmt:
    """Return a call that multiplies tiles.

    Args:
        first: the first sum, number of the data, and weight.
        last: the last sum and number of the data: TVM cuts buffers down to what it sees of their accesses.
        sizes: what the function takes from the rows of a strip on, in words.
    """
    of_bytes = str(first[0][0].dtype) == "int32"
    pointers = [tirx.address_of(tirx.BufferLoad(*place)) for place in (*first, *last)]
    numbers = [tirx.Cast("int64", size) for size in (of_bytes, *sizes)]
    return tirx.Evaluate(tirx.call_extern("void", TILES_FUNCTION, *pointers, *numbers))


def release() -> tirx.Stmt:
    """Return the call that ends a chunk in which tiles were multiplied."""
    return tirx.Evaluate(tirx.call_extern("void", "release_tiles"))
