"""Measures the wall-clock seconds of one iteration's search, without measuring configs, as CSV.

    python -m benchmarks.search.seconds > docs/results/data/search_seconds.csv

The spaces are those of ResNet-18's and SqueezeNet's layers on this machine's CPU; the surrogate learns costs from a
formula. The first fit of a process is left out, because it also imports XGBoost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from anole.record import Measurement, Status
from anole.search.presets import read_tuner
from anole.search.roles import History
from anole.targets import get_target
from anole.targets.cpu.settings import describe_cpu
from benchmarks.common.arguments import described
from benchmarks.common.rows import print_rows
from benchmarks.kernels.layers import conv2d

WORKLOADS = (conv2d(56, 64, 64), conv2d(7, 512, 512), conv2d(13, 512, 1000, 1))
ITERATIONS = 5
COLUMNS = ("preset", "task", "space", "features", "measured", "queries", "fit_s", "propose_s", "choose_s", "search_s")


def main() -> None:
    """Prints a line for each iteration."""
    described(__doc__).parse_args()
    print_rows(COLUMNS, measure())


def measure() -> Iterator[dict[str, object]]:
    """Yields the row of each iteration."""
    target, settings = get_target(describe_cpu()), read_tuner({"preset": "autotvm"})
    for workload in WORKLOADS:
        space, rng = target.space(workload), np.random.default_rng(0)
        explorer, sampler = settings.explorer.start(space), settings.sampler.start(space)
        surrogate, history = settings.surrogate.start(space), History(space, workload.flop)
        chosen = space.sample(settings.batch, rng)
        for iteration in range(ITERATIONS):
            features = space.features(chosen)
            costs_s = 1e-3 * (1 + np.abs(features[:, ::7]).sum(axis=1) % 5)
            history.add(chosen, [Measurement(Status.OK, latency_s=float(cost_s)) for cost_s in costs_s])
            began_s = time.perf_counter()
            surrogate.fit(history)
            fitted_s = time.perf_counter()
            candidates = explorer.propose(surrogate, history, rng)
            proposed_s = time.perf_counter()
            chosen = sampler.choose(candidates, history, settings.batch, rng)
            chosen_s = time.perf_counter()
            if iteration:
                parts = (fitted_s - began_s, proposed_s - fitted_s, chosen_s - proposed_s, chosen_s - began_s)
                row = (settings.preset, workload.label, space.size, features.shape[1], len(history))
                values = (*row, int(candidates.log["queries"]), *(f"{part_s:.3f}" for part_s in parts))
                yield dict(zip(COLUMNS, values, strict=True))


if __name__ == "__main__":
    main()
