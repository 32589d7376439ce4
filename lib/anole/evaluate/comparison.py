"""Random inputs for a build and its references, and the relative error between their outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.documents.build import Build, TensorInfo


def draw_inputs(build: Build) -> list[NDArray[Any]]:
    """Returns the random inputs on which a build is checked and timed."""
    return [_draw(info, seed) for seed, info in enumerate(build.inputs)]


def _draw(info: TensorInfo, seed: int) -> NDArray[Any]:
    """Returns random values for an input: standard normal for floats, zeros and ones for integers."""
    rng = np.random.default_rng(seed)
    if info.dtype.startswith("float"):
        return np.asarray(rng.standard_normal(info.shape), info.dtype)
    return np.asarray(rng.integers(0, 2, info.shape), info.dtype)


def relative_error(found: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]]) -> float:
    """Returns the largest relative L2 distance of any output; 1e300 for NaN, infinity or other shapes."""
    if [array.shape for array in found] != [array.shape for array in expected]:
        return 1e300
    distances = []
    for mine, theirs in zip(found, expected, strict=True):
        wide = theirs.astype(np.float64)
        distances.append(float(np.linalg.norm(mine - wide) / max(float(np.linalg.norm(wide)), 1e-30)))
    return max((d if np.isfinite(d) else 1e300 for d in distances), default=0.0)
