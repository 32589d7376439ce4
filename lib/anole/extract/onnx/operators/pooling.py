"""Converters for pooling: p-norms, maxima with indices, ``SAME`` padding, and regions of interest."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from anole.extract.onnx.operators.call import Call, Converter, dtype_of
from anole.extract.onnx.operators.convolution import Window, flat, is_inside


def _pool(call: Call) -> relax.Expr:
    """Use TVM's converter with explicit pads, since TVM pads too little for ``SAME_LOWER``."""
    if not str(call.attributes.get("auto_pad", "NOTSET")).startswith("SAME"):
        return call.by_tvm()
    window = Window.of(call, call.attributes["kernel_shape"], call.shape(0)[2:])
    attributes = {name: value for name, value in call.attributes.items() if name != "auto_pad"}
    return call.by_tvm(attributes={**attributes, "pads": (*window.before, *window.after)})


def _lp_pool(call: Call) -> relax.Expr:
    """Compute the p-norm of each window; pixels outside of the image are zero."""
    batch, channels, *image = call.shape(0)
    window = Window.of(call, call.attributes["kernel_shape"], image)
    extents = (batch, channels, *window.outputs(image, call.flag("ceil_mode")))
    p, dtype = float(call.attributes.get("p", 2)), dtype_of(call.input(0))

    def power(value: Any) -> Any:
        if p == 1:
            return tirx.abs(value)
        return value * value if p == 2 else tirx.power(tirx.abs(value), tirx.const(p, dtype))

    def root(value: Any) -> Any:
        if p == 1:
            return value
        return tirx.sqrt(value) if p == 2 else tirx.power(value, tirx.const(1 / p, dtype))

    def compute(data: te.Tensor) -> te.Tensor:
        taps = window.taps()

        def element(n: Any, c: Any, *i: Any) -> Any:
            positions = window.positions(i, taps)
            value = tirx.if_then_else(is_inside(positions, image), power(data(n, c, *positions)), tirx.const(0, dtype))
            return te.sum(value, taps)

        total = te.compute(extents, element, "powers")
        return te.compute(extents, lambda *i: root(total(*i)), "norm")

    return call.kernel(compute, call.input(0))


def _max_pool(call: Call) -> relax.Expr | list[relax.Expr]:
    if call.n_outputs == 1:
        return _pool(call)
    batch, channels, *image = call.shape(0)
    window = Window.of(call, call.attributes["kernel_shape"], image)
    result = window.outputs(image, call.flag("ceil_mode"))
    is_column_major = call.flag("storage_order")
    dtype = dtype_of(call.input(0))

    def select_larger(pair_a: Any, pair_b: Any) -> tuple[Any, Any]:
        # In a tie, the first element is chosen.
        is_first = tirx.any(pair_a[1] > pair_b[1], tirx.all(pair_a[1] == pair_b[1], pair_a[0] <= pair_b[0]))
        return tirx.Select(is_first, pair_a[0], pair_b[0]), tirx.Select(is_first, pair_a[1], pair_b[1])

    def identity(index: str, value: str) -> tuple[Any, Any]:
        return tirx.const(np.iinfo(index).max, index), tirx.min_value(value)

    best = te.comm_reducer(select_larger, identity, "largest")

    def compute(data: te.Tensor) -> list[te.Tensor]:
        taps = window.taps()

        def element(n: Any, c: Any, *i: Any) -> Any:
            positions = window.positions(i, taps)
            is_valid = is_inside(positions, image)
            offset = flat(positions[::-1], image[::-1]) if is_column_major else flat(positions, image)
            index = (n * channels + c) * int(np.prod(image)) + offset
            index = tirx.if_then_else(is_valid, index.astype("int64"), tirx.const(np.iinfo("int64").max, "int64"))
            value = tirx.if_then_else(is_valid, data(n, c, *positions), tirx.min_value(dtype))
            return best((index, value), taps)

        largest = te.compute((batch, channels, *result), element, "largest")
        return [largest[1], largest[0]]

    return call.fields(call.kernel(compute, call.input(0)), 2)


def _roi_align(call: Call) -> relax.Expr:
    """Let TVM convert averages; a maximum is over the four weighted corners of each sample, as ONNX defines it."""
    if str(call.attributes.get("mode", "avg")) == "avg":
        return call.by_tvm()
    samples = call.integer("sampling_ratio", 0)
    if samples < 1:
        raise call.refuse("mode max requires a sampling_ratio of at least 1")
    _, channels, height, width = call.shape(0)
    rows, columns = (int(call.attributes.get(f"output_{side}", 1)) for side in ("height", "width"))
    position = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    is_half = str(call.attributes.get("coordinate_transformation_mode", position)) == "half_pixel"
    scale, dtype = float(call.attributes.get("spatial_scale", 1.0)), dtype_of(call.input(0))

    def compute(data: te.Tensor, regions: te.Tensor, batches: te.Tensor) -> te.Tensor:
        taps = [te.reduce_axis((0, samples), name) for name in ("ry", "rx")]

        def coordinate(region: Any, axis: int, index: Any, tap: Any, bins: int) -> Any:
            start, end = (regions(region, side - axis) * scale - (0.5 if is_half else 0.0) for side in (1, 3))
            length = end - start if is_half else tirx.max(end - start, tirx.const(1, dtype))
            size = length / tirx.const(bins, dtype)
            return start + index.astype(dtype) * size + (tap.astype(dtype) + 0.5) * size / tirx.const(samples, dtype)

        def element(region: Any, channel: Any, y: Any, x: Any) -> Any:
            point = [coordinate(region, 0, y, taps[0], rows), coordinate(region, 1, x, taps[1], columns)]
            value = _largest_corner(lambda i, j: data(batches(region), channel, i, j), point, (height, width), dtype)
            return te.max(value, taps)

        return te.compute((regions.shape[0], channels, rows, columns), element, "regions")

    return call.kernel(compute, call.input(0), call.input(1), call.input(2))


def _largest_corner(pixel: Any, point: list[Any], image: tuple[int, int], dtype: str) -> Any:
    """Return the largest of four weighted pixels, or 0 if the point is more than one pixel outside of the image."""
    inside = tirx.all(*(tirx.all(p >= -1.0, p <= float(size)) for p, size in zip(point, image, strict=True)))
    sides = []
    for p, size in zip(point, image, strict=True):
        clipped = tirx.max(p, tirx.const(0, dtype))
        low = tirx.min(clipped.astype("int32"), tirx.const(size - 1, "int32"))
        fraction = tirx.Select(low >= size - 1, tirx.const(0, dtype), clipped - low.astype(dtype))
        sides.append(((low, 1 - fraction), (tirx.min(low + 1, tirx.const(size - 1, "int32")), fraction)))
    corners = [wy * wx * pixel(y, x) for y, wy in sides[0] for x, wx in sides[1]]
    return tirx.if_then_else(inside, reduce(tirx.max, corners), tirx.const(0, dtype))


CONVERTERS: dict[str, Converter] = {
    "AveragePool": _pool,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "RoiAlign": _roi_align,
}
"""Converters by operator type."""
