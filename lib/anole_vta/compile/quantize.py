"""Post-training quantization: symmetric, with a power-of-two scale per tensor, calibrated on samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.extract.samples import Sample
from anole.record import Config
from anole.task import Workload
from anole_vta.compile.partition import FusedLayer, Partition
from anole_vta.network.network import MAX_VALUE, AcceleratorLayer, Host, NetworkStep, Pool, QuantizedNetwork, max_pool
from anole_vta.target import as_conv2d

_N_SCALES = 4

_BIAS_BITS = 28
_MAX_BIAS = 2 << _BIAS_BITS
"""Bound on biases, including half a unit of the result, that keeps accumulators within 32 bits."""

_MAX_RESIDUAL_SHIFT = 22
"""The maximum left shift of a residual, which has 7 bits."""

_FINEST_EXPONENT = -1000
"""A scale finer than any that occurs."""

Observed = Mapping[str, NDArray[np.float32]]
"""Every value by name, over all samples: shape (n_samples, *shape)."""


def observe(parts: Partition, samples: Sequence[Sample], host: Host) -> Observed:
    """Run a network in floating point on samples, and return all of its values."""
    observed: dict[str, list[NDArray[Any]]] = {}
    for sample in samples:
        values: dict[str, NDArray[Any]] = dict(zip(parts.inputs, sample, strict=True))
        for part in parts.parts:
            match part:
                case FusedLayer():
                    residual = None if part.residual is None else values[part.residual]
                    values[part.result] = part.run(values[part.data], residual)
                case Pool():
                    values[part.result] = max_pool(part, values[part.data], -np.inf)
                case _:
                    results = host(part.function, [values[name] for name in part.arguments])
                    values |= zip(part.results, results, strict=True)
        for name, value in values.items():
            observed.setdefault(name, []).append(value)
    return {name: np.stack(arrays) for name, arrays in observed.items()}


def best_exponent(values: NDArray[np.float32]) -> int:
    """Return the exponent of the power-of-two scale that minimizes the mean squared error of quantization.

    The coarsest candidate represents the largest value; finer scales clip it, but are more precise elsewhere.
    """
    largest = float(np.abs(values).max(initial=0.0))
    if not largest or not math.isfinite(largest):
        return 0
    coarsest = math.ceil(math.log2(largest / MAX_VALUE))
    flat = values.ravel()
    errors = []
    for exponent in range(coarsest, coarsest - _N_SCALES, -1):
        quantized = _quantize(flat, exponent)
        errors.append((float(np.square(np.ldexp(quantized, exponent) - flat, dtype=np.float64).sum()), -exponent))
    return -min(errors)[1]


def snr_db(expected: NDArray[Any], actual: NDArray[Any]) -> float | None:
    """Return the signal-to-noise ratio in decibels; None if noise or signal is zero or not finite."""
    signals = expected.astype(np.float64)
    signal, noise = float(np.square(signals).sum()), float(np.square(signals - actual).sum())
    return 10 * math.log10(signal / noise) if 0 < signal < math.inf and 0 < noise < math.inf else None


def quantize(parts: Partition, observed: Observed, config_of: Callable[[Workload], Config]) -> QuantizedNetwork:
    """Quantize a network to integers, with scales from the values observed on samples."""
    exponents: dict[str, int] = {}

    def exponent_of(name: str) -> int:
        if name not in exponents:
            exponents[name] = best_exponent(observed[name])
        return exponents[name]

    steps: list[NetworkStep] = []
    for part in parts.parts:
        match part:
            case FusedLayer():
                residual_exponent = None if part.residual is None else exponent_of(part.residual)
                data_exponent, result_exponent = exponent_of(part.data), exponent_of(part.result)
                layer = _layer(part, data_exponent, residual_exponent, result_exponent, config_of(part.workload))
                exponents[part.result] = layer.result_exponent
                steps.append(layer)
            case Pool():
                exponents[part.result] = exponent = exponent_of(part.data)
                steps.append(replace(part, exponent=exponent))
            case _:
                steps.append(part)
    return QuantizedNetwork(parts.inputs, parts.outputs, tuple(steps))


def _layer(
    fused: FusedLayer, data_exponent: int, residual_exponent: int | None, result_exponent: int, config: Config
) -> AcceleratorLayer:
    w = as_conv2d(fused.workload)
    # The lowest bits of weights do not matter if bias or residual are much larger than the products.
    best = best_exponent(fused.weight) if fused.weight.any() else result_exponent - data_exponent
    weight_exponent = max(best, _finest_sum_exponent(fused, residual_exponent) - data_exponent)
    sum_exponent = data_exponent + weight_exponent
    # A scale finer than the accumulators' would only shift them left.
    result_exponent = max(result_exponent, sum_exponent)
    shift = result_exponent - sum_exponent
    half = 1 << shift - 1 if shift else 0
    bias = np.rint(np.ldexp(fused.bias.astype(np.float64), -sum_exponent)) + half
    weight = _quantize(fused.weight, weight_exponent).astype(np.int8)
    high = MAX_VALUE if fused.cap is None else min(MAX_VALUE, math.floor(math.ldexp(fused.cap, -result_exponent)))
    return AcceleratorLayer(
        *(fused.name, w, config, fused.data, fused.result, fused.residual),
        *(data_exponent, weight_exponent, residual_exponent or 0, result_exponent),
        *(0 if fused.positive else -MAX_VALUE, high),
        fused.shape,
        weight.reshape(*w.kernel, w.in_channels, w.out_channels),
        np.clip(bias, -_MAX_BIAS, _MAX_BIAS).astype(np.int32),
    )


def _finest_sum_exponent(fused: FusedLayer, residual_exponent: int | None) -> int:
    """Return the finest scale of the accumulators that represents bias and residual without overflow."""
    max_bias = float(np.abs(fused.bias).max(initial=0.0))
    finest = math.frexp(max_bias)[1] - _BIAS_BITS if max_bias else _FINEST_EXPONENT
    return finest if residual_exponent is None else max(finest, residual_exponent - _MAX_RESIDUAL_SHIFT)


def _quantize(values: NDArray[np.float32], exponent: int) -> NDArray[np.float32]:
    """Return values in units of a scale, rounded to nearest and clipped to the range of integers."""
    return np.clip(np.rint(np.ldexp(values, -exponent)), -MAX_VALUE, MAX_VALUE)
