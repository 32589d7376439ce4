"""Converters for convolutions without a TVM kernel: integer, deformable, transposed with computed weights, Col2Im."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from anole.extract.onnx.operators.call import Call, Converter, dtype_of, shape_of


@dataclass(frozen=True)
class Window:
    """A sliding window over an image; each field has one value per spatial axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @classmethod
    def of(cls, call: Call, kernel: Sequence[int], image: Sequence[int]) -> Window:
        """Read the window from an operator's attributes."""
        rank = len(image)
        strides = _ints(call, "strides", rank, 1)
        dilations = _ints(call, "dilations", rank, 1)
        spans = [(extent - 1) * dilation + 1 for extent, dilation in zip(kernel, dilations, strict=True)]
        mode = str(call.attributes.get("auto_pad", "NOTSET"))
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            totals = [
                max((-(-size // stride) - 1) * stride + span - size, 0)
                for size, stride, span in zip(image, strides, spans, strict=True)
            ]
            pads = _split_pads(totals, mode)
        elif mode == "VALID":
            pads = ((0,) * rank, (0,) * rank)
        elif mode in ("NOTSET", ""):
            ends = _ints(call, "pads", 2 * rank, 0)
            pads = ends[:rank], ends[rank:]
        else:
            raise call.refuse(f"auto_pad: found {mode!r}; allowed: NOTSET, VALID, SAME_UPPER, SAME_LOWER")
        return cls(tuple(kernel), strides, dilations, *pads)

    def taps(self) -> list[te.IterVar]:
        """Return new reduction axes over the window."""
        return [te.reduce_axis((0, extent), f"r{axis}") for axis, extent in enumerate(self.kernel)]

    def outputs(self, image: Sequence[int], ceil: bool = False) -> tuple[int, ...]:
        """Return the output size along each axis; with `ceil`, the last window may be incomplete."""
        counts = []
        for axis, size in enumerate(image):
            span = (self.kernel[axis] - 1) * self.dilations[axis] + 1
            available, stride = size + self.before[axis] + self.after[axis] - span, self.strides[axis]
            count = (-(-available // stride) if ceil else available // stride) + 1
            if ceil and (count - 1) * stride >= size + self.before[axis]:
                count -= 1
            counts.append(count)
        return tuple(counts)

    def positions(self, output: Sequence[Any], taps: Sequence[Any]) -> list[Any]:
        """Return the input position of a tap of the window at an output position; may be outside of the image."""
        return [
            output[axis] * self.strides[axis] + taps[axis] * self.dilations[axis] - self.before[axis]
            for axis in range(len(self.kernel))
        ]


def _split_pads(totals: Sequence[int], mode: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split total padding into before and after; SAME_UPPER puts the larger half after, other modes before."""
    smaller, larger = tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
    return (smaller, larger) if mode == "SAME_UPPER" else (larger, smaller)


def _ints(call: Call, name: str, count: int, default: int) -> tuple[int, ...]:
    values = tuple(int(number) for number in call.attributes.get(name, (default,) * count))
    if len(values) != count:
        raise call.refuse(f"{name}: found {list(values)}; expected {count} values")
    return values


def is_inside(positions: Sequence[Any], image: Sequence[int]) -> Any:
    """Return the condition that a position is inside an image."""
    return tirx.all(*(tirx.all(p >= 0, p < size) for p, size in zip(positions, image, strict=True)))


def check_groups(call: Call, data: Sequence[int], weight: Sequence[int]) -> int:
    """Return the number of groups of a convolution, checked against the shapes of data and weights."""
    groups = call.integer("group", 1)
    if data[1] != weight[1] * groups or weight[0] % groups:
        raise call.refuse(f"found {data[1]} channels, {groups} groups and weights {list(weight)}")
    return groups


def convolve(call: Call, data: relax.Expr, weight: relax.Expr) -> relax.Expr:
    """Compute a convolution with the attributes of Conv, in the common dtype of data and weights."""
    batch, _, *image = shape_of(data)
    outputs, depth, *kernel_shape = shape_of(weight)
    groups = check_groups(call, shape_of(data), shape_of(weight))
    window = Window.of(call, kernel_shape, image)
    extents = (batch, outputs, *window.outputs(image))

    def compute(data: te.Tensor, weight: te.Tensor) -> te.Tensor:
        channel = te.reduce_axis((0, depth), "rc")
        taps = window.taps()

        def element(n: Any, o: Any, *i: Any) -> Any:
            positions = window.positions(i, taps)
            value = data(n, o // (outputs // groups) * depth + channel, *positions)
            value = tirx.if_then_else(is_inside(positions, image), value, tirx.const(0, data.dtype))
            return te.sum(value * weight(o, channel, *taps), [channel, *taps])

        return te.compute(extents, element, "convolution")

    return call.kernel(compute, data, weight)


def _conv_transpose(call: Call) -> relax.Expr:
    """Use TVM's converter if weights are constant, since passes rewrite it as a convolution; else gather."""
    _, channels, *image = call.shape(0)
    _, per_group, *kernel_shape = call.shape(1)
    rank = len(image)
    extra = _ints(call, "output_padding", rank, 0)
    window, result = _transposed_window(call, Window.of(call, kernel_shape, image), image, extra)
    is_constant = call.constant(1) is not None and not {"output_shape", "auto_pad"} & call.attributes.keys()
    if is_constant and rank <= 2:
        return call.by_tvm()
    groups = call.integer("group", 1)

    def compute(data: te.Tensor, weight: te.Tensor) -> te.Tensor:
        channel = te.reduce_axis((0, channels // groups), "rc")
        taps = window.taps()

        def element(n: Any, o: Any, *i: Any) -> Any:
            positions, exists = _sources(window, i, taps, image)
            source = o // per_group * (channels // groups) + channel
            value = data(n, source, *positions) * weight(source, o % per_group, *taps)
            return te.sum(tirx.if_then_else(exists, value, tirx.const(0, data.dtype)), [channel, *taps])

        return te.compute((data.shape[0], groups * per_group, *result), element, "transposed")

    output = call.kernel(compute, call.input(0), call.input(1))
    if call.has(2):
        bias = relax.op.reshape(call.input(2), [1, per_group * groups, *[1] * rank])
        output = call.emit(relax.op.add(output, bias))
    return output


def _transposed_window(
    call: Call, window: Window, image: Sequence[int], extra: Sequence[int]
) -> tuple[Window, tuple[int, ...]]:
    """Return a transposed convolution's window, with the pads implied by the output size, and the output size."""
    mode, rank = str(call.attributes.get("auto_pad", "NOTSET")), len(image)
    spans = [(k - 1) * d + 1 for k, d in zip(window.kernel, window.dilations, strict=True)]
    full = [s * (i - 1) + e + p for s, i, e, p in zip(window.strides, image, extra, spans, strict=True)]
    before, after = window.before, window.after
    result: tuple[int, ...] | None = None
    if "output_shape" in call.attributes:
        result = tuple(int(extent) for extent in call.attributes["output_shape"])[-rank:]
    elif mode.startswith("SAME"):
        # With a kernel shorter than its stride, there is nothing to crop, and the result is smaller.
        result = tuple(min(w, size * stride) for w, size, stride in zip(full, image, window.strides, strict=True))
    if result is not None:
        before, after = _split_pads([w - r for w, r in zip(full, result, strict=True)], mode)
    result = tuple(w - b - a for w, b, a in zip(full, before, after, strict=True))
    return replace(window, before=before, after=after), result


def _sources(window: Window, pixel: Sequence[Any], taps: Sequence[Any], image: Sequence[int]) -> tuple[list[Any], Any]:
    """Return the window position whose tap covers a pixel, and the condition that it exists."""
    positions, conditions = [], []
    for axis, size in enumerate(image):
        offset = pixel[axis] + window.before[axis] - taps[axis] * window.dilations[axis]
        index = tirx.floordiv(offset, window.strides[axis])
        conditions.append(tirx.all(offset >= 0, tirx.floormod(offset, window.strides[axis]) == 0, index < size))
        positions.append(index)
    return positions, tirx.all(*conditions)


def _col2im(call: Call) -> relax.Expr:
    """Sum overlapping blocks into an image."""
    image = tuple(int(extent) for extent in call.require_constant(1, "image_shape"))
    block = tuple(int(extent) for extent in call.require_constant(2, "block_shape"))
    window = Window.of(call, block, image)
    counts = window.outputs(image)
    batch, columns, length = call.shape(0)
    if columns % prod(block) or length != prod(counts):
        raise call.refuse(f"found shape {[batch, columns, length]} for {list(counts)} blocks of {list(block)}")

    def compute(data: te.Tensor) -> te.Tensor:
        taps = window.taps()

        def element(n: Any, c: Any, *i: Any) -> Any:
            positions, exists = _sources(window, i, taps, counts)
            value = data(n, c * prod(block) + flat(taps, block), flat(positions, counts))
            return te.sum(tirx.if_then_else(exists, value, tirx.const(0, data.dtype)), taps)

        return te.compute((batch, columns // prod(block), *image), element, "image")

    return call.kernel(compute, call.input(0))


def flat(indices: Sequence[Any], extents: Sequence[int]) -> Any:
    """Return the row-major offset of an element."""
    offset: Any = 0
    for index, extent in zip(indices, extents, strict=True):
        offset = offset * extent + index
    return offset


def _deform_conv(call: Call) -> relax.Expr:
    """Sample the taps of each output position at their offsets, and multiply by the weights."""
    batch, channels, *image = call.shape(0)
    outputs, depth, *kernel_shape = call.shape(1)
    if len(image) != 2:
        raise call.refuse(f"found {len(image)} spatial axes; only 2 are supported")
    groups, offset_groups = (int(call.attributes.get(name, 1)) for name in ("group", "offset_group"))
    window = Window.of(call, kernel_shape, image)
    (height, width), taps = window.outputs(image), prod(kernel_shape)
    dtype = dtype_of(call.input(0))
    masks = [call.input(4)] if call.has(4) else []

    def compute(data: te.Tensor, offset: te.Tensor, *mask: te.Tensor) -> te.Tensor:
        def element(n: Any, c: Any, tap: Any, y: Any, x: Any) -> Any:
            offset_index = c // (channels // offset_groups) * taps + tap
            base = window.positions((y, x), (tap // kernel_shape[1], tap % kernel_shape[1]))
            point = [base[axis].astype(dtype) + offset(n, 2 * offset_index + axis, y, x) for axis in range(2)]
            value = bilinear(lambda i, j: data(n, c, i, j), point, image, dtype)
            return value * mask[0](n, offset_index, y, x) if mask else value

        return te.compute((batch, channels, taps, height, width), element, "sampled")

    sampled = call.kernel(compute, call.input(0), call.input(2), *masks)
    columns = call.emit(relax.op.reshape(sampled, [batch, groups, depth * taps, height * width]))
    weight = relax.op.reshape(call.input(1), [groups, outputs // groups, depth * taps])
    result = relax.op.reshape(relax.op.matmul(weight, columns), [batch, outputs, height, width])
    if call.has(3):
        result = relax.op.add(result, relax.op.reshape(call.input(3), [1, outputs, 1, 1]))
    return call.emit(result)


def bilinear(pixel: Any, point: Sequence[Any], image: Sequence[int], dtype: str) -> Any:
    """Interpolate bilinearly between four pixels; pixels outside of the image are zero."""
    low = [tirx.floor(position) for position in point]
    total: Any = tirx.const(0, dtype)
    for corner in np.ndindex(2, 2):
        weight: Any = tirx.const(1, dtype)
        positions = []
        for axis in range(2):
            fraction = point[axis] - low[axis]
            weight = weight * (fraction if corner[axis] else 1 - fraction)
            positions.append(low[axis].astype("int32") + corner[axis])
        value = tirx.if_then_else(is_inside(positions, image), pixel(*positions), tirx.const(0, dtype))
        total = total + weight * value
    return total


CONVERTERS: dict[str, Converter] = {"Col2Im": _col2im, "ConvTranspose": _conv_transpose, "DeformConv": _deform_conv}
"""Converters by operator type."""
