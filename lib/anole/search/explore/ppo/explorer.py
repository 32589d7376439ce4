"""The PPO explorers: agents that learn, on the surrogate's word, which way the good configs are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from anole.search.explore.frontier import Frontier
from anole.search.explore.ppo.rollout import Rollout, roll_out
from anole.search.explore.random import draw
from anole.search.roles import Candidates, Explorer, History, Surrogate
from anole.search.settings import Range
from anole.space.space import Space, Vectors

if TYPE_CHECKING:
    import torch

    from anole.search.explore.ppo.networks import Networks
    from anole.search.explore.ppo.update import Learner

_CHUNK = 1024
"""Configs that are scored at once; their features stay within the processor's cache."""


@dataclass(frozen=True)
class Episodes:
    """Episodes side by side, walked by policies that are trained while they walk: what PPO and MAPPO have in common.

    Attributes:
        n_episodes: episodes side by side.
        n_steps: steps of an episode at most.
        horizon: steps between two updates, PPO's T; the papers walk whole episodes, one after the other.
        begin: where episodes begin: at ``random`` configs, where those of the ``last`` iteration stood, or half
            of them at the ``best`` measured configs and half at random.
        converged_share: an episode ends when at least this share of its knobs stays in one step, as in
            RELEASE's code; null lets every episode take all steps.
        n_minibatches: of every epoch.
        n_candidates: how many of the best are handed over; null for all configs of all episodes, the papers'
            S_Theta.
    """

    n_episodes: Annotated[int, Range(1, 4096)] = 128
    n_steps: Annotated[int, Range(1, 100_000)] = 500
    horizon: Annotated[int, Range(1, 100_000)] = 25
    begin: Literal["random", "last", "best"] = "random"
    converged_share: Annotated[float, Range(0, 1)] | None = 0.75
    learning_rate: Annotated[float, Range(0)] = 1e-3
    discount: Annotated[float, Range(0, 1)] = 0.9
    gae_lambda: Annotated[float, Range(0, 1)] = 0.99
    n_epochs: Annotated[int, Range(1, 100)] = 3
    n_minibatches: Annotated[int, Range(1, 4096)] = 6
    clip: Annotated[float, Range(0, 1)] = 0.3
    value_coefficient: Annotated[float, Range(0)] = 1.0
    entropy_coefficient: Annotated[float, Range(0)] = 0.1
    n_candidates: Annotated[int, Range(1)] | None = None

    def start(self, space: Space) -> Explorer:
        """Returns the explorer, ready to tune one task."""
        return _PPOExplorer(self, space)

    def networks(self, space: Space, generator: torch.Generator) -> Networks:
        """Returns new policies and a critic for a space."""
        raise NotImplementedError


@dataclass(frozen=True)
class PPO(Episodes):
    """One agent, which moves all knobs at once.

    Ahn et al., "Chameleon" (ICLR 2020), section 3.2 and tables 7 and 9; "Reinforcement Learning and Adaptive
    Sampling for Optimized DNN Compilation" (2019), section 4.1. Where this differs: docs/methods/release.md.

    Attributes:
        shared_layer: whether policy and value share their first layer, as in both papers.
        n_hidden: units of each of the two hidden layers; the public code's 20 now and then learn only half of a space.
    """

    name: ClassVar[str] = "ppo"

    shared_layer: bool = True
    n_hidden: Annotated[int, Range(1, 1024)] = 64

    def networks(self, space: Space, generator: torch.Generator) -> Networks:
        """Returns a new policy and value."""
        from anole.search.explore.ppo.networks import ActorCritic

        return ActorCritic(len(space.knobs), self.n_hidden, self.shared_layer, generator)


@dataclass(frozen=True)
class MAPPO(Episodes):
    """Agents that each move their own knobs by a policy of their own, and a critic that sees all of them.

    "DCOC" (ASP-DAC 2025), algorithm 1 and section 4.1; Yu et al., "The Surprising Effectiveness of PPO in
    Cooperative, Multi-Agent Games" (2022). The target says which knobs are whose; else there is one agent.

    Attributes:
        n_hidden: units of every hidden layer: one of each policy, three of the critic.
    """

    name: ClassVar[str] = "mappo"

    converged_share: Annotated[float, Range(0, 1)] | None = None
    n_hidden: Annotated[int, Range(1, 1024)] = 20

    def networks(self, space: Space, generator: torch.Generator) -> Networks:
        """Returns new policies and a critic."""
        from anole.search.explore.ppo.networks import AgentsAndCritic

        return AgentsAndCritic(list(space.agents.values()), self.n_hidden, generator)


class _PPOExplorer:
    def __init__(self, settings: Episodes, space: Space) -> None:
        self.settings, self.space = settings, space
        self._learner: Learner | None = None
        self._last: Vectors | None = None

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        if not surrogate.fitted:
            return draw(history, self.settings.n_candidates or self.settings.n_episodes, rng)
        with _one_thread():
            return self._search(surrogate, history, rng)

    def _search(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        from anole.search.explore.ppo.update import Learner

        settings = self.settings
        if self._learner is None:
            self._learner = Learner(settings, self.space, rng)
        frontier = Frontier(surrogate, history, settings.n_candidates or self.space.size)
        vectors = self._begin(history, rng)
        frontier.score(vectors)
        live = np.ones(len(vectors), dtype=bool)
        lengths = np.zeros(len(vectors), dtype=np.int64)
        n_steps, updates = 0, defaultdict[str, list[float]](list)
        while live.any() and n_steps < settings.n_steps and not self._is_known(frontier):
            horizon = min(settings.horizon, settings.n_steps - n_steps)
            rollout = roll_out(self.space, self._learner.policy, vectors, live, horizon, settings.converged_share, rng)
            for name, value in self._learner.learn(self._learner.batch(rollout, _rewards(frontier, rollout))).items():
                updates[name].append(value)
            vectors, live = rollout.vectors[-1], rollout.live[-1] & ~rollout.ended[-1]
            lengths += rollout.live.sum(axis=0)
            n_steps += len(rollout.live)
        self._last = vectors
        found = frontier.candidates(
            steps=n_steps,
            episode_steps=float(lengths.mean()),
            updates=len(updates["policy_loss"]),
            **{name: float(np.mean(values)) for name, values in updates.items() if values},
        )
        return replace(found, values=self._learner.values(self.space.normalized(found.vectors)))

    def _begin(self, history: History, rng: np.random.Generator) -> Vectors:
        """Returns where the episodes begin, shape (at most n_episodes, n_knobs)."""
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
    """Keeps torch to one thread: the networks are small, and results do not depend on the machine's cores."""
    import torch

    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)
