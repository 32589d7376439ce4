"""The search of PPO and MAPPO: episodes that learn from the surrogate's scores how to reach good configs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from anole.search.explore.frontier import Frontier, converged_at
from anole.search.explore.ppo.action_mask import ActionMask
from anole.search.explore.ppo.episodes import Episodes
from anole.search.explore.ppo.rollout import Rollout, roll_out
from anole.search.explore.random import draw
from anole.search.roles import Candidates, History, Surrogate
from anole.space.space import Space, Vectors

if TYPE_CHECKING:
    from anole.search.explore.ppo.update import Learner

_CHUNK = 1024
"""Number of configs scored at once, so that their features stay within the processor's cache."""


class PPOExplorer:
    """Walks episodes from the configured start and proposes the best configs that they visited."""

    def __init__(self, settings: Episodes, space: Space) -> None:
        self.settings, self.space = settings, space
        self._learner: Learner | None = None
        self._mask: ActionMask | None = None
        self._last: Vectors | None = None

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        """Returns candidates; before the surrogate's first fit they are drawn uniformly."""
        if not surrogate.fitted:
            return draw(history, self.settings.n_candidates or self.settings.n_episodes, rng)
        with _one_thread():
            return self._search(surrogate, history, rng)

    def _search(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        from anole.search.explore.ppo.update import Learner

        settings = self.settings
        if self._learner is None:
            self._learner = Learner(settings, self.space, rng)
        if self._mask is None:
            self._mask = ActionMask(self.space)
        frontier = Frontier(surrogate, history, settings.n_candidates or self.space.size)
        vectors = self._begin(history, rng)
        bests = [float(frontier.score(vectors)[0].max(initial=0.0))]
        live = np.ones(len(vectors), dtype=bool)
        lengths = np.zeros(len(vectors), dtype=np.int64)
        n_steps, updates = 0, defaultdict[str, list[float]](list)
        while live.any() and n_steps < settings.n_steps and not self._is_known(frontier):
            horizon = min(settings.horizon, settings.n_steps - n_steps)
            rollout = roll_out(
                self._mask,
                self._learner.policy,
                vectors,
                live,
                horizon,
                settings.converged_share,
                rng,
                n_endless=settings.min_steps - n_steps,
            )
            rewards = _rewards(frontier, rollout)
            bests += rewards.max(axis=1).tolist()
            for name, value in self._learner.learn(self._learner.batch(rollout, rewards)).items():
                updates[name].append(value)
            vectors, live = rollout.vectors[-1], rollout.live[-1] & ~rollout.ended[-1]
            lengths += rollout.live.sum(axis=0)
            n_steps += len(rollout.live)
        self._last = vectors
        found = frontier.candidates(
            steps=n_steps,
            converged_at=converged_at(bests),
            episode_steps=float(lengths.mean()),
            updates=len(updates["policy_loss"]),
            **{name: float(np.mean(values)) for name, values in updates.items() if values},
        )
        return replace(found, values=self._learner.values(self.space.normalized(found.vectors)))

    def _begin(self, history: History, rng: np.random.Generator) -> Vectors:
        """Returns the first configs of the episodes, shape (at most n_episodes, n_knobs)."""
        n = self.settings.n_episodes
        if self.settings.begin == "last" and self._last is not None:
            return self._last
        if self.settings.begin == "best":
            best = history.vectors[np.argsort(-history.gflops, kind="stable")[: n // 2]]
            return np.concatenate([best, self.space.sample(n - len(best), rng)])
        return self.space.sample(n, rng)

    def _is_known(self, frontier: Frontier) -> bool:
        """Whether every config has been scored, so that there is nothing left to find."""
        valid = self.space.valid_indices
        return valid is not None and len(frontier) == len(valid)


def _rewards(frontier: Frontier, rollout: Rollout) -> NDArray[np.float64]:
    """Returns the scores of the configs that live episodes reached, shape (n_steps, n_episodes); others are 0."""
    rewards = np.zeros(rollout.live.shape)
    reached = rollout.vectors[1:][rollout.live]
    rows = range(0, len(reached), _CHUNK)
    rewards[rollout.live] = np.concatenate([frontier.score(reached[row : row + _CHUNK])[0] for row in rows])
    return rewards


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limits torch to one thread: the networks are small, and results must not depend on the number of cores."""
    import torch

    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)
