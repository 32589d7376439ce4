"""Converters for reductions: minimum and maximum, normalization, cumulative products, determinants, n-gram counts."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from anole.extract.onnx.operators.call import Call, Converter, const, dtype_of, shape_of

_MAX_DETERMINANT_ROWS = 4


def _min_or_max(call: Call, largest: bool) -> relax.Expr:
    """Convert a maximum or minimum; TVM returns a finite value if all elements are infinite."""
    dtype = dtype_of(call.input(0))
    if dtype == "bool":
        # Compare booleans as integers.
        integers = call.cast(call.input(0), "uint8")
        return call.cast(call.by_tvm(inputs=(integers, *call.inputs[1:])), "bool")
    rank, axes = len(call.shape(0)), _axes(call)
    # A maximum over the channels or pixels of an image stays an operator, to allow layout changes.
    if not dtype.startswith("float") or not axes or (rank == 4 and axes != [3]):
        return call.by_tvm()
    return _reduce_exactly(call, axes, largest)


def _axes(call: Call) -> list[int]:
    """Return the axes of a reduction; empty if it reduces all axes, or none."""
    axes = call.attributes.get("axes", ())
    if call.has(1):
        axes = call.require_constant(1, "axes").tolist()
    return sorted(call.normal_axis(int(axis), len(call.shape(0))) for axis in axes)


def _reduce_exactly(call: Call, axes: list[int], largest: bool) -> relax.Expr:
    shape, keepdims = call.shape(0), call.flag("keepdims", True)
    combine = tirx.max if largest else tirx.min
    neutral = float("-inf") if largest else float("inf")
    reducer = te.comm_reducer(lambda a, b: combine(a, b), lambda dtype: tirx.const(neutral, dtype), "extreme")
    kept_shape = [1 if axis in axes else extent for axis, extent in enumerate(shape)]
    result_shape = kept_shape if keepdims else [extent for axis, extent in enumerate(shape) if axis not in axes]
    if 0 in shape:
        # A kernel with an empty reduction would write nothing.
        return const(np.full(result_shape, neutral), dtype_of(call.input(0)))

    def compute(data: te.Tensor) -> te.Tensor:
        taps = {axis: te.reduce_axis((0, shape[axis]), f"r{axis}") for axis in axes}

        def element(*i: Any) -> Any:
            return reducer(data(*(taps.get(axis, index) for axis, index in enumerate(i))), list(taps.values()))

        return te.compute(kept_shape, element, "extreme")

    result = call.kernel(compute, call.input(0))
    return result if keepdims else call.emit(relax.op.reshape(result, result_shape))


def _lp_normalization(call: Call) -> relax.Expr:
    """Scale vectors to norm 1; zero vectors stay zero."""
    data, axis, p = call.input(0), call.axis(len(call.shape(0)), -1), call.integer("p", 2)
    if p not in (1, 2):
        raise call.refuse(f"p: found {p}; allowed: 1, 2")
    powers = relax.op.abs(data) if p == 1 else relax.op.multiply(data, data)
    total = relax.op.sum(powers, axis, keepdims=True)
    norm = call.emit(total if p == 1 else relax.op.sqrt(total))
    zero, one = const(0, dtype_of(data)), const(1, dtype_of(data))
    return call.emit(relax.op.divide(data, relax.op.where(relax.op.equal(norm, zero), one, norm)))


def _layer_normalization(call: Call) -> relax.Expr | list[relax.Expr]:
    """Use TVM's converter, unless the mean and inverse standard deviation are outputs, too."""
    if call.n_outputs == 1:
        return call.by_tvm()
    emit, rank, dtype = call.emit, len(call.shape(0)), dtype_of(call.input(0))
    axes, data = list(range(call.axis(rank, -1), rank)), call.widen(call.input(0))
    mean = emit(relax.op.mean(data, axes, keepdims=True))
    centered = emit(relax.op.subtract(data, mean))
    inverse = emit(relax.op.divide(const(1, dtype_of(data)), _deviation(call, centered, axes)))
    result = call.cast(emit(relax.op.multiply(centered, inverse)), dtype)
    result = emit(relax.op.multiply(result, call.input(1)))
    return [emit(relax.op.add(result, call.input(2))) if call.has(2) else result, mean, inverse]


def _deviation(call: Call, data: relax.Expr, axes: list[int]) -> relax.Expr:
    """Compute the square root of the mean square plus ``epsilon``."""
    mean = relax.op.mean(relax.op.multiply(data, data), axes, keepdims=True)
    return relax.op.sqrt(relax.op.add(mean, const(call.attributes.get("epsilon", 1e-5), dtype_of(data))))


def _mean_variance_normalization(call: Call) -> relax.Expr:
    """Compute the variance from centered data; ONNX's difference of mean squares suffers from cancellation."""
    axes, dtype = list(map(int, call.attributes.get("axes", (0, 2, 3)))), dtype_of(call.input(0))
    data = call.widen(call.input(0))
    centered = call.emit(relax.op.subtract(data, relax.op.mean(data, axes, keepdims=True)))
    variance = relax.op.mean(relax.op.multiply(centered, centered), axes, keepdims=True)
    deviation = relax.op.add(relax.op.sqrt(variance), const(1e-9, dtype_of(data)))
    return call.cast(call.emit(relax.op.divide(centered, deviation)), dtype)


def _rms_normalization(call: Call) -> relax.Expr:
    """Use TVM's converter over the last axis only, since it gets the shapes of several axes wrong."""
    rank, dtype = len(call.shape(0)), dtype_of(call.input(0))
    axis = call.axis(rank, -1)
    if axis == rank - 1 and dtype == "float32":
        return call.by_tvm()
    data = call.widen(call.input(0))
    scaled = call.emit(relax.op.divide(data, _deviation(call, data, list(range(axis, rank)))))
    return call.emit(relax.op.multiply(call.cast(scaled, dtype), call.input(1)))


def _cumulative_product(call: Call) -> relax.Expr:
    data, is_reversed = call.input(0), call.flag("reverse")
    axis = call.normal_axis(int(call.require_constant(1, "axis").item()), len(call.shape(0)))
    operand = relax.op.flip(data, axis) if is_reversed else data
    result = relax.op.cumprod(operand, axis, dtype_of(data), call.flag("exclusive"))
    return call.emit(relax.op.flip(result, axis) if is_reversed else result)


def _determinant(call: Call) -> relax.Expr:
    *batch, rows, columns = call.shape(0)
    if rows != columns or rows > _MAX_DETERMINANT_ROWS:
        raise call.refuse(f"found {rows} x {columns}; expected square matrices of at most {_MAX_DETERMINANT_ROWS} rows")

    def compute(data: te.Tensor) -> te.Tensor:
        def minor(i: tuple[Any, ...], row: int, remaining: tuple[int, ...]) -> Any:
            if len(remaining) == 1:
                return data(*i, row, remaining[0])
            total: Any = tirx.const(0, data.dtype)
            for position, column in enumerate(remaining):
                term = data(*i, row, column) * minor(i, row + 1, remaining[:position] + remaining[position + 1 :])
                total = total - term if position % 2 else total + term
            return total

        return te.compute(batch, lambda *i: minor(i, 0, tuple(range(columns))), "determinant")

    return call.kernel(compute, call.input(0))


def _count_ngrams(call: Call) -> relax.Expr:
    """Count each n-gram of a list in sequences of integers, and weight the counts."""
    if "pool_int64s" not in call.attributes:
        raise call.refuse("only n-grams of integers are supported")
    data = call.cast(call.input(0), "int64")
    shape = shape_of(data)
    if len(shape) == 1:
        data = call.emit(relax.op.expand_dims(data, 0))
    lengths = range(int(call.attributes["min_gram_length"]), int(call.attributes["max_gram_length"]) + 1)
    pool = np.asarray(call.attributes["pool_int64s"], np.int64)
    starts = [*map(int, call.attributes["ngram_counts"]), len(pool)]
    columns = np.asarray(call.attributes["ngram_indexes"], np.int64)
    counts: list[relax.Expr] = []
    output_columns: list[int] = []
    position = 0
    for length, (start, end) in enumerate(pairwise(starts), start=1):
        grams = pool[start:end].reshape(-1, length)
        if length in lengths and len(grams):
            counts.append(_occurrences(call, data, grams, shape[-1]))
            output_columns.extend(columns[position : position + len(grams)])
        position += len(grams)
    if not counts:
        raise call.refuse("its attributes select no n-gram to count")
    occurrences = counts[0] if len(counts) == 1 else relax.op.concat(counts, 1)
    # Each n-gram has an output column; other columns are 0.
    width = int(columns.max()) + 1
    selection = np.zeros((len(output_columns), width))
    selection[np.arange(len(output_columns)), output_columns] = 1
    result = _apply_weights(call, relax.op.matmul(occurrences, const(selection, "float32")), columns, width)
    return call.emit(relax.op.reshape(result, [*shape[:-1], width]))


def _occurrences(call: Call, data: relax.Expr, grams: Any, size: int) -> relax.Expr:
    """Count each n-gram in each row, with up to ``max_skip_count`` skipped elements between its elements."""
    count, length = grams.shape
    skips = 1 if length == 1 else int(call.attributes["max_skip_count"]) + 1

    def compute(data: te.Tensor, grams: te.Tensor) -> te.Tensor:
        start, skip = te.reduce_axis((0, size), "start"), te.reduce_axis((0, skips), "skip")

        def element(row: Any, gram: Any) -> Any:
            columns = [start + index * (skip + 1) for index in range(length)]
            matches = [data(row, column) == grams(gram, index) for index, column in enumerate(columns)]
            is_match = tirx.if_then_else(columns[-1] < size, tirx.all(*matches), tirx.const(False, "bool"))
            return te.sum(is_match.astype("float32"), [start, skip])

        return te.compute((data.shape[0], count), element, "occurrences")

    return call.kernel(compute, data, const(grams, "int64"))


def _apply_weights(call: Call, counts: relax.Expr, columns: Any, width: int) -> relax.Expr:
    mode = call.choice("mode", ("TF", "IDF", "TFIDF"), "")
    if mode == "TF":
        return counts
    weights = np.ones(width)
    if "weights" in call.attributes:
        weights[columns] = np.asarray(call.attributes["weights"])
    if mode == "IDF":
        counts = relax.op.astype(relax.op.greater(counts, const(0, "float32")), "float32")
    return relax.op.multiply(counts, const(weights, "float32"))


CONVERTERS: dict[str, Converter] = {
    "CumProd": _cumulative_product,
    "Det": _determinant,
    "LayerNormalization": _layer_normalization,
    "MeanVarianceNormalization": _mean_variance_normalization,
    "LpNormalization": _lp_normalization,
    "RMSNormalization": _rms_normalization,
    "ReduceMax": partial(_min_or_max, largest=True),
    "ReduceMin": partial(_min_or_max, largest=False),
    "TfIdfVectorizer": _count_ngrams,
}
"""Converters by operator type."""
