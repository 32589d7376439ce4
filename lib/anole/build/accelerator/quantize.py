"""Quantisation after training: symmetric, with powers of two as scales, one for each value and weight."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from anole.build.accelerator.calibrate import Observed, best_exponent
from anole.build.accelerator.partition import Chain, MaxPool, Partition
from anole.record import Config
from anole.targets.vta.network import MOST, HostCall, Layer, Network, Pool, Step
from anole.targets.vta.target import as_conv2d
from anole.task import Workload

_MOST_BIAS = 1 << 29
"""Biases are kept so small that no sum leaves 32 bits."""


def quantize(parts: Partition, observed: Observed, config_of: Callable[[Workload], Config]) -> Network:
    """Returns a network of whole numbers.

    Args:
        parts: of the network.
        observed: all values, on samples.
        config_of: how each workload is scheduled.
    """
    exponents: dict[str, int] = {}

    def exponent_of(name: str) -> int:
        if name not in exponents:
            exponents[name] = best_exponent(observed[name])
        return exponents[name]

    steps: list[Step] = []
    for part in parts.parts:
        match part:
            case Chain():
                residual_exponent = 0 if part.residual is None else exponent_of(part.residual)
                data_exponent, result_exponent = exponent_of(part.data), exponent_of(part.result)
                layer = _layer(part, data_exponent, residual_exponent, result_exponent, config_of(part.workload))
                exponents[part.result] = layer.result_exponent
                steps.append(layer)
            case MaxPool():
                exponents[part.result] = exponent = exponent_of(part.data)
                window = (part.kernel, part.strides, part.padding)
                steps.append(Pool(part.name, *window, part.data, part.result, exponent))
            case _:
                steps.append(HostCall(part.function, part.arguments, part.results))
    return Network(parts.inputs, parts.outputs, tuple(steps))


def _layer(chain: Chain, data_exponent: int, residual_exponent: int, result_exponent: int, config: Config) -> Layer:
    w = as_conv2d(chain.workload)
    weight_exponent = best_exponent(chain.weight)
    sum_exponent = data_exponent + weight_exponent
    # Finer than the sum itself, a result would be but shifted left.
    result_exponent = max(result_exponent, sum_exponent)
    shift = result_exponent - sum_exponent
    half = 1 << shift - 1 if shift else 0
    bias = np.rint(np.ldexp(chain.bias.astype(np.float64), -sum_exponent)) + half
    high = MOST if chain.cap is None else min(MOST, math.floor(math.ldexp(chain.cap, -result_exponent)))
    return Layer(
        chain.name,
        w,
        config,
        chain.data,
        chain.result,
        chain.residual,
        data_exponent,
        weight_exponent,
        residual_exponent,
        result_exponent,
        0 if chain.positive else -MOST,
        high,
        chain.shape,
        _whole(chain.weight, weight_exponent).reshape(*w.kernel, w.in_channels, w.out_channels),
        np.clip(bias, -_MOST_BIAS, _MOST_BIAS).astype(np.int32),
    )


def _whole(weight: NDArray[np.float32], exponent: int) -> NDArray[np.int8]:
    return np.clip(np.rint(np.ldexp(weight, -exponent)), -MOST, MOST).astype(np.int8)
