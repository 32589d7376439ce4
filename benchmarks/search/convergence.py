"""The experiment on convergence: the steps that explorers take to a common score, on the same surrogate.

A surrogate learns from random trials of a layer with an exact table, so the highest score in the entire space is known.
Each explorer then starts without earlier steps, and its steps to within 1 % of that score are counted (RELEASE, figure
5; Chameleon, figure 7a). A search that ends earlier counts with the maximum number of steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from anole.bench.tables import files, load
from anole.search.explore import annealing
from anole.search.explore.frontier import converged_at
from anole.search.explore.ppo import explorer as ppo
from anole.search.loop import TUNER_VERSION
from anole.search.roles import History
from benchmarks.search.experiment import Experiment, Job, Row, version_of
from benchmarks.search.variants import tuner_of

EXPLORERS = ("SA+greedy", "PPO+greedy")
"""The variants whose explorers are compared; both learn from the first one's surrogate."""

TRIALS, SEEDS, NEAR = 256, 30, 0.01


def jobs() -> Iterator[Job]:
    """Yield layer, variant, seed and version; seeds are the outer loop."""
    for seed in range(SEEDS):
        for layer, path in files("vta_constrained").items():
            for variant in EXPLORERS:
                plain = [path.read_bytes().hex(), tuner_of(variant).to_json(), TUNER_VERSION]
                yield layer, variant, str(seed), version_of(*plain, TRIALS, NEAR)


def run(job: Job) -> Sequence[Row]:
    """Fit a surrogate, and search it once."""
    layer, variant, seed, _ = job
    table = load(f"vta_constrained/{layer}")
    explorer: Any = tuner_of(variant).explorer
    space, rng = table.space, np.random.default_rng(int(seed))
    history, samples = History(space, table.subject.flop), space.sample(TRIALS, rng)
    history.add(samples, list(table.measure([space.config(vector) for vector in samples])))
    surrogate = tuner_of(EXPLORERS[0]).surrogate.start(space)
    surrogate.fit(history)
    highest = float(surrogate.score(space.vectors(space.all_valid_indices)).max())
    with _record_bests() as bests:
        candidates = explorer.start(space).propose(surrogate, history, rng)
    near = np.flatnonzero(np.asarray(bests) >= highest - NEAR * abs(highest))
    steps = int(near[0]) if len(near) else explorer.n_steps
    return [{"steps": steps, "reached": int(len(near) > 0), "queries": int(candidates.log["queries"])}]


@contextmanager
def _record_bests() -> Iterator[list[float]]:
    """Yield a list to which each step appends its highest score, beginning with the initial one."""
    seen: list[float] = []

    def summarize(bests: Sequence[float]) -> int:
        seen.extend(bests)
        return converged_at(bests)

    with ExitStack() as stack:
        for module in (annealing, ppo):
            stack.enter_context(patch.object(module, "converged_at", summarize))
        yield seen


CONVERGED = Experiment(
    "convergence", ("layer", "variant", "seed", "version"), ("steps", "reached", "queries"), jobs, run
)
