"""Legalises softmax so that it is computed in whole vectors, whatever the length of a row.

The last vector of a row overlaps the one before it. So the default schedule can compute row by row: the rows of
attention have as many columns as there are tokens, such as 49, 197 or 1500.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, relax, te, tirx

from anole.compile.passes.fast_math import Legalize, exponential
from anole.extract.passes.mutators import extents


def legalize_softmax(lanes: int, otherwise: Legalize) -> Legalize:
    """Returns the legalisation of softmax.

    Args:
        lanes: the lanes of a vector.
        otherwise: legalises softmax where vectors fill the rows, or rows are shorter than a vector or not contiguous.
    """

    def legalize(bb: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
        *rows, columns = extents(call) or [0]
        is_along_rows = bool(rows) and int(call.attrs.axis) % (len(rows) + 1) == len(rows)
        if str(call.ty.dtype) != "float32" or not is_along_rows or columns % lanes == 0 or columns < lanes:
            return otherwise(bb, call)
        return bb.call_te(_softmax, call.args[0], lanes, primfunc_name_hint="softmax")

    return legalize


def _softmax(data: te.Tensor, lanes: int) -> te.Tensor:
    """Computes softmax along the last axis, vector by vector; the last vector of a row overlaps the one before."""
    *rows, columns = data.shape
    width = -(-int(columns) // lanes) * lanes
    for_most, for_sum = (te.reduce_axis((0, width), "k") for _ in range(2))

    def first(k: Any) -> Any:
        """Returns the column at which the vector of a place begins."""
        return tirx.min(k // lanes * lanes, columns - lanes)

    def value(row: Sequence[Any], k: Any) -> Any:
        return data(*row, first(k) + k % lanes)

    def power(*at: Any) -> Any:
        *row, k = at
        return exponential(value(row, k) - most(*row))

    def new(row: Sequence[Any], k: Any) -> Any:
        is_new = first(k) + k % lanes >= k // lanes * lanes
        return tirx.Select(is_new, powers(*row, k), tirx.const(0, data.dtype))

    def share(*at: Any) -> Any:
        *row, column = at
        return powers(*row, column // lanes * lanes + column - first(column)) / total(*row)

    most = te.compute(rows, lambda *row: te.max(value(row, for_most), axis=for_most), name="softmax_maximum")
    powers = te.compute((*rows, width), power, name="softmax_powers")
    total = te.compute(rows, lambda *row: te.sum(new(row, for_sum), axis=for_sum), name="softmax_sum")
    return te.compute(data.shape, share, name="softmax")
