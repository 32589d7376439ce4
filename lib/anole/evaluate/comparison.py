"""Random inputs for a build and its references, and the errors of the build's outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.documents.build import Build
from anole.documents.tensor_info import TensorInfo

MIN_VARIATION = 1e-2
"""Min variation of an output for a meaningful comparison: below it, an error may hide in the constant part."""

_MIN_REFERENCE_VARIATION = 0.2
"""Lower bound of the variation that errors are divided by: rounding errors do not shrink with the variation."""

_MISMATCH_ERROR = 1e100
"""The error of outputs with different shapes, or with infinities or NaNs at different positions."""

_MIN_NORM = 1e-30
"""Lower bound of norms that errors are divided by."""

_N_PATCHES = 8
"""Number of patches of equal values along each axis of an input with patches."""


@dataclass(frozen=True)
class Comparison:
    """The errors of a build's outputs compared with a reference, over several inputs.

    Attributes:
        relative_error: the largest relative L2 distance of any output on any input.
        variation: the dependence of each output of the reference on the input: the L2 distance from its mean over the
            inputs, relative to its L2 norm.
        variation_error: the largest L2 distance of any output over all inputs, relative to the L2 distance of the
            reference from its mean over the inputs, or to a fifth of its norm if that is more.
    """

    relative_error: float
    variation: tuple[float, ...]
    variation_error: float

    @property
    def error(self) -> float:
        """The larger of both errors, which decides whether a build is correct."""
        return max(self.relative_error, self.variation_error)

    @property
    def output_variation(self) -> float:
        """The variation of the output that depends least on the input."""
        return min(self.variation, default=0.0)


def draw_inputs(build: Build, first_seed: int = 0) -> list[NDArray[Any]]:
    """Return random inputs of a build, by default the ones it is timed on; each has the next seed."""
    return [_random(info, seed, info.shape) for seed, info in enumerate(build.inputs, first_seed)]


def random_samples(build: Build) -> list[list[NDArray[Any]]]:
    """Return the inputs that a build is checked on: the ones it is timed on, other noise, and patches."""
    noise = [_random(info, seed, info.shape) for seed, info in enumerate(build.inputs, 1000)]
    patches = [_random_patches(info, seed) for seed, info in enumerate(build.inputs, 2000)]
    return [draw_inputs(build), noise, patches]


def _random(info: TensorInfo, seed: int, shape: Sequence[int]) -> NDArray[Any]:
    """Return random values for an input: standard normal for floats, zeros and ones for integers."""
    rng = np.random.default_rng(seed)
    if info.dtype.startswith("float"):
        return np.asarray(rng.standard_normal(shape), info.dtype)
    return np.asarray(rng.integers(0, 2, shape), info.dtype)


def _random_patches(info: TensorInfo, seed: int) -> NDArray[Any]:
    """Return random values that are constant within patches, similar to adjacent values in images and audio."""
    values = _random(info, seed, [min(size, _N_PATCHES) for size in info.shape])
    for axis, size in enumerate(info.shape):
        values = np.take(values, np.arange(size) * min(size, _N_PATCHES) // max(size, 1), axis)
    return np.asarray(values, order="C")


def compare_outputs(found: Sequence[Sequence[NDArray[Any]]], expected: Sequence[Sequence[NDArray[Any]]]) -> Comparison:
    """Compare a build's outputs for each input with a reference; for infinities and NaNs see `relative_error`."""
    errors = [relative_error(mine, theirs) for mine, theirs in zip(found, expected, strict=True)]
    references = [np.stack([_finite(array) for array in output]) for output in zip(*expected, strict=True)]
    variation = tuple(_norm(output - output.mean(0)) / max(_norm(output), _MIN_NORM) for output in references)
    if max(errors) >= _MISMATCH_ERROR:
        return Comparison(max(errors), variation, _MISMATCH_ERROR)
    mine = [np.stack(list(map(_finite, output))) for output in zip(*found, strict=True)]
    distances = [
        _norm(own - reference) / max(_norm(reference) * max(share, _MIN_REFERENCE_VARIATION), _MIN_NORM)
        for own, reference, share in zip(mine, references, variation, strict=True)
    ]
    return Comparison(max(errors), variation, max(distances, default=0.0))


def relative_error(found: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]]) -> float:
    """Return the largest relative L2 distance of any output, over its finite values.

    Infinities and NaNs must be at the same positions in both: otherwise, or if shapes differ, the error is 1e100.
    """
    if [array.shape for array in found] != [array.shape for array in expected]:
        return _MISMATCH_ERROR
    distances = []
    for mine, theirs in zip(found, expected, strict=True):
        same = np.array_equal(_special(mine), _special(theirs), equal_nan=True)
        wide = _finite(theirs)
        distances.append(_norm(_finite(mine) - wide) / max(_norm(wide), _MIN_NORM) if same else _MISMATCH_ERROR)
    return max(distances, default=0.0)


def _finite(values: NDArray[Any]) -> NDArray[Any]:
    """Cast values to double precision, with 0 for NaN and infinities."""
    return np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)


def _special(values: NDArray[Any]) -> NDArray[Any]:
    """Replace finite values by 0."""
    return np.where(np.isfinite(values), 0, values)


def _norm(values: NDArray[Any]) -> float:
    return float(np.linalg.norm(values.ravel()))
