"""The settings that PPO and MAPPO share, for episodes and for training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from anole.search.settings import Range
from anole.space.space import Space

if TYPE_CHECKING:
    import torch

    from anole.search.explore.ppo.networks import Networks


@dataclass(frozen=True)
class Episodes:
    """Parallel episodes, with policies that are trained during the search.

    Attributes:
        horizon: steps between two updates, PPO's T.
        at_once: number of parallel episodes; None runs all in parallel. The papers run them one by one, with an update
            after each, which corresponds to 1 with a `horizon` of `n_steps`.
        begin: start of the episodes: ``random`` configs, the final configs of the ``last`` iteration, or the ``best``
            measured configs for half of the episodes, and random configs for the others.
        converged_share: an episode ends at a step in which at least this share of its knobs stays, as in
            the papers' code; None lets every episode take all steps.
        min_steps: number of initial steps that never end an episode; RELEASE's code has 129.
        normalized_values: whether the critic learns returns in units of their own mean and deviation, as in MAPPO.
        n_candidates: number of the best configs that are proposed; None proposes all configs of all episodes, the
            papers' S_Theta.
        version: incremented when a code change makes the same settings propose different configs; version 1 also
            trained on moves that no policy had chosen.
    """

    later_settings: ClassVar[frozenset[str]] = frozenset({"at_once"})

    n_episodes: Annotated[int, Range(1, 4096)] = 128
    n_steps: Annotated[int, Range(1, 100_000)] = 500
    horizon: Annotated[int, Range(1, 100_000)] = 25
    begin: Literal["random", "last", "best"] = "random"
    converged_share: Annotated[float, Range(0, 1)] | None = 0.75
    min_steps: Annotated[int, Range(0)] = 0
    learning_rate: Annotated[float, Range(0)] = 1e-3
    discount: Annotated[float, Range(0, 1)] = 0.9
    gae_lambda: Annotated[float, Range(0, 1)] = 0.99
    n_epochs: Annotated[int, Range(1, 100)] = 3
    n_minibatches: Annotated[int, Range(1, 4096)] = 6
    clip: Annotated[float, Range(0, 1)] = 0.3
    value_coefficient: Annotated[float, Range(0)] = 1.0
    entropy_coefficient: Annotated[float, Range(0)] = 0.1
    normalized_values: bool = False
    n_candidates: Annotated[int, Range(1)] | None = None
    version: Literal[2] = 2
    at_once: Annotated[int, Range(1, 4096)] | None = None

    def networks(self, space: Space, generator: torch.Generator) -> Networks:
        """Return new policies and a critic for a space."""
        raise NotImplementedError
