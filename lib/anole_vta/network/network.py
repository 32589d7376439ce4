"""Quantized networks: integer layers, host functions between them, and the integer reference in NumPy.

Values are int8 with a power-of-two scale on the accelerator, and float32 on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from anole.record import Config
from anole.task import Conv2d

MAX_VALUE = 127
"""The largest quantized value; the range is symmetric."""


class Quantized(NamedTuple):
    """Integers with a scale: the value is `numbers` * 2 ** `exponent`."""

    numbers: NDArray[np.int8]
    exponent: int


Value = Quantized | NDArray[Any]


@dataclass(frozen=True)
class AcceleratorLayer:
    """A convolution or matrix product on the accelerator, together with its epilogue.

    The sum of products, bias and residual is shifted right, rounded to nearest (the bias includes the half), and
    clipped.

    Attributes:
        workload: the layer as a convolution, to which data and result are reshaped.
        data, result, residual: names of values; a residual has the result's shape and is added before the shift.
        weight: int8, HWIO.
        bias: int32, shape (out channels,), in units of the accumulator.
    """

    name: str
    workload: Conv2d
    config: Config = field(hash=False)
    data: str
    result: str
    residual: str | None
    data_exponent: int
    weight_exponent: int
    residual_exponent: int
    result_exponent: int
    low: int
    high: int
    result_shape: tuple[int, ...]
    weight: NDArray[np.int8] = field(hash=False, compare=False, repr=False)
    bias: NDArray[np.int32] = field(hash=False, compare=False, repr=False)

    @property
    def sum_exponent(self) -> int:
        """The scale of the sum of products."""
        return self.data_exponent + self.weight_exponent

    @property
    def shift(self) -> int:
        """The right shift of the sum; a negative value shifts left."""
        return self.result_exponent - self.sum_exponent


@dataclass(frozen=True)
class Pool:
    """A maximum pool on the accelerator.

    Attributes:
        padding: top, left, bottom, right.
        exponent: the scale of data and result; 0 in floating point.
    """

    name: str
    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    data: str
    result: str
    exponent: int


@dataclass(frozen=True)
class HostCall:
    """A call of a host function on named float32 values."""

    function: str
    arguments: tuple[str, ...]
    results: tuple[str, ...]


NetworkStep = AcceleratorLayer | Pool | HostCall

_MAX_RESIDUAL = 1 << 29
"""Bound on residuals that, like the bound on biases, keeps accumulators within 32 bits."""


@dataclass(frozen=True)
class QuantizedNetwork:
    """The steps of a network, in order; inputs and outputs are names of values."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    steps: tuple[NetworkStep, ...]

    @property
    def accelerated(self) -> tuple[AcceleratorLayer | Pool, ...]:
        """The steps that the accelerator runs."""
        return tuple(step for step in self.steps if not isinstance(step, HostCall))


Host = Callable[[str, Sequence[NDArray[Any]]], Sequence[NDArray[Any]]]
"""A caller of host functions by name."""

Data = NDArray[np.int8]
Sum = NDArray[np.int32]


class StepRunner(Protocol):
    """A runner of accelerator steps on NHWC data: the simulated hardware, or the integer reference."""

    def layer(self, layer: AcceleratorLayer, data: Data, residual: Sum | None) -> Data:
        """Run a layer; the residual is in units of the accumulator."""

    def pool(self, pool: Pool, data: Data) -> Data:
        """Run a maximum pool."""


def run_quantized(
    network: QuantizedNetwork, inputs: Sequence[NDArray[Any]], host: Host, accelerator: StepRunner
) -> Mapping[str, Value]:
    """Run a network and return all of its values."""
    values: dict[str, Value] = dict(zip(network.inputs, inputs, strict=True))
    for step in network.steps:
        match step:
            case AcceleratorLayer():
                w = step.workload
                data = integers_of(values[step.data], step.data_exponent).reshape(
                    w.batch, w.height, w.width, w.in_channels
                )
                residual = None
                if step.residual is not None:
                    shape = (w.batch, w.out_height, w.out_width, w.out_channels)
                    integers = integers_of(values[step.residual], step.residual_exponent).reshape(shape)
                    residual = _rescale(integers, step.residual_exponent - step.sum_exponent)
                result = accelerator.layer(step, data, residual).reshape(step.result_shape)
                values[step.result] = Quantized(result, step.result_exponent)
            case Pool():
                result = accelerator.pool(step, integers_of(values[step.data], step.exponent))
                values[step.result] = Quantized(result, step.exponent)
            case HostCall():
                arguments = [float_of(values[name]) for name in step.arguments]
                values |= zip(step.results, host(step.function, arguments), strict=True)
    return values


def integers_of(value: Value, exponent: int) -> Data:
    """Quantize a value to a scale, rounding to nearest, ties to even, and clipping."""
    if isinstance(value, Quantized) and value.exponent == exponent:
        return value.numbers
    scaled = np.ldexp(float_of(value), -exponent)
    return np.asarray(np.clip(np.rint(scaled), -MAX_VALUE, MAX_VALUE), np.int8)


def float_of(value: Value) -> NDArray[Any]:
    """Return a value in floating point; the conversion is exact."""
    return np.ldexp(value.numbers.astype(np.float32), value.exponent) if isinstance(value, Quantized) else value


def _rescale(integers: Data, shift: int) -> Sum:
    """Multiply integers by 2 ** shift, round down, and clip."""
    wide_integers = integers.astype(np.int64)
    shifted = wide_integers << min(shift, 31) if shift >= 0 else wide_integers >> min(-shift, 63)
    return np.asarray(np.clip(shifted, -_MAX_RESIDUAL, _MAX_RESIDUAL), np.int32)


class IntegerReference:
    """The definition of the layers in integers; the accelerator must match it bit for bit."""

    def layer(self, layer: AcceleratorLayer, data: Data, residual: Sum | None) -> Data:
        """Run a layer in NumPy."""
        w = layer.workload
        windows = windows_of(data, w.kernel, w.strides, w.padding, 0)
        # Sums of this size are exact in float64, and floating-point matrix products are much faster.
        products = np.tensordot(
            windows.astype(np.float64), layer.weight.astype(np.float64), axes=((4, 5, 3), (0, 1, 2))
        )
        total = products.astype(np.int64) + layer.bias
        if residual is not None:
            total = total + residual
        shifted = total >> layer.shift if layer.shift >= 0 else total << -layer.shift
        return np.asarray(np.clip(shifted, layer.low, layer.high), np.int8)

    def pool(self, pool: Pool, data: Data) -> Data:
        """Run a maximum pool in NumPy."""
        return max_pool(pool, data, int(np.iinfo(np.int8).min))


def max_pool(pool: Pool, data: NDArray[Any], lowest: float) -> NDArray[Any]:
    """Return the maximum over windows of NHWC data padded with `lowest`."""
    return np.asarray(windows_of(data, pool.kernel, pool.strides, pool.padding, lowest).max(axis=(4, 5)))


def windows_of(
    data: NDArray[Any],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    padding: tuple[int, int, int, int],
    border: float,
) -> NDArray[Any]:
    """Return the windows of padded NHWC data, shape (n, rows, columns, channels, kernel rows, kernel columns)."""
    top, left, bottom, right = padding
    padded = np.pad(data, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=border)
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=(1, 2))
    return np.asarray(windows[:, :: strides[0], :: strides[1]])
