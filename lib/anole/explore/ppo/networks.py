"""The policy and value networks."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class ActorCritic(nn.Module):
    """A policy and a value of configs; the first layer is theirs together.

    Chameleon, section 3.2: "the first layer of these networks that takes the current configuration as input is
    shared to foster information sharing". Depth and tanh are those of the public code.

    Args:
        n_knobs: of the space.
        n_hidden: units of every hidden layer.
        shared_layer: whether the first layer is shared; each network has its own otherwise.
        generator: draws the first weights.
    """

    def __init__(self, n_knobs: int, n_hidden: int, shared_layer: bool, generator: torch.Generator) -> None:
        super().__init__()
        self.n_knobs = n_knobs

        def layer(n_in: int, n_out: int, gain: float) -> nn.Linear:
            # A new Linear draws from torch's global generator, which is nobody's business here.
            with torch.random.fork_rng(devices=[]):
                linear = nn.Linear(n_in, n_out)
            nn.init.orthogonal_(linear.weight, gain, generator=generator)
            nn.init.zeros_(linear.bias)
            return linear

        def hidden(n_in: int) -> nn.Sequential:
            return nn.Sequential(layer(n_in, n_hidden, math.sqrt(2)), nn.Tanh())

        self.policy_first = hidden(n_knobs)
        self.value_first = self.policy_first if shared_layer else hidden(n_knobs)
        # A policy starts close to uniform, whatever the state.
        self.policy_rest = nn.Sequential(hidden(n_hidden), layer(n_hidden, 3 * n_knobs, 0.01))
        self.value_rest = nn.Sequential(hidden(n_hidden), layer(n_hidden, 1, 1.0))

    def logits(self, states: Tensor) -> Tensor:
        """Returns the logits of decrement, stay and increment, shape (3, n, n_knobs), of (n, n_knobs) states."""
        logits: Tensor = self.policy_rest(self.policy_first(states))
        # The actions come first because softmax over a short last axis is several times slower.
        return logits.view(-1, 3, self.n_knobs).transpose(0, 1)

    def values(self, states: Tensor) -> Tensor:
        """Returns the values, shape (n,), of states of shape (n, n_knobs)."""
        values: Tensor = self.value_rest(self.value_first(states))
        return values.squeeze(-1)


def log_probabilities(logits: Tensor, allowed: Tensor) -> Tensor:
    """Returns the log-probabilities of actions; those of actions that are not allowed are very low.

    Args:
        logits: shape (n_actions, ...).
        allowed: of the same shape, of bool; at least one action is allowed everywhere.
    """
    # Not -inf, whose product with a probability of zero is no number.
    return torch.log_softmax(logits.masked_fill(~allowed, -1e9), dim=0)
