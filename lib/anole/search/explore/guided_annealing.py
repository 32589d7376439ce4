"""Annealing that starts with the default config and the configs of most merit: the default explorer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from anole.search.explore.annealing import Annealing, AnnealingExplorer
from anole.search.explore.random import draw
from anole.search.roles import Candidates, Explorer, History, Surrogate
from anole.search.settings import Range
from anole.space.space import Space, Vectors


@dataclass(frozen=True)
class GuidedAnnealing(Annealing):
    """Annealing whose first candidates are the default config and mostly the configs of most merit.

    Before anything is measured, a template already knows what its configs read, write and compute, which predicts more
    than chance. Uniform candidates in between cover what it does not know. The default config comes first: a search
    has to find something better, and where it is hard to find anything as good, it is where to look. A surrogate that
    knows the space's merit from the start is walked on at once; then the default config is one of many. Our own
    method, not from a paper.

    Attributes:
        led_share: share of the configs of most merit among the candidates before the surrogate's first fit; all
            candidates are uniform if the space defines no merit.
    """

    name: ClassVar[str] = "guided_annealing"

    led_share: Annotated[float, Range(0, 1)] = 0.75

    def start(self, space: Space) -> Explorer:
        """Return the explorer, ready to tune one task."""
        return _GuidedExplorer(self, space)


class _GuidedExplorer(AnnealingExplorer):
    settings: GuidedAnnealing

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        if surrogate.fitted:
            return super().propose(surrogate, history, rng)
        space, n, share = history.space, self.settings.n_candidates, self.settings.led_share
        first = history.default[~np.isin(space.identities(history.default), history.visited)]
        led = space.promising(round(share * n), rng, exclude=np.append(history.visited, space.identities(first)))
        uniform = draw(history, n, rng)
        known = space.identities(np.concatenate([first, led]))
        fresh = uniform.vectors[~np.isin(space.identities(uniform.vectors), known)]
        vectors = np.concatenate([first, merged(led, fresh, share)])[:n]
        return replace(uniform, vectors=vectors, scores=np.zeros(len(vectors)))


def merged(first: Vectors, second: Vectors, share: float) -> Vectors:
    """Interleave the rows of both in order, so that any prefix has about `share` of its rows from `first`."""
    places = [(np.arange(len(rows)) + 0.5) / max(of, 1e-9) for rows, of in ((first, share), (second, 1.0 - share))]
    return np.concatenate([first, second])[np.argsort(np.concatenate(places), kind="stable")]
