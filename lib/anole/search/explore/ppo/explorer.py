"""The search of PPO and MAPPO: episodes whose rewards are the surrogate's scores of the visited configs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from anole.search.explore.frontier import Frontier, converged_at
from anole.search.explore.ppo.action_mask import ActionMask
from anole.search.explore.ppo.episodes import Episodes
from anole.search.explore.ppo.rollout import Rollout, roll_out
from anole.search.explore.unguided import draw
from anole.search.roles import Candidates, History, Surrogate
from anole.space.space import Space, Vectors

if TYPE_CHECKING:
    from anole.search.explore.ppo.update import Learner

_BATCH_SIZE = 1024
"""Number of configs scored together, which keeps their features in the processor's cache."""


@dataclass
class _Walk:
    """A group of parallel episodes.

    Attributes:
        ends: their last configs, shape (n_episodes, n_knobs).
        lengths: steps of each episode, shape (n_episodes,).
        n_steps: steps of the longest episode.
        updates: the statistics of each update.
    """

    ends: Vectors
    lengths: NDArray[np.int64]
    n_steps: int = 0
    updates: list[dict[str, float]] = field(default_factory=list)


class PPOExplorer:
    """An explorer that runs episodes from the configured start and proposes the best configs that they visited."""

    def __init__(self, settings: Episodes, space: Space) -> None:
        self.settings, self.space = settings, space
        self._learner: Learner | None = None
        self._mask: ActionMask | None = None
        self._last: Vectors | None = None

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        """Return candidates; before the surrogate's first fit they are sampled uniformly."""
        if not surrogate.fitted:
            return draw(history, self.settings.n_candidates or self.settings.n_episodes, rng)
        with _limit_to_one_thread():
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
        walks = [
            self._walk(self._mask, self._learner, group, frontier, bests, rng)
            for group in np.array_split(vectors, -(-len(vectors) // (settings.at_once or len(vectors))))
        ]
        self._last = np.concatenate([walk.ends for walk in walks])
        updates = [update for walk in walks for update in walk.updates]
        candidates = frontier.candidates(
            steps=sum(walk.n_steps for walk in walks),
            converged_at=converged_at(bests),
            episode_steps=float(np.concatenate([walk.lengths for walk in walks]).mean()),
            updates=len(updates),
            **{name: float(np.mean([update[name] for update in updates])) for name in (updates[0] if updates else ())},
        )
        return replace(candidates, values=self._learner.values(self.space.normalize(candidates.vectors)))

    def _walk(
        self,
        mask: ActionMask,
        learner: Learner,
        vectors: Vectors,
        frontier: Frontier,
        bests: list[float],
        rng: np.random.Generator,
    ) -> _Walk:
        """Run parallel episodes until all have ended, train on them, and append the best score of each step."""
        settings, live = self.settings, np.ones(len(vectors), dtype=bool)
        walk = _Walk(vectors, np.zeros(len(vectors), dtype=np.int64))
        while live.any() and walk.n_steps < settings.n_steps and not self._is_known(frontier):
            rollout = roll_out(
                mask,
                learner.policy,
                walk.ends,
                live,
                min(settings.horizon, settings.n_steps - walk.n_steps),
                settings.converged_share,
                rng,
                n_endless=settings.min_steps - walk.n_steps,
            )
            rewards = _rewards(frontier, rollout)
            bests += rewards.max(axis=1).tolist()
            walk.updates.append(learner.learn(learner.batch(rollout, rewards)))
            walk.ends, live = rollout.vectors[-1], rollout.live[-1] & ~rollout.ended[-1]
            walk.lengths += rollout.live.sum(axis=0)
            walk.n_steps += len(rollout.live)
        return walk

    def _begin(self, history: History, rng: np.random.Generator) -> Vectors:
        """Return the first configs of the episodes, shape (at most n_episodes, n_knobs)."""
        n = self.settings.n_episodes
        if self.settings.begin == "last" and self._last is not None:
            return self._last
        if self.settings.begin == "best":
            best = history.vectors[np.argsort(-history.gflops, kind="stable")[: n // 2]]
            return np.concatenate([best, self.space.sample(n - len(best), rng)])
        return self.space.sample(n, rng)

    def _is_known(self, frontier: Frontier) -> bool:
        """Whether every valid config has been scored."""
        valid = self.space.valid_indices
        return valid is not None and len(frontier) == len(valid)


def _rewards(frontier: Frontier, rollout: Rollout) -> NDArray[np.float64]:
    """Return the scores of the configs that live episodes reached, shape (n_steps, n_episodes); others are 0."""
    rewards = np.zeros(rollout.live.shape)
    reached = rollout.vectors[1:][rollout.live]
    rows = range(0, len(reached), _BATCH_SIZE)
    rewards[rollout.live] = np.concatenate([frontier.score(reached[row : row + _BATCH_SIZE])[0] for row in rows])
    return rewards


@contextmanager
def _limit_to_one_thread() -> Iterator[None]:
    """Limit torch to one thread: the networks are small, and results must not depend on the number of cores."""
    import torch

    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)
