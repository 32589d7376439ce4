"""Legalize reshapes of symbolic shapes by splitting both shapes into runs of axes with equal sizes.

TVM indexes the entire tensor by one flat index; its remainders by symbols cannot be simplified, which prevents fusion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product
from operator import mul
from typing import Any

from tvm import ir, relax, sym, te, tirx

from anole.ir.kernel_calls import Pattern, mark
from anole.ir.symbols import all_static

Run = tuple[list[int], list[int]]
"""Axes of the source and axes of the result that span the same number of elements."""


def legalize_reshape(bb: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    """Legalize a reshape of symbolic shapes run by run; static reshapes keep TVM's definition."""
    source, result = list(call.args[0].ty.shape), list(call.ty.shape)
    runs = None if all_static([*source, *result]) else list(_runs(source, result))
    if not runs:
        return call.op.get_attr("FLegalize")(bb, call)

    def reshape(data: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
        def element(*i: Any) -> Any:
            indices: list[Any] = [tirx.IntImm("int64", 0)] * len(source)
            for source_axes, result_axes in runs:
                flat = reduce(lambda outer, axis: outer * shape[axis] + i[axis], result_axes[1:], i[result_axes[0]])
                for axis in reversed(source_axes[1:]):
                    indices[axis], flat = flat % data.shape[axis], flat // data.shape[axis]
                indices[source_axes[0]] = flat
            return data[tuple(indices)]

        return te.compute(shape, element, name="reshape")

    reshaped = bb.call_te(reshape, call.args[0], result, primfunc_name_hint="reshape")
    return mark(bb, reshaped, Pattern.INJECTIVE)


def _runs(source: Sequence[Any], result: Sequence[Any]) -> Iterator[Run]:
    """Yield the shortest runs; axes of extent 1 belong to none."""
    analyzer = sym.Analyzer()
    left, right = ([axis for axis, extent in enumerate(shape) if not _is_one(extent)] for shape in (source, result))
    while left and right:
        lengths = product(range(1, len(left) + 1), range(1, len(right) + 1))
        n_left, n_right = next(
            (i, j)
            for i, j in sorted(lengths, key=sum)
            if analyzer.can_prove_equal(_size(source, left[:i]), _size(result, right[:j]))
            or (i, j) == (len(left), len(right))
        )
        yield left[:n_left], right[:n_right]
        left, right = left[n_left:], right[n_right:]


def _is_one(extent: Any) -> bool:
    return isinstance(extent, tirx.IntImm) and int(extent) == 1


def _size(shape: Sequence[Any], axes: Sequence[int]) -> Any:
    return reduce(mul, (shape[axis] for axis in axes), tirx.IntImm("int64", 1))
