"""Reference results of every operator, in NumPy, with the canonical epilogue."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from anole.targets.shared.weight_only import StoredWeights, rows_per_block
from anole.task import (
    Attention,
    BatchMatmul,
    Conv2d,
    WeightScheme,
    Workload,
    accumulator_dtype,
    weight_dtype,
    weight_scheme,
)

AnyArray = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Example:
    """Inputs of a workload and the expected result.

    Attributes:
        data: NHWC for conv2d, (rows, in) for dense, the left operand for batch_matmul, the queries for attention.
        weight: HWIO for conv2d, (in, out) for dense, maybe in packed 32-bit words; the right operand or the keys, which
            are not constants, for batch_matmul and attention.
        more: the bias (out,) of a constant weight's epilogue; the values and addends of attention; else nothing.
        expected: the anchor's result in float64; with a constant weight, relu(result + bias).
    """

    data: AnyArray
    weight: AnyArray
    more: tuple[AnyArray, ...]
    expected: NDArray[np.float64]

    @classmethod
    def draw(cls, workload: Workload) -> Self:
        """Return random inputs (standard normal, or uniform integers) from a fixed seed, and their result."""
        rng = np.random.default_rng(0)
        data = _random_array(rng, workload.dtype, data_shape(workload))
        if (scheme := weight_scheme(workload)) is not None:
            weight, values = _random_packed_weights(rng, scheme, data.shape[-1], out_shape(workload)[-1])
        else:
            weight = values = _random_array(rng, weight_dtype(workload.dtype), weight_shape(workload))
        more = tuple(_random_array(rng, workload.dtype, shape) for shape in further_shapes(workload))
        product = anchor(workload, data.astype(np.float64), values.astype(np.float64), *more)
        if not workload.constant_weight:
            return cls(data, weight, more, product)
        bias = _random_array(rng, accumulator_dtype(workload.dtype), weight.shape[-1:])
        return cls(data, weight, (bias,), np.maximum(product + bias, 0))

    def arguments(self, packed: AnyArray) -> tuple[AnyArray, ...]:
        """Return a kernel's inputs in the order of its parameters."""
        return (self.data, packed, *self.more)

    def unwritten(self) -> AnyArray:
        """Return an output array filled with NaN or -1, which never occur in a result."""
        dtype = accumulator_dtype(self.data.dtype.name)
        return np.full(self.expected.shape, -1 if dtype == "int32" else np.nan, dtype)

    def relative_error(self, result: AnyArray) -> float:
        """Return the L2 distance of a result from the expected result, relative to the norm of the expected result."""
        return float(np.linalg.norm((result - self.expected).ravel()) / self._norm)

    @cached_property
    def _norm(self) -> float:
        return float(np.linalg.norm(self.expected.ravel())) + 1e-30


def _random_array(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> AnyArray:
    """Return random numbers of a type; integer sums stay far from the limits of int32."""
    if "int" in dtype:
        info = np.iinfo(dtype if dtype != "int32" else "int16")
        return rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)
    return rng.standard_normal(shape, dtype=np.float32).astype(getattr(ml_dtypes, dtype, dtype))


def _random_packed_weights(
    rng: np.random.Generator, scheme: WeightScheme, inputs: int, outputs: int
) -> tuple[AnyArray, AnyArray]:
    """Return random weights of a scheme, as packed 32-bit words and as values."""
    limits = (0, 1 << scheme.bits)
    scales = rng.standard_normal((inputs // scheme.block, outputs), dtype=np.float32)
    zero_points = rng.integers(*limits, scales.shape) if scheme.zeros else np.full(scales.shape, limits[1] // 2)
    centered = rng.integers(*limits, (inputs, outputs)) - np.repeat(zero_points, scheme.block, 0)
    stored = StoredWeights(centered.astype(np.int16), scales)
    return stored.words(scheme), stored.values()


def data_shape(workload: Workload) -> tuple[int, ...]:
    """Return the shape of the data that a workload reads."""
    if isinstance(workload, Conv2d):
        return (workload.batch, workload.height, workload.width, workload.in_channels)
    if isinstance(workload, (BatchMatmul, Attention)):
        return (workload.batch, workload.rows, workload.inner)
    return (workload.batch, workload.in_features)


def weight_shape(workload: Workload) -> tuple[int, ...]:
    """Return the shape of the weight, or the right operand, that a workload reads, before packing."""
    if isinstance(workload, Conv2d):
        return (*workload.kernel, workload.in_channels // workload.groups, workload.out_channels)
    if isinstance(workload, BatchMatmul):
        sides = (workload.inner, workload.columns)
        return (workload.batch, *(sides[::-1] if workload.transpose_right else sides))
    if isinstance(workload, Attention):
        return (workload.batch, workload.keys, workload.inner)
    if (scheme := workload.weights) is not None:
        return (workload.in_features // scheme.block * rows_per_block(scheme), workload.out_features)
    return (workload.in_features, workload.out_features)


def further_shapes(workload: Workload) -> list[tuple[int, ...]]:
    """Return the shapes of the anchor's operands after the first two: the values and addends of attention."""
    if not isinstance(workload, Attention):
        return []
    scores = (workload.batch, workload.rows, workload.keys)
    return [(workload.batch, workload.keys, workload.columns), *[scores] * workload.addends]


def out_shape(workload: Workload) -> tuple[int, ...]:
    """Return the shape of a workload's result."""
    if isinstance(workload, Conv2d):
        return (workload.batch, workload.out_height, workload.out_width, workload.out_channels)
    if isinstance(workload, (BatchMatmul, Attention)):
        return (workload.batch, workload.rows, workload.columns)
    return (workload.batch, workload.out_features)


def anchor(workload: Workload, data: AnyArray, weight: AnyArray, *more: AnyArray) -> AnyArray:
    """Return the anchor operator's result, without an epilogue, in the precision of data and weight."""
    if isinstance(workload, Conv2d):
        return _conv2d(workload, data, weight)
    if isinstance(workload, Attention):
        values, *addends = more
        scores = sum(addends, data @ weight.swapaxes(1, 2))
        exponentials = np.exp(scores - scores.max(-1, keepdims=True))
        return np.asarray(exponentials @ values / exponentials.sum(-1, keepdims=True))
    if isinstance(workload, BatchMatmul) and workload.transpose_right:
        return np.asarray(data @ weight.swapaxes(1, 2))
    return np.asarray(data @ weight)


def _conv2d(w: Conv2d, data: AnyArray, weight: AnyArray) -> AnyArray:
    top, left, bottom, right = w.padding
    padded = np.pad(data, ((0, 0), (top, bottom), (left, right), (0, 0)))
    window = [(k - 1) * d + 1 for k, d in zip(w.kernel, w.dilation, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(padded, window, axis=(1, 2))
    windows = windows[:, :: w.strides[0], :: w.strides[1], :, :: w.dilation[0], :: w.dilation[1]]
    groups = [
        np.tensordot(inputs, filters, axes=((3, 4, 5), (2, 0, 1)))
        for inputs, filters in zip(np.split(windows, w.groups, axis=3), np.split(weight, w.groups, axis=3), strict=True)
    ]
    return np.concatenate(groups, axis=-1)
