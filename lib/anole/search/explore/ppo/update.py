"""The PPO update: a few epochs of clipped policy steps on one rollout."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from anole.search.explore.ppo.action_mask import bounded_steps
from anole.search.explore.ppo.episodes import Episodes
from anole.search.explore.ppo.networks import Networks, Scale, log_probabilities
from anole.search.explore.ppo.rollout import Rollout, advantages
from anole.space.space import Space


@dataclass(frozen=True)
class Minibatch:
    """A minibatch of n steps of episodes, as tensors.

    Attributes:
        states: shape (n, n_knobs).
        actions: the actions taken, 0, 1 or 2 for every knob, shape (n, n_knobs).
        allowed: the allowed actions of each knob, shape (n, 3, n_knobs).
        log_probs: the log-probability of each action when it was taken, shape (n, n_actions), see `evaluate_actions`.
        values: the critics' values of the states before the update, shape (n, n_critics).
        returns: the estimated returns, shape (n, n_critics), the targets of the values.
        weights: the standardized advantages of the actions, shape (n, n_critics).
    """

    states: Tensor
    actions: Tensor
    allowed: Tensor
    log_probs: Tensor
    values: Tensor
    returns: Tensor
    weights: Tensor

    @property
    def moves(self) -> Tensor:
        """The step of each knob, -1, 0 or 1, shape (n, n_knobs)."""
        return (self.actions - 1).float()

    def rows(self, rows: Tensor) -> Minibatch:
        """Select steps by their indices."""
        return Minibatch(**{name: tensor[rows] for name, tensor in vars(self).items()})


class Learner:
    """The networks of the agents and their training.

    Schulman et al., "Proximal Policy Optimization Algorithms" (2017), algorithm 1.
    """

    def __init__(self, settings: Episodes, space: Space, rng: np.random.Generator) -> None:
        self.settings, self.space = settings, space
        self._generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        self.networks = settings.networks(space, self._generator)
        self._scale = Scale(fixed=not settings.normalized_values)
        self._optimizer = Adam(self.networks.parameters(), settings.learning_rate)

    @torch.inference_mode()
    def policy(self, states: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the logits of every knob's actions, shape (3, n, n_knobs)."""
        logits: NDArray[np.float32] = self.networks.logits(torch.from_numpy(states)).numpy()
        return logits

    @torch.inference_mode()
    def values(self, states: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the critics' mean values, shape (n,), of states of shape (n, n_knobs) if all knobs stay."""
        return np.asarray(self._values(states, np.zeros_like(states)).mean(axis=-1))

    @torch.no_grad()
    def batch(self, rollout: Rollout, rewards: NDArray[np.float64]) -> Minibatch:
        """Return the training batch of a rollout, given the rewards of the reached states, (n_steps, n_episodes)."""
        settings, live = self.settings, rollout.live
        states = self.space.normalize(rollout.vectors)
        values = self._values(states, self._moves(rollout))
        # With this factor, the value of a config at which all knobs stay equals the config's score.
        scaled = (1 - settings.discount) * rewards
        estimates = advantages(scaled, values, rollout.ended, settings.discount, settings.gae_lambda)[live]
        values = values[:-1][live]
        batch = Minibatch(
            states=torch.from_numpy(states[:-1][live]),
            actions=torch.from_numpy(rollout.actions[live]),
            allowed=torch.from_numpy(rollout.allowed.transpose(0, 2, 1, 3)[live]),
            log_probs=torch.empty(0),
            values=torch.from_numpy(values).float(),
            returns=torch.from_numpy(values + estimates).float(),
            weights=torch.from_numpy(standardize(estimates)).float(),
        )
        log_probs, _ = evaluate_actions(self.networks, batch)
        return replace(batch, log_probs=log_probs)

    def _values(self, states: NDArray[np.float32], moves: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the values, shape (..., n_critics), of states and of the moves from them, (..., n_knobs)."""
        n_knobs = states.shape[-1]
        flat = (torch.from_numpy(array.reshape(-1, n_knobs)) for array in (states, moves))
        predicted = self.networks.values(*flat)
        values: NDArray[np.float64] = self._scale.restore(predicted.double()).numpy()
        return values.reshape(*states.shape[:-1], predicted.shape[-1])

    def _moves(self, rollout: Rollout) -> NDArray[np.float32]:
        """Return the moves from each state, shape (n_steps + 1, n_episodes, n_knobs).

        The moves from the last state are still unknown: the policy's mean moves are used. An ended episode stays.
        """
        last = rollout.vectors[-1]
        logits = torch.from_numpy(self.policy(self.space.normalize(last)))
        bounded = torch.from_numpy(bounded_steps(last, self.space.cardinalities))
        down, _, up = log_probabilities(logits, bounded).exp().numpy()
        return np.concatenate([rollout.actions - 1, (up - down)[None]]).astype(np.float32)

    def learn(self, batch: Minibatch) -> dict[str, float]:
        """Run the epochs of one update and return their mean statistics."""
        self._scale.update(batch.returns)
        steps = [self._step(batch.rows(rows)) for rows in self._minibatches(len(batch.states))]
        means = {name: float(torch.stack([step[name] for step in steps]).mean()) for name in steps[0]}
        return means | {"explained_variance": explained_variance(batch.values, batch.returns)}

    def _minibatches(self, n: int) -> Iterator[Tensor]:
        """Yield the rows of every minibatch of every epoch."""
        for _ in range(self.settings.n_epochs):
            order = torch.randperm(n, generator=self._generator)
            yield from order.tensor_split(min(self.settings.n_minibatches, n))

    def _step(self, batch: Minibatch) -> Mapping[str, Tensor]:
        """Take one gradient step and return its statistics."""
        settings = self.settings
        targets = self._scale.normalize(batch.returns)
        terms = losses(self.networks, replace(batch, returns=targets), settings.clip)
        loss = (
            terms["policy_loss"]
            + settings.value_coefficient * terms["value_loss"]
            - settings.entropy_coefficient * terms["entropy"]
        )
        torch.autograd.backward(loss)
        self._optimizer.step()
        return {name: term.detach() for name, term in terms.items()}


def evaluate_actions(networks: Networks, batch: Minibatch) -> tuple[Tensor, Tensor]:
    """Return the log-probability of every action, (n, n_actions), and the entropy of all policies, (n,).

    By default an agent's action is joint, and its entropy is the sum over its knobs. With `acts_by_knob` each knob's
    step is an action, sorted by agent, and an agent's entropy is the mean over its knobs.
    """
    log_probs = log_probabilities(networks.logits(batch.states), batch.allowed.transpose(0, 1))
    chosen, entropies = log_probs.gather(0, batch.actions[None])[0], -(log_probs.exp() * log_probs).sum(dim=0)
    if networks.acts_by_knob:
        by_knob = torch.cat([chosen[:, knobs] for knobs in networks.agents], dim=-1)
        return by_knob, torch.stack([entropies[:, knobs].mean(dim=-1) for knobs in networks.agents]).sum(dim=0)
    return torch.stack([chosen[:, knobs].sum(dim=-1) for knobs in networks.agents], dim=-1), entropies.sum(dim=-1)


def _expand_to_actions(networks: Networks, weights: Tensor) -> Tensor:
    """Expand advantages from one per critic, shape (n, n_critics), to one per action, (n, n_actions or 1)."""
    if not networks.acts_by_knob or weights.shape[-1] == 1:
        return weights
    sizes = torch.tensor([len(knobs) for knobs in networks.agents])
    return weights.repeat_interleave(sizes, dim=-1)


def losses(networks: Networks, batch: Minibatch, clip: float) -> dict[str, Tensor]:
    """Return the terms of the objective (PPO, equations 7 and 9) and diagnostic statistics.

    Every action's ratio is clipped separately, as in MAPPO, and multiplied by the advantage from its agent's critic, or
    from the shared one; with one agent and one joint action this is PPO. Agents share no weights, so the sum of their
    objectives trains each agent as if it had its own optimizer. `clip` is the paper's epsilon.
    """
    log_probs, entropies = evaluate_actions(networks, batch)
    log_ratio = log_probs - batch.log_probs
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    weights = _expand_to_actions(networks, batch.weights)
    gains = torch.minimum(ratio * weights, clipped * weights).sum(dim=-1)
    return {
        "policy_loss": -gains.mean(),
        "value_loss": (networks.values(batch.states, batch.moves) - batch.returns).square().mean(),
        "entropy": entropies.mean(),
        "approx_kl": (ratio - 1 - log_ratio).detach().mean(),
        "clip_fraction": (ratio != clipped).float().mean(),
    }


def standardize(advantages: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standardize advantages of shape (n, n_critics) to mean 0 and deviation 1 per critic."""
    return np.asarray((advantages - advantages.mean(axis=0)) / (advantages.std(axis=0) + 1e-8))


def explained_variance(values: Tensor, returns: Tensor) -> float:
    """Return the share of the returns' variance explained by the values: 1 is all, 0 no better than a constant."""
    variance = returns.var(correction=0)
    return float(1 - (returns - values).var(correction=0) / variance) if variance > 0 else 0.0


class Adam:
    """The Adam optimizer: Kingma and Ba, "Adam: A Method for Stochastic Optimization" (ICLR 2015), algorithm 1.

    The learning rate is the paper's alpha; epsilon is as in the public PPO codes. `torch.optim.Adam` gives the same
    parameters, but its first use imports torch's compiler, which takes seconds.
    """

    beta1, beta2, epsilon = 0.9, 0.999, 1e-5

    def __init__(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self._n_steps = 0
        self._moments = [(p, torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]

    @torch.no_grad()
    def step(self) -> None:
        """Take one step along the gradients and clear them."""
        self._n_steps += 1
        mean_bias, square_bias = 1 - self.beta1**self._n_steps, 1 - self.beta2**self._n_steps
        for parameter, mean, square in self._moments:
            if parameter.grad is None:
                continue
            mean.lerp_(parameter.grad, 1 - self.beta1)
            square.mul_(self.beta2).addcmul_(parameter.grad, parameter.grad, value=1 - self.beta2)
            deviation = square.sqrt().div_(math.sqrt(square_bias)).add_(self.epsilon)
            parameter.addcdiv_(mean, deviation, value=-self.learning_rate / mean_bias)
            parameter.grad = None
