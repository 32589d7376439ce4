"""Calibration: runs a network on samples, and finds the best power-of-two scale for each value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from anole.declared.entries import ModelSpec
from anole.documents.build import TensorInfo
from anole.errors import BuildError
from anole.targets.shared.reference import anchor
from anole.targets.vta.compile.partition import Chain, Partition
from anole.targets.vta.network.integer import windows_of
from anole.targets.vta.network.network import MOST, Host, Pool

_N_RANDOM = 4
_FINER = 4

Sample = Sequence[NDArray[Any]]
Observed = Mapping[str, NDArray[np.float32]]
"""Every value by name, over all samples: shape (n_samples, *shape)."""


def read_samples(model: ModelSpec, inputs: Sequence[TensorInfo]) -> list[Sample]:
    """Returns a model's calibration samples: its own, or standard normal ones if it has none.

    Raises:
        BuildError: the model's file is not readable or does not fit its inputs.
    """
    if model.calibration is None:
        rng = np.random.default_rng(0)
        return [[_random(info, rng) for info in inputs] for _ in range(_N_RANDOM)]
    path = Path(model.calibration)
    try:
        loaded = np.load(path)
        arrays = {inputs[0].name: loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise BuildError(f"{path}: is neither .npy nor .npz: {error}") from error
    for info in inputs:
        found = arrays.get(info.name)
        if found is None or found.shape[1:] != info.shape or not len(found):
            shown = f"shape {found.shape}" if found is not None else "none of that name"
            expected = f"(samples, {', '.join(map(str, info.shape))})"
            raise BuildError(f"{path}: found {shown} for input {info.name}; allowed is shape {expected}")
        if found.dtype.kind not in "biuf" or not np.isfinite(found).all():
            raise BuildError(f"{path}: input {info.name}: found values that are not finite numbers")
    n = min(len(arrays[info.name]) for info in inputs)
    return [[arrays[info.name][i].astype(info.dtype) for info in inputs] for i in range(n)]


def observe(parts: Partition, samples: Sequence[Sample], host: Host) -> Observed:
    """Runs a network in floating point on samples and returns all of its values."""
    observed: dict[str, list[NDArray[Any]]] = {}
    for sample in samples:
        values: dict[str, NDArray[Any]] = dict(zip(parts.inputs, sample, strict=True))
        for part in parts.parts:
            match part:
                case Chain():
                    residual = None if part.residual is None else values[part.residual]
                    values[part.result] = _chain(part, values[part.data], residual)
                case Pool():
                    values[part.result] = _max_pool(part, values[part.data])
                case _:
                    results = host(part.function, [values[name] for name in part.arguments])
                    values |= zip(part.results, results, strict=True)
        for name, value in values.items():
            observed.setdefault(name, []).append(value)
    return {name: np.stack(arrays) for name, arrays in observed.items()}


def best_exponent(values: NDArray[np.float32]) -> int:
    """Returns the power-of-two scale with which integers approximate values with the least mean square error.

    The coarsest candidate scale holds the largest value; finer ones clip it, but are more precise elsewhere.
    """
    largest = float(np.abs(values).max(initial=0.0))
    if not largest or not math.isfinite(largest):
        return 0
    coarsest = math.ceil(math.log2(largest / MOST))
    flat = values.ravel()
    errors = []
    for exponent in range(coarsest, coarsest - _FINER, -1):
        numbers = np.clip(np.rint(np.ldexp(flat, -exponent)), -MOST, MOST)
        errors.append((float(np.square(np.ldexp(numbers, exponent) - flat, dtype=np.float64).sum()), -exponent))
    return -min(errors)[1]


def snr_db(expected: NDArray[Any], found: NDArray[Any]) -> float | None:
    """Returns the signal-to-noise ratio in decibels; None where noise or signal is zero, or the ratio not finite."""
    wide = expected.astype(np.float64)
    signal, noise = float(np.square(wide).sum()), float(np.square(wide - found).sum())
    return 10 * math.log10(signal / noise) if 0 < signal < math.inf and 0 < noise < math.inf else None


def _random(info: TensorInfo, rng: np.random.Generator) -> NDArray[Any]:
    if info.dtype.startswith("float"):
        return rng.standard_normal(info.shape).astype(info.dtype)
    return rng.integers(0, 2, info.shape).astype(info.dtype)


def _chain(chain: Chain, data: NDArray[Any], residual: NDArray[Any] | None) -> NDArray[np.float32]:
    flat = data if chain.weight.ndim == 4 else data.reshape(-1, chain.weight.shape[0])
    total = (anchor(chain.workload, flat, chain.weight) + chain.bias).reshape(chain.shape)
    if residual is not None:
        total = total + residual
    if chain.positive:
        total = np.clip(total, 0, chain.cap)
    return total


def _max_pool(pool: Pool, data: NDArray[Any]) -> NDArray[np.float32]:
    return np.asarray(windows_of(data, pool.kernel, pool.strides, pool.padding, -np.inf).max(axis=(4, 5)))
