"""Converters for indexing operators: scatter, one-hot, reverse, pad, TopK and Compress."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, te, tirx

from anole.extract.onnx.operators.call import Call, Converter, along, const, dtype_of, replace_index, shape_of
from anole.extract.onnx.operators.convolution import is_inside

_REDUCTIONS = {"none": "update", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def _wrap_negative(call: Call, indices: relax.Expr, extent: int) -> relax.Expr:
    """Convert indices to int64 and wrap negative ones around."""
    indices = call.cast(indices, "int64")
    is_negative = relax.op.less(indices, const(0, "int64"))
    return call.emit(relax.op.where(is_negative, relax.op.add(indices, const(extent, "int64")), indices))


def _scatter_elements(call: Call) -> relax.Expr:
    data, indices, updates = (call.input(index) for index in range(3))
    shape = shape_of(data)
    axis, reduction = call.axis(len(shape), 0), _REDUCTIONS[call.choice("reduction", _REDUCTIONS, "none")]
    return _scatter(call, data, _wrap_negative(call, indices, shape[axis]), updates, axis, reduction)


def _scatter(
    call: Call, data: relax.Expr, positions: relax.Expr, updates: relax.Expr, axis: int, reduction: str
) -> relax.Expr:
    """Write updates into data at indices along an axis."""
    extents = shape_of(positions)
    columns = [
        positions if axis_ == axis else const(np.broadcast_to(_indices_along(axis_, extents), extents), "int64")
        for axis_ in range(len(extents))
    ]
    index_columns = [relax.op.expand_dims(column, len(extents)) for column in columns]
    index_vectors = index_columns[0] if len(index_columns) == 1 else relax.op.concat(index_columns, len(extents))
    return call.emit(relax.op.scatter_nd(data, index_vectors, updates, reduction))


def _indices_along(axis: int, extents: Sequence[int]) -> NDArray[np.int64]:
    """Return the indices along an axis, in a shape that broadcasts to a tensor."""
    return np.arange(extents[axis]).reshape(along(axis, len(extents)))


def _max_unpool(call: Call) -> relax.Expr:
    """Scatter data into zeros, at the indices that MaxPool returned."""
    data = call.input(0)
    batch, channels, *image = shape_of(data)
    rank = len(image)
    window, strides = call.attributes["kernel_shape"], call.attributes.get("strides", (1,) * rank)
    pads = call.attributes.get("pads", (0,) * 2 * rank)
    sides = zip(image, window, strides, pads[:rank], pads[rank:], strict=True)
    result = (batch, channels, *((size - 1) * s + k - a - b for size, k, s, a, b in sides))
    if call.has(2) and tuple(call.require_constant(2, "output_shape")) != result:
        # ONNX defines the indices for the smaller image, ONNX Runtime for the larger one.
        raise call.refuse(f"output_shape: only {list(result)} is supported, as implied by the other attributes")
    count = prod(shape_of(data))
    positions = relax.op.reshape(call.cast(call.input(1), "int64"), [count, 1])
    values = relax.op.reshape(data, [count])
    zeros = const(np.zeros(prod(result)), dtype_of(data))
    return call.emit(relax.op.reshape(relax.op.scatter_nd(zeros, positions, values, "update"), list(result)))


def _tensor_scatter(call: Call) -> relax.Expr:
    """Write an update into a cache, at a start index per batch element."""
    cache, update = call.input(0), call.input(1)
    shape, update_shape = shape_of(cache), shape_of(update)
    axis = call.axis(len(shape), -2)
    mode = str(call.attributes.get("mode", "linear"))
    if mode not in ("linear", "circular") or axis == 0:
        raise call.refuse(f"found mode {mode!r} and axis {axis}; allowed: linear, circular; any axis but the first")
    positions: relax.Expr = const(np.broadcast_to(_indices_along(axis, update_shape), update_shape), "int64")
    if call.has(2):
        start = relax.op.reshape(call.cast(call.input(2), "int64"), [shape[0], *[1] * (len(shape) - 1)])
        positions = call.emit(relax.op.add(positions, start))
    if mode == "circular":
        positions = call.emit(relax.op.floor_mod(positions, const(shape[axis], "int64")))
    return _scatter(call, cache, positions, update, axis, "update")


def _one_hot(call: Call) -> relax.Expr:
    depth = int(call.require_constant(1, "depth").item())
    indices = _wrap_negative(call, call.input(0), depth)
    rank = len(shape_of(indices)) + 1
    axis = call.axis(rank, -1)
    positions = const(_indices_along(axis, [depth] * rank), "int64")
    is_hot = call.emit(relax.op.equal(relax.op.expand_dims(indices, axis), positions))
    off, on = (call.emit(relax.op.reshape(call.gather(call.input(2), np.array([i]), 0), [])) for i in (0, 1))
    return call.emit(relax.op.where(is_hot, on, off))


def _reverse_sequence(call: Call) -> relax.Expr:
    data, lengths = call.input(0), call.input(1)
    shape = shape_of(data)
    time, batch = call.integer("time_axis", 0), call.integer("batch_axis", 1)
    if {time, batch} != {0, 1}:
        raise call.refuse(f"found time_axis {time} and batch_axis {batch}; one must be 0 and the other 1")

    def compute(data: te.Tensor, lengths: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            length = lengths[i[batch]].astype("int32")
            index = tirx.Select(i[time] < length, length - 1 - i[time], i[time])
            return data(*replace_index(i, time, index))

        return te.compute(shape, element, "reversed")

    return call.kernel(compute, data, call.cast(lengths, "int64"))


def _pad(call: Call) -> relax.Expr:
    """Crop by negative pads first, as ONNX Runtime does; pad by TVM, or by `_pad_value` if the value is computed."""
    shape = call.shape(0)
    if call.opset < 11:
        return call.by_tvm()
    before, after = _pads(call, len(shape))
    is_computed, is_cropped = call.has(2) and call.constant(2) is None, min((*before, *after), default=0) < 0
    if str(call.attributes.get("mode", "constant")) == "constant" and (is_computed or is_cropped):
        return _pad_value(call, before, after)
    data, axes = call.input(0), list(range(len(shape)))
    if is_cropped:
        starts, ends = [max(-b, 0) for b in before], [size + min(a, 0) for size, a in zip(shape, after, strict=True)]
        if any(start >= end for start, end in zip(starts, ends, strict=True)):
            raise call.refuse(f"found pads {[*before, *after]} for shape {list(shape)}; nothing would be left")
        data = call.emit(relax.op.strided_slice(data, axes, starts, ends))
    pads = const([max(pad, 0) for pad in (*before, *after)], "int64")
    return call.by_tvm(inputs=(data, pads, *call.inputs[2:3]))


def _pads(call: Call, rank: int) -> tuple[list[int], list[int]]:
    """Return the padding before and after each axis."""
    pads, axes = call.require_constant(1, "pads"), list(range(rank))
    if call.has(3):
        axes = [call.normal_axis(int(axis), rank) for axis in call.require_constant(3, "axes")]
    before, after = [0] * rank, [0] * rank
    for position, axis in enumerate(axes):
        before[axis], after[axis] = int(pads[position]), int(pads[position + len(axes)])
    return before, after


def _pad_value(call: Call, before: Sequence[int], after: Sequence[int]) -> relax.Expr:
    """Pad or crop with a fill value that may be computed."""
    shape = call.shape(0)
    fill = call.input(2) if call.has(2) else const(0, dtype_of(call.input(0)))
    fill = call.emit(relax.op.reshape(fill, []))
    extents = [b + size + a for b, size, a in zip(before, shape, after, strict=True)]
    if min(extents, default=1) < 1:
        raise call.refuse(f"found pads {[*before, *after]} for shape {list(shape)}; nothing would be left")

    def compute(data: te.Tensor, fill: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            positions = [index - b for index, b in zip(i, before, strict=True)]
            return tirx.if_then_else(is_inside(positions, shape), data(*positions), fill())

        return te.compute(extents, element, "padded")

    return call.kernel(compute, call.input(0), fill)


def _space_to_depth(call: Call) -> relax.Expr:
    if call.choice("mode", ("DCR", "CRD"), "DCR") == "DCR":
        return call.by_tvm()
    batch, channels, height, width = call.shape(0)
    size = int(call.attributes["blocksize"])
    split = [batch, channels, height // size, size, width // size, size]
    moved = relax.op.permute_dims(relax.op.reshape(call.input(0), split), [0, 1, 3, 5, 2, 4])
    return call.emit(relax.op.reshape(moved, [batch, channels * size * size, height // size, width // size]))


def _top_k(call: Call) -> relax.Expr | list[relax.Expr]:
    """Use TVM's converter, with unsigned integers mapped to int64 in the same order."""
    # Unsorted results may have any order.
    attributes = {name: value for name, value in call.attributes.items() if name != "sorted"}
    dtype = dtype_of(call.input(0))
    if not dtype.startswith("u"):
        return call.by_tvm(attributes=attributes)
    data = _flip_sign_bit(call, call.input(0), "int64") if dtype == "uint64" else call.cast(call.input(0), "int64")
    values, positions = call.fields(call.emit(call.by_tvm(inputs=(data, *call.inputs[1:]), attributes=attributes)), 2)
    return [_flip_sign_bit(call, values, dtype) if dtype == "uint64" else call.cast(values, dtype), positions]


def _flip_sign_bit(call: Call, data: relax.Expr, dtype: str) -> relax.Expr:
    """Reinterpret 64-bit integers with the sign bit flipped, which maps unsigned to signed order and back."""
    source_dtype = dtype_of(data)

    def compute(data: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            bits = tirx.reinterpret("uint64", data(*i)) if source_dtype != "uint64" else data(*i)
            flipped = bits ^ (tirx.const(1, "uint64") << tirx.const(63, "uint64"))
            return tirx.reinterpret(dtype, flipped) if dtype != "uint64" else flipped

        return te.compute(data.shape, element, "flipped")

    return call.kernel(compute, data)


def _compress(call: Call) -> relax.Expr:
    """Gather the elements that a constant condition selects."""
    data = call.input(0)
    positions = np.flatnonzero(call.require_constant(1, "condition"))
    if not positions.size:
        raise call.refuse("condition selects no element; each extent must be at least 1")
    if "axis" not in call.attributes:
        return call.gather(relax.op.reshape(data, [prod(call.shape(0))]), positions, 0)
    return call.gather(data, positions, call.axis(len(call.shape(0)), 0))


CONVERTERS: dict[str, Converter] = {
    "Compress": _compress,
    "MaxUnpool": _max_unpool,
    "OneHot": _one_hot,
    "Pad": _pad,
    "ReverseSequence": _reverse_sequence,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "SpaceToDepth": _space_to_depth,
    "TensorScatter": _tensor_scatter,
    "TopK": _top_k,
}
"""Converters by operator type."""
