"""Operators that move elements to computed places: scatters, one-hot codes, reversed and padded tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from anole.extract.onnx.operators.by_tvm import by_tvm
from anole.extract.onnx.operators.call import Call, Converter
from anole.extract.onnx.operators.kernels import (
    axis_of,
    cast,
    const,
    dtype_of,
    kernel,
    normal_axis,
    refuse,
    replaced,
    required_constant,
    shape_of,
    taken_along,
)

_REDUCTIONS = {"none": "update", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def _positive(call: Call, indices: relax.Expr, extent: int) -> relax.Expr:
    """Returns indices of type int64 in which a negative one counts from the end."""
    emit, wide = call.builder.emit, cast(call, indices, "int64")
    is_negative = emit(relax.op.less(wide, const(0, "int64")))
    return emit(relax.op.where(is_negative, emit(relax.op.add(wide, const(extent, "int64"))), wide))


def _scatter_elements(call: Call) -> relax.Expr:
    data, indices, updates = (call.input(index) for index in range(3))
    shape = shape_of(data)
    axis = axis_of(call, len(shape), 0)
    found = str(call.attributes.get("reduction", "none"))
    if found not in _REDUCTIONS:
        raise refuse(call, f"reduction: found {found!r}; allowed: {', '.join(_REDUCTIONS)}")
    places = _positive(call, indices, shape[axis])
    return _scattered(call, data, places, updates, axis, _REDUCTIONS[found])


def _scattered(
    call: Call, data: relax.Expr, places: relax.Expr, updates: relax.Expr, axis: int, reduction: str
) -> relax.Expr:
    """Returns data with updates at the places along an axis."""
    emit, extents = call.builder.emit, shape_of(places)
    columns = []
    for each in range(len(extents)):
        if each == axis:
            column = places
        else:
            counted = np.arange(extents[each]).reshape([-1 if i == each else 1 for i in range(len(extents))])
            column = const(np.broadcast_to(counted, extents), "int64")
        columns.append(emit(relax.op.expand_dims(column, len(extents))))
    at = columns[0] if len(columns) == 1 else emit(relax.op.concat(columns, len(extents)))
    return emit(relax.op.scatter_nd(data, at, updates, reduction))


def _max_unpool(call: Call) -> relax.Expr:
    """Returns zeros with the data at the places that MaxPool found."""
    data, emit = call.input(0), call.builder.emit
    batch, channels, *image = shape_of(data)
    rank = len(image)
    window, strides = call.attributes["kernel_shape"], call.attributes.get("strides", (1,) * rank)
    pads = call.attributes.get("pads", (0,) * 2 * rank)
    sides = zip(image, window, strides, pads[:rank], pads[rank:], strict=True)
    result = (batch, channels, *((size - 1) * s + k - a - b for size, k, s, a, b in sides))
    if call.has(2) and tuple(required_constant(call, 2, "output_shape")) != result:
        # ONNX counts the places in an image of the smaller size, and ONNX Runtime in the larger one.
        raise refuse(call, f"output_shape: only {list(result)} is supported, which its other attributes imply")
    count = int(np.prod(result))
    flat = [int(np.prod(shape_of(data))), 1]
    places = emit(relax.op.reshape(cast(call, call.input(1), "int64"), flat))
    values = emit(relax.op.reshape(data, flat[:1]))
    zeros = const(np.zeros(count), dtype_of(data))
    return emit(relax.op.reshape(emit(relax.op.scatter_nd(zeros, places, values, "update")), list(result)))


def _tensor_scatter(call: Call) -> relax.Expr:
    """Returns a cache with an update written at an index of its own for each batch."""
    cache, update, emit = call.input(0), call.input(1), call.builder.emit
    shape, written = shape_of(cache), shape_of(update)
    axis = axis_of(call, len(shape), -2)
    mode = str(call.attributes.get("mode", "linear"))
    if mode not in ("linear", "circular") or axis == 0:
        raise refuse(call, f"found mode {mode!r} and axis {axis}; allowed: linear, circular; not the first axis")
    steps = np.arange(written[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    places: relax.Expr = const(np.broadcast_to(steps, written), "int64")
    if call.has(2):
        start = emit(relax.op.reshape(cast(call, call.input(2), "int64"), [shape[0], *[1] * (len(shape) - 1)]))
        places = emit(relax.op.add(places, start))
    if mode == "circular":
        places = emit(relax.op.floor_mod(places, const(shape[axis], "int64")))
    return _scattered(call, cache, places, update, axis, "update")


def _one_hot(call: Call) -> relax.Expr:
    emit = call.builder.emit
    depth = int(required_constant(call, 1, "depth").item())
    indices = _positive(call, call.input(0), depth)
    rank = len(shape_of(indices)) + 1
    axis = axis_of(call, rank, -1)
    places = np.arange(depth).reshape([-1 if i == axis else 1 for i in range(rank)])
    is_hot = emit(relax.op.equal(emit(relax.op.expand_dims(indices, axis)), const(places, "int64")))
    off, on = (emit(relax.op.reshape(taken_along(call, call.input(2), np.array([i]), 0), [])) for i in (0, 1))
    return emit(relax.op.where(is_hot, on, off))


def _reverse_sequence(call: Call) -> relax.Expr:
    data, lengths = call.input(0), call.input(1)
    shape = shape_of(data)
    time, batch = int(call.attributes.get("time_axis", 0)), int(call.attributes.get("batch_axis", 1))
    if {time, batch} != {0, 1}:
        raise refuse(call, f"found time_axis {time} and batch_axis {batch}; one must be 0 and the other 1")

    def compute(data: te.Tensor, lengths: te.Tensor) -> te.Tensor:
        def one(*at: Any) -> Any:
            length = lengths[at[batch]].astype("int32")
            place = tirx.Select(at[time] < length, length - 1 - at[time], at[time])
            return data(*replaced(at, time, place))

        return te.compute(shape, one, "reversed")

    return kernel(call, compute, data, cast(call, lengths, "int64"))


def _pad(call: Call) -> relax.Expr:
    """Leaves to TVM what adds elements, and removes those of negative pads first, as ONNX Runtime does."""
    shape = call.shape(0)
    if call.opset < 11:
        return by_tvm(call)
    before, after = _pads(call, len(shape))
    mode = str(call.attributes.get("mode", "constant"))
    is_computed = call.has(2) and call.constant(2) is None
    if mode == "constant" and (is_computed or min((*before, *after), default=0) < 0):
        return _padded_with(call, before, after)
    data, axes = call.input(0), list(range(len(shape)))
    if min((*before, *after), default=0) < 0:
        starts, ends = [max(-b, 0) for b in before], [size + min(a, 0) for size, a in zip(shape, after, strict=True)]
        if any(start >= end for start, end in zip(starts, ends, strict=True)):
            raise refuse(call, f"found pads {[*before, *after]} for shape {list(shape)}; nothing would be left")
        data = call.builder.emit(relax.op.strided_slice(data, axes, starts, ends))
    pads = const([max(pad, 0) for pad in (*before, *after)], "int64")
    return by_tvm(replace(call, inputs=(data, pads, *call.inputs[2:3])))


def _pads(call: Call, rank: int) -> tuple[list[int], list[int]]:
    """Returns how many elements are added before and after those of each axis."""
    given, axes = required_constant(call, 1, "pads"), list(range(rank))
    if call.has(3):
        axes = [normal_axis(call, int(axis), rank) for axis in required_constant(call, 3, "axes")]
    before, after = [0] * rank, [0] * rank
    for position, axis in enumerate(axes):
        before[axis], after[axis] = int(given[position]), int(given[position + len(axes)])
    return before, after


def _padded_with(call: Call, before: Sequence[int], after: Sequence[int]) -> relax.Expr:
    """Returns the data with elements of a value, which may be computed, added or removed at the sides."""
    shape = call.shape(0)
    fill = call.input(2) if call.has(2) else const(0, dtype_of(call.input(0)))
    fill = call.builder.emit(relax.op.reshape(fill, []))
    extents = [b + size + a for b, size, a in zip(before, shape, after, strict=True)]
    if min(extents, default=1) < 1:
        raise refuse(call, f"found pads {[*before, *after]} for shape {list(shape)}; nothing would be left")

    def compute(data: te.Tensor, fill: te.Tensor) -> te.Tensor:
        def one(*at: Any) -> Any:
            places = [index - b for index, b in zip(at, before, strict=True)]
            inside = [tirx.all(place >= 0, place < size) for place, size in zip(places, shape, strict=True)]
            return tirx.if_then_else(tirx.all(*inside), data(*places), fill())

        return te.compute(extents, one, "padded")

    return kernel(call, compute, call.input(0), fill)


def _space_to_depth(call: Call) -> relax.Expr:
    mode = str(call.attributes.get("mode", "DCR"))
    if mode == "DCR":
        return by_tvm(call)
    if mode != "CRD":
        raise refuse(call, f"mode: found {mode!r}; allowed: DCR, CRD")
    batch, channels, height, width = call.shape(0)
    size, emit = int(call.attributes["blocksize"]), call.builder.emit
    split = [batch, channels, height // size, size, width // size, size]
    moved = emit(relax.op.permute_dims(emit(relax.op.reshape(call.input(0), split)), [0, 1, 3, 5, 2, 4]))
    return emit(relax.op.reshape(moved, [batch, channels * size * size, height // size, width // size]))


def _top_k(call: Call) -> relax.Expr | list[relax.Expr]:
    """Leaves signed numbers to TVM, and lets it sort unsigned ones as signed numbers in the same order."""
    # The order is undefined if it need not be sorted.
    given = {name: value for name, value in call.attributes.items() if name != "sorted"}
    dtype = dtype_of(call.input(0))
    if not dtype.startswith("u"):
        return by_tvm(replace(call, attributes=given))
    data = _flipped(call, call.input(0), "int64") if dtype == "uint64" else cast(call, call.input(0), "int64")
    both = call.builder.emit(by_tvm(replace(call, inputs=(data, *call.inputs[1:]), attributes=given)))
    values, places = (call.builder.emit(relax.TupleGetItem(both, index)) for index in range(2))
    return [_flipped(call, values, dtype) if dtype == "uint64" else cast(call, values, dtype), places]


def _flipped(call: Call, data: relax.Expr, dtype: str) -> relax.Expr:
    """Returns the bits of numbers as another type, the first bit flipped, which keeps the order."""
    own = dtype_of(data)

    def compute(data: te.Tensor) -> te.Tensor:
        def one(*at: Any) -> Any:
            bits = tirx.reinterpret("uint64", data(*at)) if own != "uint64" else data(*at)
            found = bits ^ (tirx.const(1, "uint64") << tirx.const(63, "uint64"))
            return tirx.reinterpret(dtype, found) if dtype != "uint64" else found

        return te.compute(data.shape, one, "flipped")

    return kernel(call, compute, data)


def _compress(call: Call) -> relax.Expr:
    """Returns the elements that a constant condition selects."""
    data, emit = call.input(0), call.builder.emit
    places = np.flatnonzero(required_constant(call, 1, "condition"))
    if not places.size:
        raise refuse(call, "its condition selects nothing; each extent must be at least 1")
    if "axis" not in call.attributes:
        data = emit(relax.op.reshape(data, [int(np.prod(call.shape(0)))]))
        return taken_along(call, data, places, 0)
    return taken_along(call, data, places, axis_of(call, len(call.shape(0)), 0))


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
"""Converters by the operator's type."""
