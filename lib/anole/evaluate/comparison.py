"""Random inputs for a build and its references, and the errors of the build's outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.documents.build import Build, TensorInfo
from anole.extract.samples import random_input, read_samples

MIN_VARIATION = 1e-2
"""Min variation of an output for a meaningful comparison: below it, an error may hide in the constant part."""

_MIN_REFERENCE_VARIATION = 0.2
"""Lower bound of the variation that errors are divided by: rounding errors do not shrink with the variation."""

_MISMATCH_ERROR = 1e100
"""The error of outputs with different shapes, or with infinities or NaNs at different positions."""

_MIN_NORM = 1e-30
"""Lower bound of norms that errors are divided by."""

_MAX_SAMPLES = 64
"""Max number of a model's own samples that its builds run on."""

_MAX_CHECKED_SAMPLES = 4
"""Max number of a model's own samples that decide whether a build is correct."""

_MAX_PATCHES = 8
"""Max number of equal-valued patches along each axis of an input."""


@dataclass(frozen=True)
class Comparison:
    """The errors of a build's outputs compared with a reference, over several samples of the inputs.

    Attributes:
        relative_error: the largest relative L2 distance of any output on any sample.
        variation: for each output of the reference, its L2 distance from its mean over the samples, relative to its
            norm; 0 if the output does not depend on the inputs.
        variation_error: the largest L2 distance of any output over all samples. It is relative to the L2 distance of
            the reference from its mean over the samples, or to a fifth of the reference's norm if that is more.
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


def timing_inputs(build: Build, first_seed: int = 0) -> list[NDArray[Any]]:
    """Return a random array for each input, with seeds from `first_seed`; by default the inputs to time a build on."""
    return [
        random_input(info, np.random.default_rng(seed), info.shape)
        for seed, info in enumerate(build.inputs, first_seed)
    ]


def check_inputs(build: Build) -> list[list[NDArray[Any]]]:
    """Return samples to check a build on, each with an array per input.

    They are `timing_inputs`, other noise, patches, and some of the model's own samples, see `own_samples`.
    """
    noise = [
        random_input(info, np.random.default_rng(seed), info.shape) for seed, info in enumerate(build.inputs, 1000)
    ]
    patches = [_random_patches(info, seed) for seed, info in enumerate(build.inputs, 2000)]
    return [timing_inputs(build), noise, patches, *own_samples(build)[:_MAX_CHECKED_SAMPLES]]


def own_samples(build: Build) -> list[list[NDArray[Any]]]:
    """Return the first samples that a model names; none if it names no file, or the file is gone, or at other sizes.

    Raises:
        BuildError: the samples cannot be read, or do not fit.
    """
    model = build.model_spec
    if model.samples is None or build.sizes is not None or not Path(model.samples).exists():
        return []
    return [list(sample) for sample in read_samples(model, build.inputs)[:_MAX_SAMPLES]]


def _random_patches(info: TensorInfo, seed: int) -> NDArray[Any]:
    """Return random values that are constant within patches, similar to adjacent values in images and audio."""
    values = random_input(info, np.random.default_rng(seed), [min(size, _MAX_PATCHES) for size in info.shape])
    for axis, size in enumerate(info.shape):
        values = np.take(values, np.arange(size) * min(size, _MAX_PATCHES) // max(size, 1), axis)
    return np.asarray(values, order="C")


def compare_outputs(
    outputs: Sequence[Sequence[NDArray[Any]]], reference: Sequence[Sequence[NDArray[Any]]]
) -> Comparison:
    """Compare a build's outputs for each sample with a reference; for infinities and NaNs see `relative_error`."""
    errors = [relative_error(arrays, expected) for arrays, expected in zip(outputs, reference, strict=True)]
    stacked_reference = [np.stack([_finite(array) for array in arrays]) for arrays in zip(*reference, strict=True)]
    variations = tuple(_norm(array - array.mean(0)) / max(_norm(array), _MIN_NORM) for array in stacked_reference)
    if max(errors) >= _MISMATCH_ERROR:
        return Comparison(max(errors), variations, _MISMATCH_ERROR)
    stacked_outputs = [np.stack(list(map(_finite, arrays))) for arrays in zip(*outputs, strict=True)]
    distances = [
        _norm(output - expected) / max(_norm(expected) * max(variation, _MIN_REFERENCE_VARIATION), _MIN_NORM)
        for output, expected, variation in zip(stacked_outputs, stacked_reference, variations, strict=True)
    ]
    return Comparison(max(errors), variations, max(distances, default=0.0))


def relative_error(outputs: Sequence[NDArray[Any]], reference: Sequence[NDArray[Any]]) -> float:
    """Return the largest relative L2 distance of any output, over its finite values.

    Infinities and NaNs must be at the same positions in both: otherwise, or if shapes differ, the error is 1e100.
    """
    if [array.shape for array in outputs] != [array.shape for array in reference]:
        return _MISMATCH_ERROR
    distances = []
    for output, expected in zip(outputs, reference, strict=True):
        is_same = np.array_equal(_special(output), _special(expected), equal_nan=True)
        valid = _finite(expected)
        distances.append(_norm(_finite(output) - valid) / max(_norm(valid), _MIN_NORM) if is_same else _MISMATCH_ERROR)
    return max(distances, default=0.0)


def _finite(values: NDArray[Any]) -> NDArray[Any]:
    """Cast values to double precision, with 0 for NaN and infinities."""
    return np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)


def _special(values: NDArray[Any]) -> NDArray[Any]:
    """Replace finite values by 0."""
    return np.where(np.isfinite(values), 0, values)


def _norm(values: NDArray[Any]) -> float:
    return float(np.linalg.norm(values.ravel()))
