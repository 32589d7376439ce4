"""Random inputs for a build and its references, and how far apart their outputs are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.documents.build import Build
from anole.documents.tensor_info import TensorInfo

MIN_VARIATION = 1e-2
"""The least variation of an output that shows anything: below it, an error may hide in what is always the same."""

_ROUNDING = 0.2
"""The variation below which errors are not compared with less: rounding does not shrink with the variation."""

_BROKEN = 1e100
"""The error of outputs of other shapes, or whose infinities and NaNs are at other places than the reference's."""

_MIN_NORM = 1e-30
"""What takes the place of a norm of 0."""

_PATCHES = 8
"""Patches of equal values along each axis of an input that is not mere noise."""


@dataclass(frozen=True)
class Comparison:
    """How far a build's outputs are from a reference's on several inputs.

    Attributes:
        relative_error: the largest relative L2 distance of any output on any input.
        variation: how much each output of the reference depends on the input: the L2 distance from its mean over the
            inputs, relative to its L2 norm.
        variation_error: the largest L2 distance of any output over all inputs, relative to the reference's from its
            mean over the inputs, or to a fifth of its norm if that is more.
    """

    relative_error: float
    variation: tuple[float, ...]
    variation_error: float

    @property
    def error(self) -> float:
        """The larger one of both errors, which decides whether a build is right."""
        return max(self.relative_error, self.variation_error)

    @property
    def output_variation(self) -> float:
        """The variation of the output that depends least on the input."""
        return min(self.variation, default=0.0)


def draw_inputs(build: Build, first_seed: int = 0) -> list[NDArray[Any]]:
    """Return random inputs of a build, by default those on which it is timed; each has the next seed."""
    return [_draw(info, seed, info.shape) for seed, info in enumerate(build.inputs, first_seed)]


def draw_samples(build: Build) -> list[list[NDArray[Any]]]:
    """Return the inputs on which a build is checked: those on which it is timed, other noise, and patches."""
    noise = [_draw(info, seed, info.shape) for seed, info in enumerate(build.inputs, 1000)]
    patches = [_in_patches(info, seed) for seed, info in enumerate(build.inputs, 2000)]
    return [draw_inputs(build), noise, patches]


def _draw(info: TensorInfo, seed: int, shape: Sequence[int]) -> NDArray[Any]:
    """Return random values for an input: standard normal for floats, zeros and ones for integers."""
    rng = np.random.default_rng(seed)
    if info.dtype.startswith("float"):
        return np.asarray(rng.standard_normal(shape), info.dtype)
    return np.asarray(rng.integers(0, 2, shape), info.dtype)


def _in_patches(info: TensorInfo, seed: int) -> NDArray[Any]:
    """Return random values that are equal within patches, as neighbours in pictures and sounds nearly are."""
    found = _draw(info, seed, [min(size, _PATCHES) for size in info.shape])
    for axis, size in enumerate(info.shape):
        found = np.take(found, np.arange(size) * min(size, _PATCHES) // max(size, 1), axis)
    return np.ascontiguousarray(found)


def compare_outputs(found: Sequence[Sequence[NDArray[Any]]], expected: Sequence[Sequence[NDArray[Any]]]) -> Comparison:
    """Compare a build's outputs for each input with a reference's; infinities and NaN as in `relative_error`."""
    errors = [relative_error(mine, theirs) for mine, theirs in zip(found, expected, strict=True)]
    outputs = [np.stack([_finite(each) for each in output]) for output in zip(*expected, strict=True)]
    variation = tuple(_norm(output - output.mean(0)) / max(_norm(output), _MIN_NORM) for output in outputs)
    if max(errors) >= _BROKEN:
        return Comparison(max(errors), variation, _BROKEN)
    mine = [np.stack(list(map(_finite, output))) for output in zip(*found, strict=True)]
    distances = [
        _norm(one - other) / max(_norm(other) * max(share, _ROUNDING), _MIN_NORM)
        for one, other, share in zip(mine, outputs, variation, strict=True)
    ]
    return Comparison(max(errors), variation, max(distances, default=0.0))


def relative_error(found: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]]) -> float:
    """Return the largest relative L2 distance of any output, over the values that are finite.

    Infinities and NaNs are right where they are the same ones: elsewhere, and with other shapes, the error is 1e100.
    """
    if [array.shape for array in found] != [array.shape for array in expected]:
        return _BROKEN
    distances = []
    for mine, theirs in zip(found, expected, strict=True):
        same = np.array_equal(_special(mine), _special(theirs), equal_nan=True)
        wide = _finite(theirs)
        distances.append(_norm(_finite(mine) - wide) / max(_norm(wide), _MIN_NORM) if same else _BROKEN)
    return max(distances, default=0.0)


def _finite(values: NDArray[Any]) -> NDArray[Any]:
    """Return values in double precision, with 0 for NaN and the infinities."""
    return np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)


def _special(values: NDArray[Any]) -> NDArray[Any]:
    """Return values with 0 for what is finite."""
    return np.where(np.isfinite(values), 0, values)


def _norm(values: NDArray[Any]) -> float:
    return float(np.linalg.norm(values.ravel()))
