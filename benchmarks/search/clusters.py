"""The experiment on Chameleon's premise: are candidates clustered, and equally fast within a cluster?

On exact tables, after some iterations of a search: how much closer the explorer's best candidates are to 16 centroids
than as many random configs, and how often a candidate is within 25 % of the speed of the candidate nearest to its own
centroid, compared with the candidate nearest to another centroid (Chameleon, figures 5 and 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.bench.ask_tell import replay
from anole.bench.problem import Problem
from anole.bench.tables import load
from anole.search.roles import Candidates, History, Sampler
from anole.search.sample.adaptive_sampler import k_means
from anole.search.settings import Part
from anole.space.space import Space, Vectors
from benchmarks.search.experiment import Experiment, Job, Row
from benchmarks.search.variants import jobs_on_tables, tuner_of

EXPLORERS = ("SA+AS", "PPO+AS")
SEEDS, ITERATIONS, CANDIDATES, CLUSTERS = 10, 8, 512, 16
NEAR = 0.25


def run(job: Job) -> Sequence[Row]:
    """Search a table, and analyze the candidates of the last iteration."""
    layer, variant, seed, _ = job
    table, settings = load(f"vta_constrained/{layer}"), tuner_of(variant)
    watched = Watched(settings.sampler)
    explorer: Any = replace(settings.explorer, n_candidates=CANDIDATES)
    settings = replace(settings, explorer=explorer, sampler=watched, max_iterations=ITERATIONS)
    replay(table, settings, 10**6, int(seed))
    candidates = watched.seen[-1]
    rng = np.random.default_rng(int(seed))
    return [{"candidates": len(candidates), **_figures(table, candidates, rng)}]


def _figures(table: Problem, candidates: Vectors, rng: np.random.Generator) -> Row:
    space = table.space
    clusters = k_means(space.normalize(candidates), CLUSTERS, rng)
    uniform = k_means(space.normalize(space.sample(len(candidates), rng)), CLUSTERS, rng)
    rows = table.rows([space.config(vector) for vector in candidates])
    costs_s = np.nan_to_num(table.costs_s[rows], nan=np.inf, posinf=np.inf)
    distances = np.square(space.normalize(candidates)[:, None] - clusters.centroids[None]).sum(axis=2)
    heads = distances.argmin(axis=0)
    own, others = heads[clusters.labels], heads[(clusters.labels + rng.integers(1, CLUSTERS)) % CLUSTERS]
    rest = own != np.arange(len(candidates))
    return {
        "loss_ratio": f"{uniform.loss / max(clusters.loss, 1e-9):.4f}",
        "near_own": f"{_near(costs_s, costs_s[own])[rest].mean():.4f}",
        "near_other": f"{_near(costs_s, costs_s[others])[rest].mean():.4f}",
    }


def _near(costs_s: NDArray[np.float64], others_s: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return a mask of the costs within the share `NEAR` of others, shape (n,)."""
    with np.errstate(invalid="ignore"):
        return np.abs(costs_s / others_s - 1) <= NEAR


@dataclass(frozen=True)
class Watched:
    """A sampler that records the candidates of each iteration."""

    name = "watched"

    sampler: Part[Sampler]
    seen: list[Vectors] = field(default_factory=list)

    def start(self, space: Space) -> Sampler:
        """Return the sampler, ready to tune one task."""
        return _Watching(self.sampler.start(space), self.seen)


class _Watching:
    def __init__(self, sampler: Sampler, seen: list[Vectors]) -> None:
        self._sampler, self._seen = sampler, seen

    def choose(self, candidates: Candidates, history: History, n: int, rng: np.random.Generator) -> Vectors:
        self._seen.append(candidates.vectors)
        best = replace(candidates, vectors=candidates.vectors[:64], scores=candidates.scores[:64])
        return self._sampler.choose(best, history, n, rng)


CLUSTERED = Experiment(
    "clusters",
    ("layer", "variant", "seed", "version"),
    ("candidates", "loss_ratio", "near_own", "near_other"),
    partial(jobs_on_tables, EXPLORERS, SEEDS, ITERATIONS, CANDIDATES, CLUSTERS, NEAR),
    run,
)
