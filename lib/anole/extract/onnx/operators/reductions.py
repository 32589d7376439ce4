"""Operators along axes: reductions of booleans, norms, running products, determinants, counts of n-grams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
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
    required_constant,
    shape_of,
)

_LARGEST_DETERMINANT = 4


def _extreme(largest: bool) -> Converter:
    """Returns the converter of a maximum or minimum; TVM takes the lowest finite number for that of -inf alone."""

    def convert(call: Call) -> relax.Expr:
        dtype = dtype_of(call.input(0))
        if dtype == "bool":
            # Booleans are compared as numbers.
            numbers = cast(call, call.input(0), "uint8")
            return cast(call, by_tvm(replace(call, inputs=(numbers, *call.inputs[1:]))), "bool")
        rank, axes = len(call.shape(0)), _axes(call)
        # A maximum over channels or places of an image stays an operator, whose layout can be changed.
        if not dtype.startswith("float") or not axes or (rank == 4 and axes != [3]):
            return by_tvm(call)
        return _infinite_extreme(call, axes, largest)

    return convert


def _axes(call: Call) -> list[int]:
    """Returns the axes of a reduction; none if it takes everything, or nothing."""
    given = call.attributes.get("axes", ())
    if call.has(1):
        given = required_constant(call, 1, "axes").tolist()
    return sorted(normal_axis(call, int(axis), len(call.shape(0))) for axis in given)


def _infinite_extreme(call: Call, axes: list[int], largest: bool) -> relax.Expr:
    shape, keeps = call.shape(0), bool(call.attributes.get("keepdims", 1))
    combine = tirx.max if largest else tirx.min
    nothing = float("-inf") if largest else float("inf")
    reducer = te.comm_reducer(lambda a, b: combine(a, b), lambda dtype: tirx.const(nothing, dtype), "extreme")
    kept = [1 if axis in axes else extent for axis, extent in enumerate(shape)]

    def compute(data: te.Tensor) -> te.Tensor:
        taps = {axis: te.reduce_axis((0, shape[axis]), f"r{axis}") for axis in axes}

        def one(*at: Any) -> Any:
            return reducer(data(*(taps.get(axis, index) for axis, index in enumerate(at))), list(taps.values()))

        return te.compute(kept, one, "extreme")

    found = kernel(call, compute, call.input(0))
    if keeps:
        return found
    rest = [extent for axis, extent in enumerate(shape) if axis not in axes]
    return call.builder.emit(relax.op.reshape(found, rest))


def _lp_normalization(call: Call) -> relax.Expr:
    """Returns vectors of norm 1; a vector of zeros stays."""
    data, emit = call.input(0), call.builder.emit
    axis, p = axis_of(call, len(call.shape(0)), -1), int(call.attributes.get("p", 2))
    if p not in (1, 2):
        raise refuse(call, f"p: found {p}; allowed: 1, 2")
    if p == 1:
        norm = emit(relax.op.sum(emit(relax.op.abs(data)), axis, keepdims=True))
    else:
        norm = emit(relax.op.sqrt(emit(relax.op.sum(emit(relax.op.multiply(data, data)), axis, keepdims=True))))
    zero, one = const(0, dtype_of(data)), const(1, dtype_of(data))
    divisor = emit(relax.op.where(emit(relax.op.equal(norm, zero)), one, norm))
    return emit(relax.op.divide(data, divisor))


def _layer_normalization(call: Call) -> relax.Expr | list[relax.Expr]:
    """Leaves to TVM what does not ask for the mean and the inverse deviation."""
    if call.n_outputs == 1:
        return by_tvm(call)
    data, emit = call.input(0), call.builder.emit
    rank, dtype = len(call.shape(0)), dtype_of(data)
    axes = list(range(axis_of(call, rank, -1), rank))
    wide = cast(call, data, "float64" if dtype == "float64" else "float32")
    mean = emit(relax.op.mean(wide, axes, keepdims=True))
    centred = emit(relax.op.subtract(wide, mean))
    variance = emit(relax.op.mean(emit(relax.op.multiply(centred, centred)), axes, keepdims=True))
    shifted = emit(relax.op.add(variance, const(call.attributes.get("epsilon", 1e-5), dtype_of(wide))))
    inverse = emit(relax.op.divide(const(1, dtype_of(wide)), emit(relax.op.sqrt(shifted))))
    result = cast(call, emit(relax.op.multiply(centred, inverse)), dtype)
    result = emit(relax.op.multiply(result, call.input(1)))
    if call.has(2):
        result = emit(relax.op.add(result, call.input(2)))
    return [result, mean, inverse]


def _rms_normalization(call: Call) -> relax.Expr:
    """Leaves the last axis to TVM, which mistakes the shapes of several."""
    data, emit = call.input(0), call.builder.emit
    rank, dtype = len(call.shape(0)), dtype_of(data)
    axis = axis_of(call, rank, -1)
    if axis == rank - 1 and dtype == "float32":
        return by_tvm(call)
    wide = cast(call, data, "float64" if dtype == "float64" else "float32")
    axes = list(range(axis, rank))
    mean = emit(relax.op.mean(emit(relax.op.multiply(wide, wide)), axes, keepdims=True))
    shifted = emit(relax.op.add(mean, const(call.attributes.get("epsilon", 1e-5), dtype_of(wide))))
    result = cast(call, emit(relax.op.divide(wide, emit(relax.op.sqrt(shifted)))), dtype)
    return emit(relax.op.multiply(result, call.input(1)))


def _running(operator: Callable[..., relax.Expr]) -> Converter:
    """Returns the converter of running sums or products."""

    def convert(call: Call) -> relax.Expr:
        data, emit = call.input(0), call.builder.emit
        axis = normal_axis(call, int(required_constant(call, 1, "axis").item()), len(call.shape(0)))
        is_reversed, is_exclusive = (bool(call.attributes.get(name, 0)) for name in ("reverse", "exclusive"))
        if is_reversed:
            data = emit(relax.op.flip(data, axis))
        found = emit(operator(data, axis, dtype_of(data), is_exclusive))
        return emit(relax.op.flip(found, axis)) if is_reversed else found

    return convert


def _determinant(call: Call) -> relax.Expr:
    *batch, rows, columns = call.shape(0)
    if rows != columns or rows > _LARGEST_DETERMINANT:
        raise refuse(call, f"found {rows} x {columns}; at most {_LARGEST_DETERMINANT} x {_LARGEST_DETERMINANT}")

    def compute(data: te.Tensor) -> te.Tensor:
        def minor(at: tuple[Any, ...], row: int, kept: tuple[int, ...]) -> Any:
            if len(kept) == 1:
                return data(*at, row, kept[0])
            total: Any = tirx.const(0, data.dtype)
            for position, column in enumerate(kept):
                term = data(*at, row, column) * minor(at, row + 1, kept[:position] + kept[position + 1 :])
                total = total - term if position % 2 else total + term
            return total

        return te.compute(batch, lambda *at: minor(at, 0, tuple(range(columns))), "determinant")

    return kernel(call, compute, call.input(0))


def _count_ngrams(call: Call) -> relax.Expr:
    """Returns how often each n-gram of a list occurs in sequences of integers, weighted."""
    if "pool_int64s" not in call.attributes:
        raise refuse(call, "only n-grams of integers are supported")
    data, emit = cast(call, call.input(0), "int64"), call.builder.emit
    shape = shape_of(data)
    if len(shape) == 1:
        data = emit(relax.op.expand_dims(data, 0))
    lengths = range(int(call.attributes["min_gram_length"]), int(call.attributes["max_gram_length"]) + 1)
    pool = np.asarray(call.attributes["pool_int64s"], np.int64)
    starts = [*map(int, call.attributes["ngram_counts"]), len(pool)]
    columns = np.asarray(call.attributes["ngram_indexes"], np.int64)
    counts: list[relax.Expr] = []
    owners: list[int] = []
    position = 0
    for length, (start, end) in enumerate(pairwise(starts), start=1):
        grams = pool[start:end].reshape(-1, length)
        if length in lengths and len(grams):
            counts.append(_occurrences(call, data, grams, shape[-1]))
            owners.extend(columns[position : position + len(grams)])
        position += len(grams)
    if not counts:
        raise refuse(call, "it counts no n-gram")
    found = counts[0] if len(counts) == 1 else emit(relax.op.concat(counts, 1))
    # Each n-gram has a column; columns without one are 0.
    width = int(columns.max()) + 1
    chosen = np.zeros((len(owners), width))
    chosen[np.arange(len(owners)), owners] = 1
    result = emit(relax.op.matmul(found, const(chosen, "float32")))
    result = _weighted(call, result, columns, width)
    return emit(relax.op.reshape(result, [*shape[:-1], width]))


def _occurrences(call: Call, data: relax.Expr, grams: Any, size: int) -> relax.Expr:
    """Returns how often each n-gram occurs in each row, with up to ``max_skip_count`` elements between its own."""
    count, length = grams.shape
    skips = 1 if length == 1 else int(call.attributes["max_skip_count"]) + 1

    def compute(data: te.Tensor, grams: te.Tensor) -> te.Tensor:
        start, skip = te.reduce_axis((0, size), "start"), te.reduce_axis((0, skips), "skip")

        def one(row: Any, gram: Any) -> Any:
            places = [start + index * (skip + 1) for index in range(length)]
            same = [data(row, place) == grams(gram, index) for index, place in enumerate(places)]
            is_found = tirx.if_then_else(places[-1] < size, tirx.all(*same), tirx.const(False, "bool"))
            return te.sum(is_found.astype("float32"), [start, skip])

        return te.compute((data.shape[0], count), one, "occurrences")

    return kernel(call, compute, data, const(grams, "int64"))


def _weighted(call: Call, counts: relax.Expr, columns: Any, width: int) -> relax.Expr:
    mode, emit = str(call.attributes["mode"]), call.builder.emit
    if mode not in ("TF", "IDF", "TFIDF"):
        raise refuse(call, f"mode: found {mode!r}; allowed: TF, IDF, TFIDF")
    if mode != "TF" and "weights" in call.attributes:
        weights = np.ones(width)
        weights[columns] = np.asarray(call.attributes["weights"])
    else:
        weights = np.ones(width)
    if mode == "IDF":
        counts = cast(call, emit(relax.op.greater(counts, const(0, "float32"))), "float32")
    return counts if mode == "TF" else emit(relax.op.multiply(counts, const(weights, "float32")))


CONVERTERS: dict[str, Converter] = {
    "CumProd": _running(relax.op.cumprod),
    "Det": _determinant,
    "LayerNormalization": _layer_normalization,
    "LpNormalization": _lp_normalization,
    "RMSNormalization": _rms_normalization,
    "ReduceMax": _extreme(largest=True),
    "ReduceMin": _extreme(largest=False),
    "TfIdfVectorizer": _count_ngrams,
}
"""Converters by the operator's type."""
