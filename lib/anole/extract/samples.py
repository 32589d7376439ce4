"""Samples of a model's inputs: those in the file named in its entry, or random ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from anole.config.entries import ModelSpec
from anole.documents.build import TensorInfo
from anole.errors import BuildError

_N_RANDOM_SAMPLES = 4

Sample = Sequence[NDArray[Any]]


def read_samples(model: ModelSpec, inputs: Sequence[TensorInfo]) -> list[Sample]:
    """Return a model's samples, or random samples if it has none; raise BuildError if they do not fit."""
    if model.samples is None:
        rng = np.random.default_rng(0)
        return [[random_input(info, rng, info.shape) for info in inputs] for _ in range(_N_RANDOM_SAMPLES)]
    path = Path(model.samples)
    try:
        content = np.load(path)
        arrays = {inputs[0].name: content} if isinstance(content, np.ndarray) else dict(content)
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise BuildError(f"{path}: is neither .npy nor .npz: {error}") from error
    for info in inputs:
        array = arrays.get(info.name)
        if array is None or array.shape[1:] != info.shape or not len(array):
            problem = f"shape {array.shape}" if array is not None else "no array with its name"
            expected = f"(samples, {', '.join(map(str, info.shape))})"
            raise BuildError(f"{path}: found {problem} for input {info.name}; expected shape {expected}")
        if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
            raise BuildError(f"{path}: input {info.name}: found values that are not finite numbers")
    n = min(len(arrays[info.name]) for info in inputs)
    return [[arrays[info.name][i, ...].astype(info.dtype) for info in inputs] for i in range(n)]


def random_input(info: TensorInfo, rng: np.random.Generator, shape: Sequence[int]) -> NDArray[Any]:
    """Return random values for an input: standard normal, indices of its table, or zeros and ones, as in a mask."""
    if info.dtype.startswith("float"):
        return rng.standard_normal(shape).astype(info.dtype)
    return rng.integers(0, info.indexed or 2, shape).astype(info.dtype)
