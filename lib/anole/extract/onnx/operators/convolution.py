"""Convolutions that TVM has no kernel for: on integers, deformed, transposed with computed weights, and Col2Im."""

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
    """A window that slides over an image, one number for each of the image's axes."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @classmethod
    def of(cls, call: Call, kernel: Sequence[int], image: Sequence[int]) -> Window:
        """Return the window of an operator."""
        rank = len(image)
        strides = _numbers(call, "strides", rank, 1)
        dilations = _numbers(call, "dilations", rank, 1)
        spans = [(extent - 1) * dilation + 1 for extent, dilation in zip(kernel, dilations, strict=True)]
        mode = str(call.attributes.get("auto_pad", "NOTSET"))
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            totals = [
                max((-(-size // stride) - 1) * stride + span - size, 0)
                for size, stride, span in zip(image, strides, spans, strict=True)
            ]
            pads = _pads_of(totals, mode)
        elif mode == "VALID":
            pads = ((0,) * rank, (0,) * rank)
        elif mode in ("NOTSET", ""):
            both = _numbers(call, "pads", 2 * rank, 0)
            pads = both[:rank], both[rank:]
        else:
            raise call.refuse(f"auto_pad: found {mode!r}; allowed: NOTSET, VALID, SAME_UPPER, SAME_LOWER")
        return cls(tuple(kernel), strides, dilations, *pads)

    def taps(self) -> list[te.IterVar]:
        """Return new axes along which a kernel sums over the window."""
        return [te.reduce_axis((0, extent), f"r{axis}") for axis, extent in enumerate(self.kernel)]

    def outputs(self, image: Sequence[int], ceil: bool = False) -> tuple[int, ...]:
        """Return how many places the window has along each axis; a last one may be incomplete with `ceil`."""
        found = []
        for axis, size in enumerate(image):
            span = (self.kernel[axis] - 1) * self.dilations[axis] + 1
            room, stride = size + self.before[axis] + self.after[axis] - span, self.strides[axis]
            count = (-(-room // stride) if ceil else room // stride) + 1
            if ceil and (count - 1) * stride >= size + self.before[axis]:
                count -= 1
            found.append(count)
        return tuple(found)

    def places(self, at: Sequence[Any], taps: Sequence[Any]) -> list[Any]:
        """Return the place in the image, perhaps outside, of a tap of the window at a place of the output."""
        return [
            at[axis] * self.strides[axis] + taps[axis] * self.dilations[axis] - self.before[axis]
            for axis in range(len(self.kernel))
        ]


def _pads_of(totals: Sequence[int], mode: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the pads before and after, whose sums are given, for an ``auto_pad`` of SAME_UPPER or another one."""
    less, more = tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
    return (less, more) if mode == "SAME_UPPER" else (more, less)


def _numbers(call: Call, name: str, count: int, default: int) -> tuple[int, ...]:
    found = tuple(int(number) for number in call.attributes.get(name, (default,) * count))
    if len(found) != count:
        raise call.refuse(f"{name}: found {list(found)}; {count} numbers are expected")
    return found


def is_inside(places: Sequence[Any], image: Sequence[int]) -> Any:
    """Return the condition that a place is in an image."""
    return tirx.all(*(tirx.all(p >= 0, p < size) for p, size in zip(places, image, strict=True)))


def groups_of(call: Call, data: Sequence[int], weight: Sequence[int]) -> int:
    """Return the groups of a convolution of data and weights of these shapes."""
    groups = call.integer("group", 1)
    if data[1] != weight[1] * groups or weight[0] % groups:
        raise call.refuse(f"found {data[1]} channels, {groups} groups and weights {list(weight)}")
    return groups


def convolve(call: Call, data: relax.Expr, weight: relax.Expr) -> relax.Expr:
    """Return the convolution of an operator with the attributes of Conv, in the data's type; both types agree."""
    batch, _, *image = shape_of(data)
    outputs, depth, *kernel_shape = shape_of(weight)
    groups = groups_of(call, shape_of(data), shape_of(weight))
    window = Window.of(call, kernel_shape, image)
    extents = (batch, outputs, *window.outputs(image))

    def compute(data: te.Tensor, weight: te.Tensor) -> te.Tensor:
        channel = te.reduce_axis((0, depth), "rc")
        taps = window.taps()

        def one(n: Any, o: Any, *at: Any) -> Any:
            places = window.places(at, taps)
            value = data(n, o // (outputs // groups) * depth + channel, *places)
            value = tirx.if_then_else(is_inside(places, image), value, tirx.const(0, data.dtype))
            return te.sum(value * weight(o, channel, *taps), [channel, *taps])

        return te.compute(extents, one, "convolution")

    return call.kernel(compute, data, weight)


def _conv_transpose(call: Call) -> relax.Expr:
    """Leave constant weights to TVM, whose kernels are rewritten as convolutions; others gather what they get."""
    _, channels, *image = call.shape(0)
    _, per_group, *kernel_shape = call.shape(1)
    rank = len(image)
    extra = _numbers(call, "output_padding", rank, 0)
    window, result = _transposed_window(call, Window.of(call, kernel_shape, image), image, extra)
    is_constant = call.constant(1) is not None and not {"output_shape", "auto_pad"} & call.attributes.keys()
    if is_constant and rank <= 2:
        return call.by_tvm()
    groups = call.integer("group", 1)

    def compute(data: te.Tensor, weight: te.Tensor) -> te.Tensor:
        channel = te.reduce_axis((0, channels // groups), "rc")
        taps = window.taps()

        def one(n: Any, o: Any, *at: Any) -> Any:
            places, reaches = _sources(window, at, taps, image)
            source = o // per_group * (channels // groups) + channel
            value = data(n, source, *places) * weight(source, o % per_group, *taps)
            return te.sum(tirx.if_then_else(reaches, value, tirx.const(0, data.dtype)), [channel, *taps])

        return te.compute((data.shape[0], groups * per_group, *result), one, "transposed")

    found = call.kernel(compute, call.input(0), call.input(1))
    if call.has(2):
        bias = relax.op.reshape(call.input(2), [1, per_group * groups, *[1] * rank])
        found = call.emit(relax.op.add(found, bias))
    return found


def _transposed_window(
    call: Call, window: Window, image: Sequence[int], extra: Sequence[int]
) -> tuple[Window, tuple[int, ...]]:
    """Return the window of a transposed convolution, with the pads that its result's size implies, and that size."""
    mode, rank = str(call.attributes.get("auto_pad", "NOTSET")), len(image)
    spans = [(k - 1) * d + 1 for k, d in zip(window.kernel, window.dilations, strict=True)]
    whole = [s * (i - 1) + e + p for s, i, e, p in zip(window.strides, image, extra, spans, strict=True)]
    before, after = window.before, window.after
    result: tuple[int, ...] | None = None
    if "output_shape" in call.attributes:
        result = tuple(int(extent) for extent in call.attributes["output_shape"])[-rank:]
    elif mode.startswith("SAME"):
        # A kernel that is shorter than its stride leaves nothing to cut off, and the result is smaller.
        result = tuple(min(w, size * stride) for w, size, stride in zip(whole, image, window.strides, strict=True))
    if result is not None:
        before, after = _pads_of([w - r for w, r in zip(whole, result, strict=True)], mode)
    result = tuple(w - b - a for w, b, a in zip(whole, before, after, strict=True))
    return replace(window, before=before, after=after), result


def _sources(window: Window, at: Sequence[Any], taps: Sequence[Any], image: Sequence[int]) -> tuple[list[Any], Any]:
    """Return the place of the window whose tap lies on a pixel, and the condition that there is one."""
    places, conditions = [], []
    for axis, size in enumerate(image):
        moved = at[axis] + window.before[axis] - taps[axis] * window.dilations[axis]
        place = tirx.floordiv(moved, window.strides[axis])
        conditions.append(tirx.all(moved >= 0, tirx.floormod(moved, window.strides[axis]) == 0, place < size))
        places.append(place)
    return places, tirx.all(*conditions)


def _col2im(call: Call) -> relax.Expr:
    """Return images that are sums of overlapping blocks."""
    image = tuple(int(extent) for extent in call.required(1, "image_shape"))
    block = tuple(int(extent) for extent in call.required(2, "block_shape"))
    window = Window.of(call, block, image)
    counts = window.outputs(image)
    batch, columns, length = call.shape(0)
    if columns % prod(block) or length != prod(counts):
        raise call.refuse(f"found shape {[batch, columns, length]} for {list(counts)} blocks of {list(block)}")

    def compute(data: te.Tensor) -> te.Tensor:
        taps = window.taps()

        def one(n: Any, c: Any, *at: Any) -> Any:
            places, reaches = _sources(window, at, taps, counts)
            value = data(n, c * prod(block) + flat(taps, block), flat(places, counts))
            return te.sum(tirx.if_then_else(reaches, value, tirx.const(0, data.dtype)), taps)

        return te.compute((batch, columns // prod(block), *image), one, "image")

    return call.kernel(compute, call.input(0))


def flat(at: Sequence[Any], extents: Sequence[int]) -> Any:
    """Return the position of an element in memory."""
    found: Any = 0
    for index, extent in zip(at, extents, strict=True):
        found = found * extent + index
    return found


def _deform_conv(call: Call) -> relax.Expr:
    """Sample the taps of each place at their offsets, and multiply them by the weights."""
    batch, channels, *image = call.shape(0)
    outputs, depth, *kernel_shape = call.shape(1)
    if len(image) != 2:
        raise call.refuse(f"found {len(image)} axes of the image; only 2 are supported")
    groups, shifts = (int(call.attributes.get(name, 1)) for name in ("group", "offset_group"))
    window = Window.of(call, kernel_shape, image)
    (height, width), taps = window.outputs(image), prod(kernel_shape)
    dtype = dtype_of(call.input(0))
    masked = [call.input(4)] if call.has(4) else []

    def compute(data: te.Tensor, offset: te.Tensor, *mask: te.Tensor) -> te.Tensor:
        def one(n: Any, c: Any, tap: Any, y: Any, x: Any) -> Any:
            shift = c // (channels // shifts) * taps + tap
            base = window.places((y, x), (tap // kernel_shape[1], tap % kernel_shape[1]))
            at = [base[axis].astype(dtype) + offset(n, 2 * shift + axis, y, x) for axis in range(2)]
            value = bilinear(lambda i, j: data(n, c, i, j), at, image, dtype)
            return value * mask[0](n, shift, y, x) if mask else value

        return te.compute((batch, channels, taps, height, width), one, "sampled")

    sampled = call.kernel(compute, call.input(0), call.input(2), *masked)
    columns = call.emit(relax.op.reshape(sampled, [batch, groups, depth * taps, height * width]))
    weight = relax.op.reshape(call.input(1), [groups, outputs // groups, depth * taps])
    result = relax.op.reshape(relax.op.matmul(weight, columns), [batch, outputs, height, width])
    if call.has(3):
        result = relax.op.add(result, relax.op.reshape(call.input(3), [1, outputs, 1, 1]))
    return call.emit(result)


def bilinear(pixel: Any, at: Sequence[Any], image: Sequence[int], dtype: str) -> Any:
    """Return the value between four pixels, each given by its integer places; those outside of the image are zero."""
    low = [tirx.floor(place) for place in at]
    total: Any = tirx.const(0, dtype)
    for corner in np.ndindex(2, 2):
        weight: Any = tirx.const(1, dtype)
        places = []
        for axis in range(2):
            part = at[axis] - low[axis]
            weight = weight * (part if corner[axis] else 1 - part)
            places.append(low[axis].astype("int32") + corner[axis])
        value = tirx.if_then_else(is_inside(places, image), pixel(*places), tirx.const(0, dtype))
        total = total + weight * value
    return total


CONVERTERS: dict[str, Converter] = {
    "Col2Im": _col2im,
    "ConvTranspose": _conv_transpose,
    "DeformConv": _deform_conv,
}
"""Converters by the operator's type."""
