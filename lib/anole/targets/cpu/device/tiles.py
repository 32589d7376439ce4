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
        first: the first element of the sums, the data and the weights.
        last: the last element of the sums and the data, since TVM shrinks buffers to the accesses that it sees.
        sizes: the C function's arguments from the rows of a strip on, in packed 32-bit lanes.
    """
    of_bytes = str(first[0][0].dtype) == "int32"
    pointers = [tirx.address_of(tirx.BufferLoad(*element)) for element in (*first, *last)]
    arguments = [tirx.Cast("int64", size) for size in (of_bytes, *sizes)]
    return tirx.Evaluate(tirx.call_extern("void", TILES_FUNCTION, *pointers, *arguments))


def release() -> tirx.Stmt:
    """Return the call that releases the tile registers at the end of a chunk."""
    return tirx.Evaluate(tirx.call_extern("void", "release_tiles"))
