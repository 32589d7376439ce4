"""The experiment on convergence: the steps that explorers take to a common score, on the same surrogate.

A surrogate learns from the trials of a search by annealing, batch by batch, on a layer with an exact table, so the
highest score in the entire space is known. In each iteration, both explorers search that surrogate, and keep what they
learned before. The steps to within 1 % of that score are counted (RELEASE, figure 5; Chameleon, figure 7a): of all
configs, and of those that are not measured yet, which a search is for. An iteration that ends earlier counts with the
maximum number of steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from anole.bench.ask_tell import replay
from anole.bench.tables import load
from anole.search.explore import annealing
from anole.search.explore.frontier import Frontier
from anole.search.explore.ppo import explorer as ppo
from anole.search.explore.ppo.rollout import Rollout
from anole.search.roles import History
from anole.space.space import Vectors
from benchmarks.search.experiment import Experiment, Job, Row
from benchmarks.search.variants import jobs_on_tables, tuner_of

EXPLORERS = ("SA+greedy", "PPO+greedy")
"""The variants whose explorers are compared; both search the surrogate of the first one's trials."""

TRIALS, SEEDS, NEAR = 256, 30, 0.01


def run(job: Job) -> Sequence[Row]:
    """Fit a surrogate after each batch, and search it with an explorer that keeps its state."""
    layer, variant, seed, _ = job
    table, searcher = load(f"vta_constrained/{layer}"), tuner_of(EXPLORERS[0])
    settings: Any = tuner_of(variant).explorer
    space, rng = table.space, np.random.default_rng(int(seed))
    history, surrogate = History(space, table.subject.flop), searcher.surrogate.start(space)
    trials, explorer = replay(table, searcher, TRIALS, int(seed)).trials, settings.start(space)
    every_config = space.vectors(space.all_valid_indices)
    steps: dict[str, list[int]] = {"steps": [], "new_steps": []}
    for first in range(0, len(trials), searcher.batch):
        batch = trials[first : first + searcher.batch]
        history.add(space.vectors_of(trial.config for trial in batch), [trial.measurement for trial in batch])
        surrogate.fit(history)
        scores = {"steps": surrogate.score(every_config)}
        scores["new_steps"] = np.where(_is_new(history, every_config), scores["steps"], 0.0)
        with _record_bests(history) as bests:
            explorer.propose(surrogate, history, rng)
        for which, found in bests.items():
            near = np.flatnonzero(np.asarray(found) >= (1 - NEAR) * scores[which].max())
            steps[which].append(int(near[0]) if len(near) else settings.n_steps)
    means = {which: f"{np.expm1(np.log1p(each).mean()):.2f}" for which, each in steps.items()}
    return [means | {f"{which}_by_iteration": " ".join(map(str, each)) for which, each in steps.items()}]


def _is_new(history: History, vectors: Vectors) -> NDArray[np.bool_]:
    return ~np.isin(history.space.identities(vectors), history.visited)


@contextmanager
def _record_bests(history: History) -> Iterator[dict[str, list[float]]]:
    """Yield lists to which each step appends its highest scores of any and of new configs, after the initial ones."""
    bests: dict[str, list[float]] = {"steps": [], "new_steps": []}

    def record(vectors: Vectors, scores: NDArray[np.float64]) -> None:
        bests["steps"].append(float(scores.max(initial=0.0)))
        bests["new_steps"].append(float(scores[_is_new(history, vectors)].max(initial=0.0)))

    class RecordingFrontier(Frontier):
        """A frontier of annealing, which scores all chains in each step."""

        def score(self, vectors: Vectors) -> tuple[NDArray[np.float64], bool]:
            scores, changed = super().score(vectors)
            record(vectors, scores)
            return scores, changed

    def rewards_of(frontier: Frontier, rollout: Rollout) -> NDArray[np.float64]:
        if not bests["steps"]:  # the random configs at which episodes begin
            record(rollout.vectors[0], np.zeros(len(rollout.vectors[0])))
        rewards = compute_rewards(frontier, rollout)
        for vectors, scores in zip(rollout.vectors[1:], rewards, strict=True):
            record(vectors, scores)
        return rewards

    compute_rewards = ppo._rewards
    with patch.object(annealing, "Frontier", RecordingFrontier), patch.object(ppo, "_rewards", rewards_of):
        yield bests


_COLUMNS = ("steps", "new_steps", "steps_by_iteration", "new_steps_by_iteration")
_JOBS = partial(jobs_on_tables, EXPLORERS, SEEDS, TRIALS, NEAR)
CONVERGED = Experiment("convergence", ("layer", "variant", "seed", "version"), _COLUMNS, _JOBS, run)
