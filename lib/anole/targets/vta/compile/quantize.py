"""Post-training quantisation: symmetric, with one power-of-two scale for each value and weight."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from anole.record import Config
from anole.targets.vta.compile.calibrate import Observed, best_exponent
from anole.targets.vta.compile.partition import Chain, Partition
from anole.targets.vta.network.network import MOST, AcceleratorLayer, Network, NetworkStep, Pool
from anole.targets.vta.target import as_conv2d
from anole.task import Workload

_BIAS_BITS = 28
_MOST_BIAS = 2 << _BIAS_BITS
"""Bound on biases, including half a unit of the result, such that no sum overflows 32 bits."""

_RESIDUAL_SHIFT = 22
"""The most bits that a residual, which has 7 bits, is shifted left."""

_FINEST = -1000
"""A scale finer than any that occurs."""


def quantize(parts: Partition, observed: Observed, config_of: Callable[[Workload], Config]) -> Network:
    """Returns the network in integers, whose scales follow from all values observed on samples."""
    exponents: dict[str, int] = {}

    def exponent_of(name: str) -> int:
        if name not in exponents:
            exponents[name] = best_exponent(observed[name])
        return exponents[name]

    steps: list[NetworkStep] = []
    for part in parts.parts:
        match part:
            case Chain():
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
    return Network(parts.inputs, parts.outputs, tuple(steps))


def _layer(
    chain: Chain, data_exponent: int, residual_exponent: int | None, result_exponent: int, config: Config
) -> AcceleratorLayer:
    w = as_conv2d(chain.workload)
    # The finest bits of weights do not matter where the weights are tiny beside what is added to the products.
    best = best_exponent(chain.weight) if chain.weight.any() else result_exponent - data_exponent
    weight_exponent = max(best, _finest_sum(chain, residual_exponent) - data_exponent)
    sum_exponent = data_exponent + weight_exponent
    # A result finer than the sum would only be the sum shifted left.
    result_exponent = max(result_exponent, sum_exponent)
    shift = result_exponent - sum_exponent
    half = 1 << shift - 1 if shift else 0
    bias = np.rint(np.ldexp(chain.bias.astype(np.float64), -sum_exponent)) + half
    high = MOST if chain.cap is None else min(MOST, math.floor(math.ldexp(chain.cap, -result_exponent)))
    return AcceleratorLayer(
        chain.name,
        w,
        config,
        chain.data,
        chain.result,
        chain.residual,
        data_exponent,
        weight_exponent,
        residual_exponent or 0,
        result_exponent,
        0 if chain.positive else -MOST,
        high,
        chain.shape,
        _whole(chain.weight, weight_exponent).reshape(*w.kernel, w.in_channels, w.out_channels),
        np.clip(bias, -_MOST_BIAS, _MOST_BIAS).astype(np.int32),
    )


def _finest_sum(chain: Chain, residual_exponent: int | None) -> int:
    """Returns the finest scale of the sums at which bias and residual are not cut off."""
    most_bias = float(np.abs(chain.bias).max(initial=0.0))
    finest = math.frexp(most_bias)[1] - _BIAS_BITS if most_bias else _FINEST
    return finest if residual_exponent is None else max(finest, residual_exponent - _RESIDUAL_SHIFT)


def _whole(weight: NDArray[np.float32], exponent: int) -> NDArray[np.int8]:
    return np.clip(np.rint(np.ldexp(weight, -exponent)), -MOST, MOST).astype(np.int8)
