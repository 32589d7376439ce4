"""Parallel simulated annealing on the surrogate's scores: AutoTVM's explorer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from anole.search.explore.frontier import Frontier, converged_at
from anole.search.explore.unguided import draw
from anole.search.roles import Candidates, Explorer, History, Surrogate
from anole.search.settings import Range
from anole.space.space import Space, Vectors

_N_PROPOSALS = 8
"""Number of neighbors sampled per chain and step; the chain moves to the first valid one."""


@dataclass(frozen=True)
class Annealing:
    """Parallel annealing chains that propose the best configs they visited.

    Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018), section 3.3. The defaults come
    from AutoTVM's ``SimulatedAnnealingOptimizer``, except `n_candidates`. Unlike in AutoTVM, a config with a score
    below zero remains a candidate.

    Attributes:
        n_chains: number of parallel chains; they keep their current configs from one iteration to the next.
        n_steps: steps of every chain in one iteration.
        start_temperature, end_temperature: the temperature falls linearly; scores are about 0 to 1.
        patience: steps without a change of the best candidates after which the search ends early.
        patience_over: number of the best candidates to watch for a change: AutoTVM's plan of 64. AutoTVM's code
            proposes no more than these, unless diversity is enabled; None watches all candidates.
        n_candidates: number of proposed configs: twice AutoTVM's batch of 64, to allow a diverse choice.
    """

    name: ClassVar[str] = "annealing"

    n_chains: Annotated[int, Range(1, 4096)] = 128
    n_steps: Annotated[int, Range(1, 100_000)] = 500
    start_temperature: Annotated[float, Range(0)] = 1.0
    end_temperature: Annotated[float, Range(0)] = 0.0
    patience: Annotated[int, Range(1)] = 50
    patience_over: Annotated[int, Range(1)] | None = 64
    n_candidates: Annotated[int, Range(1)] = 128

    def start(self, space: Space) -> Explorer:
        """Return the explorer, ready to tune one task."""
        return AnnealingExplorer(self, space)


class AnnealingExplorer:
    """The explorer with the settings `Annealing`; it keeps the state of the chains."""

    def __init__(self, settings: Annealing, space: Space) -> None:
        self.settings, self.space = settings, space
        self._movable = np.flatnonzero(space.cardinalities > 1)
        self._points: Vectors | None = None

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        """Return the best configs that the chains visited, or random configs before the surrogate's first fit."""
        settings = self.settings
        if not surrogate.fitted:
            return draw(history, settings.n_candidates, rng)
        points = self.space.sample(settings.n_chains, rng) if self._points is None else self._points
        frontier = Frontier(surrogate, history, settings.n_candidates, settings.patience_over)
        scores, _ = frontier.score(points)
        bests = [float(scores.max(initial=0.0))]
        cooling = (settings.start_temperature - settings.end_temperature) / (settings.n_steps + 1)
        step = last_change = 0
        while step < settings.n_steps and step < last_change + settings.patience:
            temperature = settings.start_temperature - step * cooling
            moved = self._move(points, rng)
            moved_scores, changed = frontier.score(moved)
            bests.append(float(moved_scores.max(initial=0.0)))
            gain = (moved_scores - scores) / (temperature + 1e-5)
            accepted = rng.random(len(points)) < np.exp(np.minimum(gain, 1.0))
            points = np.where(accepted[:, None], moved, points)
            scores = np.where(accepted, moved_scores, scores)
            step += 1
            last_change = step if changed else last_change
        self._points = points
        return frontier.candidates(steps=step, converged_at=converged_at(bests))

    def _move(self, points: Vectors, rng: np.random.Generator) -> Vectors:
        """Return a valid neighbor for each chain; a neighbor differs in one random knob.

        A chain that samples no valid neighbor keeps its config in this step.
        """
        n_chains, n_knobs = points.shape
        if not len(self._movable):
            return points
        n_proposals = _N_PROPOSALS if self.space.constraints else 1
        knobs = self._movable[rng.integers(len(self._movable), size=(n_proposals, n_chains))]
        sizes = self.space.cardinalities[knobs]
        shifts = 1 + (rng.random((n_proposals, n_chains)) * (sizes - 1)).astype(np.int64)
        moved = np.repeat(points[None], n_proposals, axis=0)
        indices = (np.arange(n_proposals)[:, None], np.arange(n_chains)[None, :], knobs)
        moved[indices] = (moved[indices] + shifts) % sizes
        valid = self.space.valid(moved.reshape(-1, n_knobs)).reshape(n_proposals, n_chains)
        first_valid = moved[np.argmax(valid, axis=0), np.arange(n_chains)]
        return np.where(np.any(valid, axis=0)[:, None], first_valid, points)
