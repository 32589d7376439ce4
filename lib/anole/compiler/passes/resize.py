"""Legalize resizing of images as one kernel per axis, with precomputed tables of positions and weights.

TVM computes both for every element, and reads four inputs per element. One axis at a time requires two inputs, and the
second kernel reads full vectors in any layout.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tvm import ir, relax, te

from anole.ir.kernel_calls import Pattern, mark
from anole.ir.mutators import extents
from anole.ir.symbols import all_static

_MIN_CHANNELS_FOR_ONE_KERNEL = 32
"""With at least this many channels, a single kernel reads vectors of channels from four neighbors at cache speed."""

_TRANSFORMATION_MODES = ("align_corners", "asymmetric", "half_pixel", "pytorch_half_pixel")


def legalize_resize(bb: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    """Legalize a linear interpolation as two kernels, first along the axis that leaves less data.

    Other modes, and images with many channels last, keep TVM's definition.
    """
    attrs, layout = call.attrs, str(call.attrs.layout)
    inputs, outputs = extents(call.args[0]), extents(call)
    if (
        str(attrs.method) != "linear"
        or str(attrs.coordinate_transformation_mode) not in _TRANSFORMATION_MODES
        or layout not in ("NHWC", "NCHW")
        or {str(call.ty.dtype), str(call.args[0].ty.dtype)} != {"float32"}
        or not (inputs and outputs)
        or not all_static([*list(call.args[0].ty.shape)[1:], *list(call.ty.shape)[1:]])
        or (layout == "NHWC" and inputs[-1] >= _MIN_CHANNELS_FOR_ONE_KERNEL)
    ):
        return call.op.get_attr("FLegalize")(bb, call)
    axes = [axis for axis in (layout.index("W"), layout.index("H")) if inputs[axis] != outputs[axis]]
    axes.sort(key=lambda axis: outputs[axis] / inputs[axis] if outputs[axis] < inputs[axis] else 1.0)
    result = call.args[0]
    for axis in axes:
        resized = _resize_along(bb, bb.emit(result), axis, outputs[axis], str(attrs.coordinate_transformation_mode))
        # If fused, the second kernel would recompute the first kernel's results for each of its own.
        pattern = Pattern.INJECTIVE if axis == axes[-1] else Pattern.OPAQUE
        result = mark(bb, resized, pattern, "resize")
    return result


def linear_taps(inputs: int, outputs: int, mode: str) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the two inputs between which each output lies along an axis, and their weights, shape (2, outputs).

    Positions are rounded to float32, as in torch.
    """
    index, scale = np.arange(outputs, dtype=np.float32), np.float32(inputs) / np.float32(outputs)
    half = np.float32(0.5)
    if mode == "align_corners":
        positions = index * (np.float32(inputs - 1) / np.float32(max(outputs - 1, 1)))
    elif mode == "asymmetric":
        positions = index * scale
    elif mode == "pytorch_half_pixel" and outputs == 1:
        positions = index
    else:
        positions = (index + half) * scale - half
    left = np.floor(positions)
    taps = np.clip(np.stack([left, left + 1]), 0, inputs - 1)
    right = positions - left
    return taps.astype(np.int32), np.stack([1 - right, right]).astype(np.float32)


def _resize_along(bb: relax.BlockBuilder, data: ir.Expr, axis: int, outputs: int, mode: str) -> ir.Call:
    inputs = extents(data)[axis]
    taps, weights = linear_taps(inputs, outputs, mode)

    def resize(x: te.Tensor, taps: te.Tensor, weights: te.Tensor) -> te.Tensor:
        shape = [*x.shape[:axis], outputs, *x.shape[axis + 1 :]]

        def term(tap: int, i: tuple[te.Var, ...]) -> ir.Expr:
            return weights[tap, i[axis]] * x(*i[:axis], taps[tap, i[axis]], *i[axis + 1 :])

        return te.compute(shape, lambda *i: term(0, i) + term(1, i), name="resize")

    return bb.call_te(resize, data, relax.const(taps), relax.const(weights), primfunc_name_hint="resize")
