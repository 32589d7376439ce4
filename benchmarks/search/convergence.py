"""The experiment on how soon explorers converge: steps to a common score, on the same surrogate.

A surrogate learns from random trials of a layer with an exact table, so that the highest score in the whole space is
known. Each explorer then begins anew. It takes so many steps to come within 1 % of that score (RELEASE, figure 5;
Chameleon, figure 7a). A search that ends before counts with all the steps that it may take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from anole.search.explore import annealing
from anole.search.explore.frontier import converged_at
from anole.search.explore.ppo import explorer as ppo
from anole.search.loop import TUNER_VERSION
from anole.search.roles import History
from benchmarks.search.experiment import Experiment, Job, Row, version_of
from benchmarks.search.variants import tuner_of
from benchmarks.vta.tables import buffer_table, buffer_tables

EXPLORERS = ("SA+greedy", "PPO+greedy")
"""The variants whose explorers are compared; both learn from the first one's surrogate."""

TRIALS, SEEDS, NEAR = 256, 30, 0.01


def jobs() -> Iterator[Job]:
    """Yield layer, variant, seed and version; seeds are the outer loop."""
    for seed in range(SEEDS):
        for layer in buffer_tables():
            for variant in EXPLORERS:
                plain = [buffer_tables()[layer].read_bytes().hex(), tuner_of(variant).to_json(), TUNER_VERSION]
                yield layer, variant, str(seed), version_of(*plain, TRIALS, NEAR)


def run(job: Job) -> Sequence[Row]:
    """Teach a surrogate, and search it once."""
    layer, variant, seed, _ = job
    table = buffer_table(layer)
    explorer: Any = tuner_of(variant).explorer
    space, rng = table.space, np.random.default_rng(int(seed))
    history, drawn = History(space, table.workload.flop), space.sample(TRIALS, rng)
    history.add(drawn, list(table.measure([space.config(vector) for vector in drawn])))
    surrogate = tuner_of(EXPLORERS[0]).surrogate.start(space)
    surrogate.fit(history)
    highest = float(surrogate.score(space.vectors(space.every_valid_index)).max())
    with _bests() as bests:
        found = explorer.start(space).propose(surrogate, history, rng)
    near = np.flatnonzero(np.asarray(bests) >= highest - NEAR * abs(highest))
    steps = int(near[0]) if len(near) else explorer.n_steps
    return [{"steps": steps, "reached": int(len(near) > 0), "queries": int(found.log["queries"])}]


@contextmanager
def _bests() -> Iterator[list[float]]:
    """Yield a list that gets the highest score of each step, that of the start first; explorers only summarize it."""
    seen: list[float] = []

    def summarized(bests: Sequence[float]) -> int:
        seen.extend(bests)
        return converged_at(bests)

    with ExitStack() as stack:
        for module in (annealing, ppo):
            stack.enter_context(patch.object(module, "converged_at", summarized))
        yield seen


CONVERGED = Experiment(
    "convergence", ("layer", "variant", "seed", "version"), ("steps", "reached", "queries"), jobs, run
)
