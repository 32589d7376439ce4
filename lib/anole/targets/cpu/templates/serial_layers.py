"""How threads share a layer: not at all where waking another one takes longer than the layer."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from anole.targets.cpu.device.vector_unit import FLOAT_BYTES
from anole.targets.shared.reference import weight_shape
from anole.task import Workload

VERSION = 1

_LEAST_FLOP, _MOST_WEIGHT_BYTES = 1 << 18, 1 << 17
"""From so much work on, and with more weights than these, which several threads read faster from memory, every thread
has a part; below, trials say how many have."""

_CHUNKS_OF_THREAD = 4
_WAKING = 8.0


def threads_fed(w: Workload, threads: int) -> int:
    """Returns how many threads must have a part of a layer: all, or the caller where there is little to do."""
    return 1 if _is_small(w) else threads


def sharing_version(w: Workload) -> int:
    """Returns what a template's version rises by where one thread may do all."""
    return VERSION if _is_small(w) else 0


def evenness(chunks: NDArray[np.int64], threads: int) -> NDArray[np.float64]:
    """How well some numbers of chunks suit the threads, which end at the same time if each has a few, shape (n,)."""
    wanted = _CHUNKS_OF_THREAD * threads if threads > 1 else 1
    return np.asarray(1.0 * (chunks % threads == 0) - 0.25 * np.abs(np.log2(chunks / wanted)))


def waking(chunks: NDArray[np.int64]) -> NDArray[np.float64]:
    """What waking other threads takes from the merit of some numbers of chunks, shape (n,)."""
    return np.asarray(_WAKING * (chunks > 1))


def _is_small(w: Workload) -> bool:
    weight_bytes = FLOAT_BYTES * prod(weight_shape(w)) if w.constant_weight else 0
    return w.flop < _LEAST_FLOP and weight_bytes <= _MOST_WEIGHT_BYTES
