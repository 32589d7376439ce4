"""Pass that rewrites transposed convolutions as subpixel convolutions, from input pixels to blocks of output pixels.

Shi et al., "Is the deconvolution layer the same as a convolutional layer?" (2016): a transposed convolution with stride
s yields s x s outputs for each input; each output depends on the same few inputs through its own weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.ir.convolutions import CHANNELS_LAST, is_channels_last
from anole.ir.mutators import extents, operator_of, rewrite, value_of


def subpixel(module: tvm.IRModule) -> tvm.IRModule:
    """Replace transposed convolutions by convolutions in an NHWC module.

    With a stride, the convolution yields the outputs of one input as channels, which a permutation then rearranges. If
    the weight is computed, the convolution reads inputs with zeros in between instead.
    """
    return rewrite(module, _Forwarder)


@dataclass(frozen=True)
class _Axis:
    """A transposed convolution along one axis, as a convolution from inputs to groups of `stride` outputs each.

    Attributes:
        stride: outputs for each input.
        taps: shape (taps of the convolution, stride): the tap of the transposed kernel that each output of a group
            reads, counted from the first input; -1 for none.
        before, after: padding at both ends, in inputs.
        groups: number of computed groups of outputs.
        first: index of the first wanted output among the computed outputs.
        extent: number of wanted outputs.
    """

    stride: int
    taps: NDArray[np.int64]
    before: int
    after: int
    groups: int
    first: int
    extent: int

    @classmethod
    def of(cls, inputs: int, kernel: int, stride: int, dilation: int, crop: int, extent: int) -> Self:
        """Return the axis for `inputs` inputs and `extent` outputs after cropping the first `crop`."""
        offsets = np.arange(kernel) * dilation
        span = int(offsets[-1]) // stride + 1
        taps = np.full((span, stride), -1, dtype=np.int64)
        # Input i - t contributes the taps from t * stride on to the outputs of group i.
        taps[span - 1 - offsets // stride, offsets % stride] = np.arange(kernel)
        skipped = min(crop // stride, span - 1)
        after = max(0, -(-(crop + extent) // stride) - inputs)
        groups = inputs + after - skipped
        return cls(stride, taps, span - 1 - skipped, after, groups, crop - skipped * stride, extent)

    @property
    def is_uncropped(self) -> bool:
        """Whether all computed outputs are wanted."""
        return self.first == 0 and self.extent == self.groups * self.stride


@mutator
class _Forwarder(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.visit_expr_post_order(call)
        if operator_of(call) != "relax.nn.conv2d_transpose" or not is_channels_last(call):
            return call
        call, weight = self.builder_.normalize(call), value_of(call.args[1])
        if not extents(call):
            return call
        return self._convolve_over_zeros(call) if weight is None else self._rewrite_constant(call, weight)

    def _rewrite_constant(self, call: ir.Call, weight: NDArray[Any]) -> ir.Expr:
        batch, height, width, _ = extents(call.args[0])
        _, *sides, filters = extents(call)
        attrs, groups = call.attrs, int(call.attrs.groups)
        top, left, *_ = (int(pad) for pad in attrs.padding)
        rows, columns = (
            _Axis.of(inputs, kernel, int(stride), int(dilation), crop, extent)
            for inputs, kernel, stride, dilation, crop, extent in zip(
                (height, width), weight.shape[:2], attrs.strides, attrs.dilation, (top, left), sides, strict=True
            )
        )
        result = relax.op.nn.conv2d(
            call.args[0],
            relax.const(_forward_weight(weight, rows, columns, groups), str(call.args[1].ty.dtype)),
            padding=(rows.before, columns.before, rows.after, columns.after),
            groups=groups,
            **CHANNELS_LAST,
        )
        return self._reorder(result, batch, rows, columns, groups, filters)

    def _convolve_over_zeros(self, call: ir.Call) -> ir.Expr:
        """Convolve the inputs, with zeros in between, with the flipped weight."""
        (batch, *sides, channels), (*kernel, _, filters) = extents(call.args[0]), extents(call.args[1])
        attrs, groups = call.attrs, int(call.attrs.groups)
        strides, dilation = [int(value) for value in attrs.strides], [int(value) for value in attrs.dilation]
        separated = relax.op.reshape(call.args[0], (batch, sides[0], 1, sides[1], 1, channels))
        separated = relax.op.nn.pad(separated, [0, 0, 0, 0, 0, strides[0] - 1, 0, 0, 0, strides[1] - 1, 0, 0])
        spread_sides = [side * stride for side, stride in zip(sides, strides, strict=True)]
        data = relax.op.reshape(separated, (batch, *spread_sides, channels))
        span = [(taps - 1) * gap for taps, gap in zip(kernel, dilation, strict=True)]
        before = [margin - int(pad) for margin, pad in zip(span, attrs.padding, strict=False)]
        outputs = zip(extents(call)[1:3], span, spread_sides, before, strict=True)
        after = [extent + margin - size - first for extent, margin, size, first in outputs]
        # Crop inputs at negative padding.
        starts, ends = (
            [max(-pad, 0) for pad in before],
            [size + min(pad, 0) for size, pad in zip(spread_sides, after, strict=True)],
        )
        weight = relax.op.flip(relax.op.flip(call.args[1], 0), 1)
        weight = relax.op.reshape(weight, (*kernel, groups, channels // groups, filters))
        weight = relax.op.permute_dims(weight, [0, 1, 3, 2, 4])
        return relax.op.nn.conv2d(
            relax.op.strided_slice(data, [1, 2], starts, ends),
            relax.op.reshape(weight, (*kernel, channels // groups, groups * filters)),
            padding=[max(pad, 0) for pad in (*before, *after)],
            dilation=dilation,
            groups=groups,
            **CHANNELS_LAST,
        )

    def _reorder(self, result: ir.Expr, batch: int, rows: _Axis, columns: _Axis, groups: int, filters: int) -> ir.Expr:
        """Rearrange the outputs and crop the unwanted ones."""
        if rows.stride * columns.stride > 1:
            parts = (batch, rows.groups, columns.groups, groups, rows.stride, columns.stride, filters // groups)
            rearranged = relax.op.permute_dims(relax.op.reshape(result, parts), [0, 1, 4, 2, 5, 3, 6])
            shape = (batch, rows.groups * rows.stride, columns.groups * columns.stride, filters)
            result = relax.op.reshape(rearranged, shape)
        if rows.is_uncropped and columns.is_uncropped:
            return result
        ends = [rows.first + rows.extent, columns.first + columns.extent]
        return relax.op.strided_slice(result, [1, 2], [rows.first, columns.first], ends)


def _forward_weight(weight: NDArray[Any], rows: _Axis, columns: _Axis, groups: int) -> NDArray[Any]:
    """Return the convolution's weight, shape (rows, columns, in of a group, out), with one group after another.

    `weight` is the transposed convolution's weight, shape (rows, columns, in, out of a group).
    """
    padded = np.pad(weight, [(0, 1), (0, 1), (0, 0), (0, 0)])
    # Tap -1 reads the zero padding. Axes: (y, row in group, x, column in group, in, out).
    gathered = padded[rows.taps[:, :, None, None], columns.taps[None, None]]
    y, in_rows, x, in_columns, channels, filters = gathered.shape
    separated = gathered.reshape(y, in_rows, x, in_columns, groups, channels // groups, filters)
    return np.ascontiguousarray(separated.transpose(0, 2, 5, 4, 1, 3, 6)).reshape(y, x, channels // groups, -1)
