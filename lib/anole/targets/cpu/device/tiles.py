"""TensorIR calls of the runtime's AMX tile products (``runtime/tiles.c``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from anole.targets.cpu.runtime import TILES_FUNCTION

Element = tuple[Any, Sequence[Any]]
"""An element of a buffer: the buffer and the element's indices."""


def multiply(first: Sequence[Element], last: Sequence[Element], sizes: Sequence[Any]) -> tirx.Stmt:
    """Return a call that multiplies tiles.

    Args:
        first: the first element of each of three buffers: accumulators, data and weights.
        last: the last elements of accumulators and data, since TVM shrinks buffers to the accesses that it sees.
        sizes: the remaining arguments of the C function, starting with the rows per strip, counted in 32-bit words.
    """
    is_8bit = str(first[0][0].dtype) == "int32"
    pointers = [tirx.address_of(tirx.BufferLoad(*element)) for element in (*first, *last)]
    arguments = [tirx.Cast("int64", size) for size in (is_8bit, *sizes)]
    return tirx.Evaluate(tirx.call_extern("void", TILES_FUNCTION, *pointers, *arguments))


def release() -> tirx.Stmt:
    """Return the call that releases the tile registers at the end of a chunk."""
    return tirx.Evaluate(tirx.call_extern("void", "release_tiles"))
