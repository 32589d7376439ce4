"""How many threads share a layer: only one where waking another takes longer than the layer."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from anole.targets.cpu.device.vector_unit import FLOAT_BYTES
from anole.targets.shared.reference import weight_shape
from anole.task import Workload

VERSION = 1

_LEAST_FLOP, _MOST_WEIGHT_BYTES = 1 << 18, 1 << 17
"""With this much work, or with more weights than these, which several threads read faster from memory, every thread
gets a share; below, trials decide how many threads do."""

_CHUNKS_OF_THREAD = 4
_WAKING_COST = 8.0


def threads_fed(w: Workload, threads: int) -> int:
    """Returns how many threads must have a share of a layer: all, or only the caller if the layer is small."""
    return 1 if _is_small(w) else threads


def sharing_version(w: Workload) -> int:
    """Returns the increment of a template's version where one thread may compute the whole layer."""
    return VERSION if _is_small(w) else 0


def evenness(chunks: NDArray[np.int64], threads: int) -> NDArray[np.float64]:
    """Returns how well numbers of chunks suit the threads, which end together if each has a few, shape (n,)."""
    wanted = _CHUNKS_OF_THREAD * threads if threads > 1 else 1
    return np.asarray(1.0 * (chunks % threads == 0) - 0.25 * np.abs(np.log2(chunks / wanted)))


def waking(chunks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns the cost in merit of waking other threads, for numbers of chunks, shape (n,)."""
    return np.asarray(_WAKING_COST * (chunks > 1))


def _is_small(w: Workload) -> bool:
    weight_bytes = FLOAT_BYTES * prod(weight_shape(w)) if w.constant_weight else 0
    return w.flop < _LEAST_FLOP and weight_bytes <= _MOST_WEIGHT_BYTES
