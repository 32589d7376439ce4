"""How much of the best latency the next trials are expected to save."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_N_FASTEST = 8
"""Number of the fastest trials whose spread tells how far the next ones may reach."""


def expected_gain(gflops: NDArray[np.float64], errors: Sequence[float], n_next: int) -> float:
    r"""Returns the share of the best latency that the next trials are expected to save.

    The logarithms of the best of many speeds lie as if their upper tail were exponential, whatever they are drawn from
    (Pickands 1975). Its scale $\sigma$ is how far the fastest are above the next one, in the mean (Hill 1975). The best
    of $n + m$ draws is then expected $\sigma \ln((n + m) / n)$ above that of $n$. A search whose trials become better
    stretches its own tail, and one that has found a new kind of config has a long tail. The spread that the noise of
    measuring explains is not expected to save anything.

    Args:
        gflops: speeds of the trials so far, shape (n,); 0 for a failure.
        errors: relative standard errors of these trials' latencies, n of them; 0 for what is exact.
        n_next: number of the next trials.
    """
    n = len(gflops)
    fastest = np.argsort(-gflops, kind="stable")[: _N_FASTEST + 1]
    working = fastest[gflops[fastest] > 0]
    if len(working) <= _N_FASTEST:
        # Nothing can be told yet. Each failure halves the hope that a batch of them deserves.
        return float(0.5 ** ((n - len(working)) / n_next))
    *best, last = np.log(gflops[working])
    scale = float(np.mean(best) - last)
    noise = float(np.median([errors[at] for at in working]))
    return -math.expm1(-math.sqrt(max(0.0, scale**2 - noise**2)) * math.log((n + n_next) / n))
