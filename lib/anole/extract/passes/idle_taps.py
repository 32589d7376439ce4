"""Removes kernel taps that read only padding."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.extract.passes.fold_constants import value_of
from anole.extract.passes.mutators import extents, rewritten


class _Axis(NamedTuple):
    """A convolution along rows or columns."""

    size: int
    outputs: int
    taps: int
    stride: int
    dilation: int
    before: int
    after: int

    def meets_data(self, tap: int) -> bool:
        """Returns whether a tap reads data for any output."""
        offset = tap * self.dilation - self.before
        first = max(0, -(offset // self.stride))
        return first < self.outputs and first * self.stride + offset < self.size

    def kept(self) -> range:
        """Returns the taps from the first to the last that meets data; more where padding would become negative."""
        useful = [tap for tap in range(self.taps) if self.meets_data(tap)] or [0, self.taps - 1]
        first = min(useful[0], self.before // self.dilation)
        last = max(useful[-1], self.taps - 1 - self.after // self.dilation)
        return range(first, last + 1)


def drop_idle_taps(module: tvm.IRModule) -> tvm.IRModule:
    """Returns the NHWC module with kernels without the outer rows and columns that meet only zeros.

    A 3x3 kernel of dilation 24 on 14x14 pixels becomes 1x1; atrous pyramids on small images shrink a lot.
    """
    return rewritten(module, _Dropper)


@mutator
class _Dropper(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.builder_.normalize(self.visit_expr_post_order(call))
        if not isinstance(call.op, ir.Op) or call.op.name != "relax.nn.conv2d":
            return call
        attrs = call.attrs
        weight, data, out = value_of(call.args[1]), extents(call.args[0]), extents(call)
        layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout)
        if weight is None or not data or not out or layouts != ("NHWC", "HWIO", "NHWC"):
            return call
        pads = [int(pad) for pad in attrs.padding]
        axes = [
            _Axis(data[i + 1], out[i + 1], weight.shape[i], int(attrs.strides[i]), int(attrs.dilation[i]), *pads[i::2])
            for i in range(2)
        ]
        kept = [axis.kept() for axis in axes]
        if all(len(taps) == axis.taps for taps, axis in zip(kept, axes, strict=True)):
            return call
        rows, columns = (slice(taps.start, taps.stop) for taps in kept)
        before = [axis.before - taps.start * axis.dilation for taps, axis in zip(kept, axes, strict=True)]
        after = [axis.after - (axis.taps - taps.stop) * axis.dilation for taps, axis in zip(kept, axes, strict=True)]
        return relax.op.nn.conv2d(
            call.args[0],
            relax.const(np.ascontiguousarray(weight[rows, columns])),
            strides=attrs.strides,
            padding=[*before, *after],
            dilation=[axis.dilation if len(taps) > 1 else 1 for taps, axis in zip(kept, axes, strict=True)],
            groups=int(attrs.groups),
            data_layout="NHWC",
            kernel_layout="HWIO",
            out_layout="NHWC",
            out_dtype=attrs.out_dtype,
        )
