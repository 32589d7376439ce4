"""Legalizes reshaping where sizes vary: extents that are the same part of both shapes keep apart.

TVM walks the whole tensor by one number, whose remainders by a symbol nothing simplifies, so that nothing fuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product
from operator import mul
from typing import Any

from tvm import ir, relax, sym, te, tirx

from anole.ir.kernel_calls import Pattern, marked
from anole.ir.symbols import all_static

Run = tuple[list[int], list[int]]
"""The axes of the source and those of the result that have the same number of elements together."""


def legalize_reshape(bb: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    """Legalize the reshaping of a tensor of symbolic shape by its runs; others as TVM does."""
    source, result = list(call.args[0].ty.shape), list(call.ty.shape)
    runs = None if all_static([*source, *result]) else list(_runs(source, result))
    if not runs:
        return call.op.get_attr("FLegalize")(bb, call)

    def reshape(data: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
        def point(*at: Any) -> Any:
            places: list[Any] = [tirx.IntImm("int64", 0)] * len(source)
            for own, others in runs:
                number = reduce(lambda outer, axis: outer * shape[axis] + at[axis], others[1:], at[others[0]])
                for axis in reversed(own[1:]):
                    places[axis], number = number % data.shape[axis], number // data.shape[axis]
                places[own[0]] = number
            return data[tuple(places)]

        return te.compute(shape, point, name="reshape")

    made = bb.call_te(reshape, call.args[0], result, primfunc_name_hint="reshape")
    return marked(bb, made, Pattern.INJECTIVE)


def _runs(source: Sequence[Any], result: Sequence[Any]) -> Iterator[Run]:
    """Yield the shortest runs, without extents of 1."""
    analyzer = sym.Analyzer()
    left, right = ([axis for axis, each in enumerate(shape) if not _is_one(each)] for shape in (source, result))
    while left and right:
        ends = product(range(1, len(left) + 1), range(1, len(right) + 1))
        mine, theirs = next(
            (i, j)
            for i, j in sorted(ends, key=sum)
            if analyzer.can_prove_equal(_size(source, left[:i]), _size(result, right[:j]))
            or (i, j) == (len(left), len(right))
        )
        yield left[:mine], right[:theirs]
        left, right = left[mine:], right[theirs:]


def _is_one(extent: Any) -> bool:
    return isinstance(extent, tirx.IntImm) and int(extent) == 1


def _size(shape: Sequence[Any], axes: Sequence[int]) -> Any:
    return reduce(mul, (shape[axis] for axis in axes), tirx.IntImm("int64", 1))
