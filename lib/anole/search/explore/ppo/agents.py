"""The settings of PPO, with one agent for all knobs, and of MAPPO, with several agents that each move some knobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from anole.search.explore.ppo.episodes import Episodes
from anole.search.explore.ppo.explorer import PPOExplorer
from anole.search.roles import Explorer
from anole.search.settings import Range
from anole.space.space import Space

if TYPE_CHECKING:
    import torch

    from anole.search.explore.ppo.networks import Networks


@dataclass(frozen=True)
class PPO(Episodes):
    """PPO: one agent that moves all knobs in every step.

    Ahn et al., "Chameleon" (ICLR 2020), section 3.2 and tables 7 and 9; "Reinforcement Learning and Adaptive
    Sampling for Optimized DNN Compilation" (2019), section 4.1. docs/methods/release.md lists the differences.

    Attributes:
        shared_layer: whether policy and value share their first layer, as in both papers.
        n_hidden: units per hidden layer (two layers); with 20, as in the public code, PPO may learn only half a space.
    """

    name: ClassVar[str] = "ppo"

    shared_layer: bool = True
    n_hidden: Annotated[int, Range(1, 1024)] = 64

    def start(self, space: Space) -> Explorer:
        """Return the explorer, ready to tune one task."""
        return PPOExplorer(self, space)

    def networks(self, space: Space, generator: torch.Generator) -> Networks:
        """Return a new policy network and value network."""
        from anole.search.explore.ppo.networks import ActorCritic

        return ActorCritic(len(space.knobs), self.n_hidden, self.shared_layer, generator)


@dataclass(frozen=True)
class MAPPO(Episodes):
    """MAPPO: agents that each move their own knobs with their own policies, and a critic of the entire config.

    "DCOC" (ASP-DAC 2025), algorithm 1 and section 4.1; Yu et al., "The Surprising Effectiveness of PPO in
    Cooperative, Multi-Agent Games" (2022). The target assigns the knobs to agents; by default there is one agent.

    DCOC takes the constants of its training from the MAPPO paper (section 4.1). The defaults come from that paper's
    code (marlbenchmark/on-policy): `clip`, `entropy_coefficient`, value normalization, gain 0.01 of the policies' last
    layers and Adam's epsilon 1e-5 from ``config.py``; learning rate, epochs and a single minibatch from
    ``train_mpe_spread.sh``, whose rollouts are similar: three agents, 128 episodes, 25 steps. As there, each part of
    an agent's action has its own probability ratio, an agent's entropy is the mean over the parts (``act.py``,
    ``r_mappo.py``), and advantages are standardized over an entire rollout. Omitted are clipped value losses, Huber's
    loss (quadratic up to 10 deviations there), the bound of 10 on gradients, which has no effect with Adam's scaling,
    and layer normalization, which DCOC's networks do not have.

    Episodes are as in Chameleon: `discount` and `gae_lambda`, because with MAPPO's 0.99 and 0.95 most agents have not
    learned to follow a ridge after three searches; and their end, because DCOC's 500 steps are a maximum (table 3).

    Attributes:
        observes: an agent's observation: ``all`` knobs (algorithm 1, line 6), or its ``own``.
        critic: the critic's input: a ``state``, as in MAPPO, or a state and ``actions`` (equation 1): for each agent,
            the actions of the agents before it. docs/methods/dcoc.md explains why its own actions are excluded.
        n_hidden: units per hidden layer: one layer in each policy, three in the critic.
        ratio: the unit whose probability ratio is clipped: each ``knob``, as in the authors' code, whose actions have
            parts, or the joint action of an ``agent``, whose entropy is then the sum over its knobs.
    """

    name: ClassVar[str] = "mappo"

    learning_rate: Annotated[float, Range(0)] = 7e-4
    n_epochs: Annotated[int, Range(1, 100)] = 10
    n_minibatches: Annotated[int, Range(1, 4096)] = 1
    clip: Annotated[float, Range(0, 1)] = 0.2
    entropy_coefficient: Annotated[float, Range(0)] = 0.01
    normalized_values: bool = True
    observes: Literal["all", "own"] = "all"
    critic: Literal["actions", "state"] = "actions"
    n_hidden: Annotated[int, Range(1, 1024)] = 20
    ratio: Literal["knob", "agent"] = "knob"

    def start(self, space: Space) -> Explorer:
        """Return the explorer, ready to tune one task."""
        return PPOExplorer(self, space)

    def networks(self, space: Space, generator: torch.Generator) -> Networks:
        """Return new policies and a critic."""
        from anole.search.explore.ppo.networks import AgentsAndCritic

        return AgentsAndCritic(
            list(space.agents.values()),
            self.n_hidden,
            sees_all=self.observes == "all",
            sees_actions=self.critic == "actions",
            acts_by_knob=self.ratio == "knob",
            generator=generator,
        )
