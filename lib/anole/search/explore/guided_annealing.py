"""Annealing that starts with the default config and the configs with the highest merit: the default explorer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from anole.search.explore.annealing import Annealing, AnnealingExplorer
from anole.search.explore.unguided import draw
from anole.search.roles import Candidates, Explorer, History, Surrogate
from anole.search.settings import Range
from anole.space.space import Space, Vectors

_N_FASTEST = 8
"""Number of the fastest measured configs at which chains restart."""


@dataclass(frozen=True)
class GuidedAnnealing(Annealing):
    """Annealing whose first candidates are the default config and mostly the configs with the highest merit.

    Before the first measurement, a template's analytical model of memory traffic and compute already predicts speed
    better than chance. Interleaved random candidates cover what the model misses. The default config comes first,
    because a search has to beat it, and where this is hard, good configs are near it. If the surrogate is fitted from
    the start, by the space's merit, annealing begins immediately, and the default config has no priority. Our own
    method, not from a paper.

    Attributes:
        led_share: share of the configs with the highest merit among the candidates before the surrogate's first fit;
            all candidates are uniformly random if the space defines no merit.
        n_restarted: number of chains that restart in each iteration, at the fastest eight measured configs.
        n_per_shared: number of configs that are tried first for each combination of shared knobs, see `Space.leaders`.
    """

    name: ClassVar[str] = "guided_annealing"

    led_share: Annotated[float, Range(0, 1)] = 0.75
    n_restarted: Annotated[int, Range(0)] = 128
    n_per_shared: Annotated[int, Range(0)] = 1

    def start(self, space: Space) -> Explorer:
        """Return the explorer, ready to tune one task."""
        return _GuidedExplorer(self, space)


class _GuidedExplorer(AnnealingExplorer):
    settings: GuidedAnnealing
    _leaders: Vectors | None = None

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        space = history.space
        if self._leaders is None:
            self._leaders = space.leaders(self.settings.n_per_shared, rng)
        leaders = self._leaders[~np.isin(space.identities(self._leaders), history.visited)]
        candidates = self._propose(surrogate, history, rng)
        if not len(leaders):
            return candidates
        is_other = ~np.isin(space.identities(candidates.vectors), space.identities(leaders))
        vectors = np.concatenate([leaders, candidates.vectors[is_other]])
        return replace(candidates, vectors=vectors, scores=np.zeros(len(vectors)))

    def _propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        if surrogate.fitted:
            self._restart(history, rng)
            return super().propose(surrogate, history, rng)
        space, n, share = history.space, self.settings.n_candidates, self.settings.led_share
        first = history.default[~np.isin(space.identities(history.default), history.visited)]
        leading = space.promising(round(share * n), rng, exclude=np.append(history.visited, space.identities(first)))
        uniform = draw(history, n, rng)
        proposed = space.identities(np.concatenate([first, leading]))
        others = uniform.vectors[~np.isin(space.identities(uniform.vectors), proposed)]
        vectors = np.concatenate([first, interleave(leading, others, share)])[:n]
        return replace(uniform, vectors=vectors, scores=np.zeros(len(vectors)))

    def _restart(self, history: History, rng: np.random.Generator) -> None:
        """Move the first chains to the fastest measured configs."""
        points = self.space.sample(self.settings.n_chains, rng) if self._points is None else self._points
        fastest = np.argsort(-history.gflops, kind="stable")[:_N_FASTEST]
        if len(fastest := fastest[history.gflops[fastest] > 0]):
            n_restarted = min(self.settings.n_restarted, len(points))
            points = np.concatenate([history.vectors[np.resize(fastest, n_restarted)], points[n_restarted:]])
        self._points = points


def interleave(first: Vectors, second: Vectors, share: float) -> Vectors:
    """Interleave the rows of both in order; any prefix has about `share` of its rows from `first`."""
    ranks = [(np.arange(len(rows)) + 0.5) / max(of, 1e-9) for rows, of in ((first, share), (second, 1.0 - share))]
    return np.concatenate([first, second])[np.argsort(np.concatenate(ranks), kind="stable")]
