"""A layer of every template, small enough to be interpreted in a tenth of a second, and configs of it."""

from __future__ import annotations

import numpy as np

from anole.record import Config
from anole.space import ALGORITHM
from anole.targets.cuda.templates.winograd_space import winograd_space
from anole.targets.shared.algorithm_names import WINOGRAD
from anole.task import BatchMatmul, Conv2d, Dense, Workload

from ..templates.workloads import LIMITS, TARGET

_PADDED = (1, 1, 1, 1)

SMALL: dict[str, Workload] = {
    "conv2d": Conv2d(1, 5, 5, 6, 8, (3, 3), strides=(2, 2), padding=_PADDED),
    "grouped": Conv2d(1, 4, 4, 8, 8, (3, 3), padding=_PADDED, groups=2),
    "depthwise": Conv2d(1, 4, 4, 8, 8, (3, 3), padding=_PADDED, groups=8),
    "winograd": Conv2d(1, 4, 4, 6, 8, (3, 3), padding=_PADDED),
    "gemm": Dense(36, 6, 8),
    "batch_matmul": BatchMatmul(2, 6, 4, 8),
    "transposed": BatchMatmul(2, 6, 4, 8, transpose_right=True),
}
"""All of them stage tiles in shared memory."""

_REDUCTIONS = ("tile_rc", "tile_k")


def drawn(kind: str, seed: int) -> Config:
    """A random valid config."""
    return random_config(SMALL[kind], seed, winograd=kind == "winograd")


def random_config(workload: Workload, seed: int, *, winograd: bool = False) -> Config:
    """A random valid config of a workload, direct or Winograd's."""
    space = winograd_space(LIMITS, TARGET.gpu, workload) if winograd else TARGET.space(workload)
    (vector,) = space.sample(1, np.random.default_rng(seed))
    return {ALGORITHM: WINOGRAD, **space.config(vector)} if winograd else space.config(vector)


def staged(kind: str) -> Config:
    """A config whose tiles are staged more than once, where the template can, so that no barrier is the last."""
    configs = (drawn(kind, seed) for seed in range(1000))
    return next(
        config
        for config in configs
        if config["auto_unroll_max_step"] == 0
        and config.get(ALGORITHM) in (None, WINOGRAD if kind == "winograd" else "direct")
        and all(config[name][0] > 1 for name in _REDUCTIONS if name in config)
    )
