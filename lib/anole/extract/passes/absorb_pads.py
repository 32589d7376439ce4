"""Folds explicit zero padding into the convolution that reads it."""

from __future__ import annotations

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.extract.passes.mutators import bound_call, rewritten


def pad_in_convolutions(module: tvm.IRModule) -> tvm.IRModule:
    """Returns the NHWC module with explicit padding moved into the convolutions' own padding."""
    return rewritten(module, _Absorber)


@mutator
class _Absorber(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.visit_expr_post_order(call)
        if not isinstance(call.op, ir.Op) or call.op.name != "relax.nn.conv2d" or call.attrs.data_layout != "NHWC":
            return call
        pad = bound_call(self, call.args[0], "relax.nn.pad")
        if pad is None:
            return call
        batch, rows, columns, channels = zip(*[iter(map(int, pad.attrs.pad_width))] * 2, strict=True)
        is_zero = str(pad.attrs.pad_mode) == "constant" and float(pad.attrs.pad_value) == 0
        if not is_zero or any((*batch, *channels)) or min(*rows, *columns) < 0:
            return call
        attrs = call.attrs
        borders = (rows[0], columns[0], rows[1], columns[1])
        return relax.op.nn.conv2d(
            pad.args[0],
            call.args[1],
            strides=attrs.strides,
            padding=[int(own) + border for own, border in zip(attrs.padding, borders, strict=True)],
            dilation=attrs.dilation,
            groups=int(attrs.groups),
            data_layout="NHWC",
            kernel_layout=attrs.kernel_layout,
            out_layout=attrs.out_layout,
            out_dtype=attrs.out_dtype,
        )
