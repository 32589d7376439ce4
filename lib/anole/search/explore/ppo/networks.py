"""The policy and value networks of PPO and MAPPO."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

_MIN_VARIANCE = 1e-6
"""Keeps normalized returns finite. The public code has 1e-2, but does not scale its returns by 1 - discount."""


class ActorCritic(nn.Module):
    """A policy and a value network, which can share their first layer.

    Chameleon, section 3.2: "the first layer of these networks that takes the current configuration as input is
    shared to foster information sharing". Depth and tanh are as in the public code.
    """

    def __init__(self, n_knobs: int, n_hidden: int, shared_layer: bool, generator: torch.Generator) -> None:
        super().__init__()
        self.agents: Sequence[Tensor] = [torch.arange(n_knobs)]
        self.acts_by_knob = False
        make = partial(_linear, generator)

        def hidden(n_in: int) -> nn.Sequential:
            return nn.Sequential(make(n_in, n_hidden, math.sqrt(2)), nn.Tanh())

        self.policy_first = hidden(n_knobs)
        self.value_first = self.policy_first if shared_layer else hidden(n_knobs)
        self.policy_rest = nn.Sequential(hidden(n_hidden), make(n_hidden, 3 * n_knobs, _UNIFORM))
        self.value_rest = nn.Sequential(hidden(n_hidden), make(n_hidden, 1, 1.0))

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits of decrement, stay and increment, shape (3, n, n_knobs), of (n, n_knobs) states."""
        return _unflatten(self.policy_rest(self.policy_first(states)))

    def values(self, states: Tensor, moves: Tensor) -> Tensor:
        """Return the values, shape (n, 1), of states of shape (n, n_knobs); the moves from them are ignored."""
        values: Tensor = self.value_rest(self.value_first(states))
        return values


class AgentsAndCritic(nn.Module):
    """A policy for each agent, and a critic that sees all knobs and, optionally, the actions of earlier agents.

    DCOC, section 4.1: policies with one hidden layer and ReLU, a critic with three hidden layers and tanh.

    A critic of actions evaluates a state once per agent, given the moves of the knobs before the agent's first knob.
    Moves are sampled in the order of the knobs, so these moves do not depend on the agent's action, and a baseline
    that sees them does not bias the policy's gradient. A one-hot input identifies the agent to the critic.
    """

    def __init__(
        self,
        agents: Sequence[Sequence[int]],
        n_hidden: int,
        *,
        sees_all: bool,
        sees_actions: bool,
        generator: torch.Generator,
        acts_by_knob: bool = False,
    ) -> None:
        super().__init__()
        self.acts_by_knob = acts_by_knob
        self.agents: Sequence[Tensor] = [torch.tensor(knobs) for knobs in agents]
        self._positions = torch.cat(list(self.agents)).argsort()
        n_knobs = len(self._positions)
        everything = torch.arange(n_knobs)
        self._observed = [everything if sees_all else knobs for knobs in self.agents]
        self._earlier = torch.stack([everything < knobs.min() for knobs in self.agents]) if sees_actions else None
        make = partial(_linear, generator)
        self.policies = nn.ModuleList(
            nn.Sequential(make(len(seen), n_hidden, math.sqrt(2)), nn.ReLU(), make(n_hidden, 3 * len(knobs), _UNIFORM))
            for seen, knobs in zip(self._observed, agents, strict=True)
        )
        sizes = (2 * n_knobs + len(agents) if sees_actions else n_knobs, n_hidden, n_hidden)
        hidden = [layer for n_in in sizes for layer in (make(n_in, n_hidden, math.sqrt(2)), nn.Tanh())]
        self.critic = nn.Sequential(*hidden, make(n_hidden, 1, 1.0))

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits of decrement, stay and increment, shape (3, n, n_knobs), of (n, n_knobs) states."""
        pairs = zip(self.policies, self._observed, strict=True)
        return torch.cat([_unflatten(policy(states[:, seen])) for policy, seen in pairs], dim=2)[:, :, self._positions]

    def values(self, states: Tensor, moves: Tensor) -> Tensor:
        """Return the values, shape (n, n_agents) or (n, 1), of states and of the moves from them, -1, 0 or 1.

        Both have shape (n, n_knobs).
        """
        if self._earlier is None:
            values: Tensor = self.critic(states)
            return values
        shape = (len(self.agents), *states.shape)
        agent_ids = torch.eye(len(self.agents))[:, None].expand(-1, len(states), -1)
        seen = torch.cat([states.expand(shape), moves * self._earlier[:, None], agent_ids], dim=2)
        by_agent: Tensor = self.critic(seen)
        return by_agent.squeeze(-1).T


Networks = ActorCritic | AgentsAndCritic
"""Policies, and a critic with one value for all of them or one per policy; states are configs. `agents` are the
indices of the knobs that each agent moves. With `acts_by_knob`, each knob's step is a separate action."""

_UNIFORM = 0.01
"""Gain of a policy's last layer; makes a new policy close to uniform in every state."""


def _linear(generator: torch.Generator, n_in: int, n_out: int, gain: float) -> nn.Linear:
    """Return a linear layer with orthogonal initial weights."""
    # A new Linear samples from torch's global generator, whose state must not change.
    with torch.random.fork_rng(devices=[]):
        linear = nn.Linear(n_in, n_out)
    nn.init.orthogonal_(linear.weight, gain, generator=generator)
    nn.init.zeros_(linear.bias)
    return linear


def _unflatten(logits: Tensor) -> Tensor:
    """Reshape logits from (n, 3 * n_knobs) to (3, n, n_knobs), since softmax over a short last axis is slow."""
    return logits.view(len(logits), 3, -1).transpose(0, 1)


def log_probabilities(logits: Tensor, allowed: Tensor) -> Tensor:
    """Return the log-probabilities of actions, shape (n_actions, ...); very low for masked actions."""
    # Not -inf: its product with a probability of zero is NaN.
    return torch.log_softmax(logits.masked_fill(~allowed, -1e9), dim=0)


class Scale:
    """MAPPO's value normalization: a critic predicts returns with mean 0 and deviation 1.

    Yu et al., "The Surprising Effectiveness of PPO in Cooperative, Multi-Agent Games" (2022), section 5.1. All updates
    have the same weight, almost as in the authors' ``ValueNorm``, whose running means decay by 1e-5 per update. If
    `fixed`, as in PPO, returns are not scaled.
    """

    def __init__(self, *, fixed: bool) -> None:
        self.fixed = fixed
        self._n_updates, self._mean, self._mean_square = 0, 0.0, 0.0

    def update(self, returns: Tensor) -> None:
        """Add the returns of one update, shape (n,)."""
        if self.fixed:
            return
        self._n_updates += 1
        self._mean += (float(returns.mean()) - self._mean) / self._n_updates
        self._mean_square += (float(returns.square().mean()) - self._mean_square) / self._n_updates

    def normalize(self, returns: Tensor) -> Tensor:
        """Return the critic's targets for returns."""
        return (returns - self._mean) / self._deviation

    def restore(self, predicted: Tensor) -> Tensor:
        """Return the returns that the critic predicts."""
        return predicted * self._deviation + self._mean

    @property
    def _deviation(self) -> float:
        if not self._n_updates:
            return 1.0
        return float(max(self._mean_square - self._mean**2, _MIN_VARIANCE) ** 0.5)
