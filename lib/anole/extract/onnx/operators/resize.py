"""Converters for Resize and Upsample: along each axis, every output is a weighted sum of a few inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, te

from anole.extract.onnx.operators.call import Call, Converter, const, dtype_of, replace_index, shape_of

_MAX_UNROLLED_TAPS = 8
_COORD_MODES = (
    *("align_corners", "asymmetric", "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel"),
    *("tf_crop_and_resize", "tf_half_pixel_for_nn"),
)
_ROUNDINGS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}

# Modes in which TVM's kernels, which resize both axes in one step, are correct; "nearest" only with integer factors.
_TVM_MODES = {
    "nearest": (("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")),
    "linear": tuple(
        (coord_mode, rounding)
        for coord_mode in ("align_corners", "asymmetric", "half_pixel", "pytorch_half_pixel")
        for rounding in _ROUNDINGS
    ),
}


@dataclass(frozen=True)
class _Side:
    """The resizing of one axis; `roi` is the region of interest, as fractions of the axis's length."""

    inputs: int
    outputs: int
    scale: float
    roi: tuple[float, float] = (0.0, 1.0)

    @property
    def is_unchanged(self) -> bool:
        return self.inputs == self.outputs and self.scale == 1 and self.roi == (0, 1)


def _resize(call: Call) -> relax.Expr:
    sides = _sides(call)
    mode = call.choice("mode", ("nearest", "linear", "cubic"), "nearest")
    if _is_correct_in_tvm(call, mode, sides):
        return call.by_tvm(inputs=tuple(map(_drop_empty, call.inputs)))
    result = call.input(0)
    dtype = dtype_of(result)
    if mode != "nearest":
        if not dtype.startswith("float"):
            raise call.refuse(f"mode {mode} of {dtype}; only floating-point data can be interpolated")
        result = call.widen(result)
    for axis, side in enumerate(sides):
        if not side.is_unchanged:
            result = _resize_axis(call, result, axis, mode, side)
    return call.cast(result, dtype)


def _drop_empty(operand: relax.Expr | None) -> relax.Expr | None:
    """Return None for an empty input, which exporters wrote in place of omitted inputs before opset 13."""
    return None if operand is None or 0 in shape_of(operand) else operand


def _is_correct_in_tvm(call: Call, mode: str, sides: list[_Side]) -> bool:
    pair = (_coord_mode(call), call.attributes.get("nearest_mode", "round_prefer_floor"))
    return (
        len(sides) == 4
        and call.opset >= 11
        and dtype_of(call.input(0)) == "float32"
        and sides[0].is_unchanged
        and sides[1].is_unchanged
        and not {"axes", "antialias", "keep_aspect_ratio_policy", "exclude_outside"} & call.attributes.keys()
        and pair in _TVM_MODES.get(mode, ())
        and all(side.scale == side.outputs / side.inputs and side.outputs > 1 for side in sides[2:])
        and (mode != "nearest" or all(side.outputs % side.inputs == 0 for side in sides[2:]))
    )


def _sides(call: Call) -> list[_Side]:
    """Return the resizing of each axis."""
    shape = call.shape(0)
    rank = len(shape)
    axes = [int(axis) % rank for axis in call.attributes.get("axes", range(rank))]
    scales, sizes, roi = _values(call)
    if scales is not None and scales.size == len(axes):
        factors = dict(zip(axes, scales.astype(float), strict=True))
        extents = {axis: int(factors[axis] * shape[axis]) for axis in axes}
    elif sizes is not None and sizes.size == len(axes):
        extents = dict(zip(axes, map(int, sizes), strict=True))
        factors = {axis: extents[axis] / shape[axis] for axis in axes}
        policy = call.choice("keep_aspect_ratio_policy", ("stretch", "not_larger", "not_smaller"), "stretch")
        if policy != "stretch":
            factor = (min if policy == "not_larger" else max)(factors.values())
            factors = dict.fromkeys(axes, factor)
            extents = {axis: int(factor * shape[axis] + 0.5) for axis in axes}
    else:
        raise call.refuse(f"one of scales and sizes must be constant and have {len(axes)} values")
    rois = {axis: (0.0, 1.0) for axis in axes}
    if _coord_mode(call) == "tf_crop_and_resize":
        if roi is None or roi.size != 2 * len(axes):
            raise call.refuse(f"roi must be constant and have {2 * len(axes)} values")
        rois = {axis: (float(roi[i]), float(roi[i + len(axes)])) for i, axis in enumerate(axes)}
    return [
        _Side(extent, extents.get(axis, extent), factors.get(axis, 1.0), rois.get(axis, (0.0, 1.0)))
        for axis, extent in enumerate(shape)
    ]


def _values(call: Call) -> tuple[NDArray[Any] | None, ...]:
    """Return the constant scales, sizes and region of interest, with None for omitted ones."""
    if call.operator == "Upsample" and "scales" in call.attributes:
        return np.asarray(call.attributes["scales"]), None, None
    if _has_old_inputs(call):
        return call.constant(1), None, None
    scales, sizes = call.constant(2), call.constant(3)
    return None if scales is None or not scales.size else scales, sizes, call.constant(1)


def _has_old_inputs(call: Call) -> bool:
    return call.operator == "Upsample" or call.opset < 11


def _coord_mode(call: Call) -> str:
    default = "asymmetric" if _has_old_inputs(call) else "half_pixel"
    return call.choice("coordinate_transformation_mode", _COORD_MODES, default)


def _resize_axis(call: Call, data: relax.Expr, axis: int, mode: str, side: _Side) -> relax.Expr:
    # Ties between two nearest inputs are broken by rounding errors, so use ONNX Runtime's precision.
    precision = np.float32 if mode == "nearest" else np.float64
    coords = _coordinates(_coord_mode(call), side, precision)
    outside = np.zeros(side.outputs, bool)
    if _coord_mode(call) == "tf_crop_and_resize":
        outside = (coords < 0) | (coords > side.inputs - 1)
    if mode == "nearest":
        rounding = call.choice("nearest_mode", _ROUNDINGS, "floor" if _has_old_inputs(call) else "round_prefer_floor")
        nearest = np.clip(_ROUNDINGS[rounding](coords).astype(np.int64), 0, side.inputs - 1)
        if not outside.any():
            return call.gather(data, nearest, axis)
        indices, weights = nearest[:, None], np.ones((side.outputs, 1))
    else:
        indices, weights = _taps(call, mode, coords, side)
    weights = np.where(outside[:, None], 0, weights)
    added = outside * float(call.attributes.get("extrapolation_value", 0.0))
    return _weighted_sum(call, data, axis, indices, weights, added)


def _weighted_sum(
    call: Call, data: relax.Expr, axis: int, indices: NDArray[Any], weights: NDArray[Any], added: NDArray[Any]
) -> relax.Expr:
    """Compute weighted sums of elements along an axis; `indices` and `weights` have shape (outputs, taps)."""
    dtype = dtype_of(data)
    outputs, taps = indices.shape
    extents = replace_index(shape_of(data), axis, outputs)

    def compute(data: te.Tensor, sources: te.Tensor, factors: te.Tensor, added: te.Tensor) -> te.Tensor:
        def term(i: tuple[Any, ...], tap: Any) -> Any:
            return factors[i[axis], tap] * data(*replace_index(i, axis, sources[i[axis], tap]))

        if taps > _MAX_UNROLLED_TAPS:
            tap = te.reduce_axis((0, taps), "tap")
            total = te.compute(extents, lambda *i: te.sum(term(i, tap), tap), "resize")
            return te.compute(extents, lambda *i: total(*i) + added[i[axis]], "shift")
        return te.compute(extents, lambda *i: sum((term(i, tap) for tap in range(taps)), added[i[axis]]), "resize")

    return call.kernel(compute, data, const(indices, "int32"), const(weights, dtype), const(added, dtype))


def _coordinates(coord_mode: str, side: _Side, precision: type[np.floating[Any]]) -> NDArray[Any]:
    """Return the input coordinate of each output."""
    index = np.arange(side.outputs, dtype=precision)
    scale, one_half = precision(side.scale), precision(0.5)
    length = side.scale * side.inputs
    last, last_out = precision(side.inputs - 1), precision(length - 1)
    coords: NDArray[Any]
    if coord_mode == "align_corners":
        coords = index * 0 if length == 1 else index * last / last_out
    elif coord_mode == "asymmetric":
        coords = index / scale
    elif coord_mode == "tf_half_pixel_for_nn":
        coords = (index + one_half) / scale
    elif coord_mode == "tf_crop_and_resize":
        span = precision(side.roi[1] - side.roi[0]) * last
        coords = precision(side.roi[0]) * last + (index * 0 + span / 2 if length == 1 else index * span / last_out)
    elif coord_mode == "pytorch_half_pixel" and side.outputs == 1:
        coords = index * 0
    else:
        fit = precision(side.outputs) / (scale * precision(side.inputs)) if coord_mode == "half_pixel_symmetric" else 1
        coords = precision(side.inputs / 2) * precision(1 - fit) + (index + one_half) / scale - one_half
    return coords


def _taps(call: Call, mode: str, coords: NDArray[Any], side: _Side) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the input indices and weights of each output, both of shape (outputs, taps)."""
    scale = min(side.scale, 1.0) if call.attributes.get("antialias", 0) else 1.0
    support = 1 if mode == "linear" else 2
    first = int(np.floor(-support / scale)) + 1
    offsets = np.arange(first, 2 - first)
    left = np.ceil(coords) - 1
    distance = scale * (offsets - (coords - left)[:, None])
    weights = _weights(mode, distance, float(call.attributes.get("cubic_coeff_a", -0.75)))
    indices = left[:, None].astype(np.int64) + offsets
    if call.attributes.get("exclude_outside", 0):
        weights = np.where((indices < 0) | (indices >= side.inputs), 0, weights)
    total = weights.sum(axis=1, keepdims=True)
    return np.clip(indices, 0, side.inputs - 1), weights / np.where(total == 0, 1, total)


def _weights(mode: str, distance: NDArray[np.float64], a: float) -> NDArray[np.float64]:
    x: NDArray[np.float64] = np.abs(distance)
    if mode == "linear":
        linear: NDArray[np.float64] = np.clip(1 - x, 0, 1)
        return linear
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


CONVERTERS: dict[str, Converter] = {"Resize": _resize, "Upsample": _resize}
"""Converters by operator type."""
