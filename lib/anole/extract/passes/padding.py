"""Passes that fold zero padding into convolutions, and drop kernel taps that read only padding."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.ir.convolutions import is_channels_last, window_attributes, windows_of
from anole.ir.mutators import extents, operator_of, resolve_call, rewrite, value_of, with_attrs


def absorb_pads(module: tvm.IRModule) -> tvm.IRModule:
    """Fold explicit zero padding into the padding of convolutions in an NHWC module."""
    return rewrite(module, _Absorber)


@mutator
class _Absorber(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.visit_expr_post_order(call)
        if operator_of(call) != "relax.nn.conv2d" or call.attrs.data_layout != "NHWC":
            return call
        pad = resolve_call(self, call.args[0], "relax.nn.pad")
        if pad is None:
            return call
        batch, rows, columns, channels = zip(*[iter(map(int, pad.attrs.pad_width))] * 2, strict=True)
        is_zero = str(pad.attrs.pad_mode) == "constant" and float(pad.attrs.pad_value) == 0
        if not is_zero or any((*batch, *channels)) or min(*rows, *columns) < 0:
            return call
        borders = (rows[0], columns[0], rows[1], columns[1])
        padding = [int(pad_) + border for pad_, border in zip(call.attrs.padding, borders, strict=True)]
        return with_attrs(call, [pad.args[0], call.args[1]], padding=padding)


def drop_idle_taps(module: tvm.IRModule) -> tvm.IRModule:
    """Drop outer rows and columns of kernels that read only zeros, in an NHWC module.

    A 3x3 kernel with dilation 24 on 14x14 pixels becomes 1x1; atrous pyramids on small images shrink a lot.
    """
    return rewrite(module, _Dropper)


@mutator
class _Dropper(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.builder_.normalize(self.visit_expr_post_order(call))
        if operator_of(call) != "relax.nn.conv2d" or not is_channels_last(call):
            return call
        weight, data, out = value_of(call.args[1]), extents(call.args[0]), extents(call)
        if weight is None or not data or not out:
            return call
        windows = windows_of(call, weight)
        sides = zip(windows, data[1:3], out[1:3], map(int, call.attrs.strides), strict=True)
        new_windows = [window.without_idle_taps(size, outputs, stride) for window, size, outputs, stride in sides]
        if all(new.n_taps == old.n_taps for new, old in zip(new_windows, windows, strict=True)):
            return call
        firsts = [old.index_of(new) for new, old in zip(new_windows, windows, strict=True)]
        rows, columns = (slice(first, first + new.n_taps) for first, new in zip(firsts, new_windows, strict=True))
        remaining = relax.const(np.ascontiguousarray(weight[rows, columns]))
        return with_attrs(call, [call.args[0], remaining], **window_attributes(new_windows))
