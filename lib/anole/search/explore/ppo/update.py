"""The PPO update: a few epochs of clipped policy steps on one rollout."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from anole.search.explore.ppo.action_mask import within
from anole.search.explore.ppo.episodes import Episodes
from anole.search.explore.ppo.networks import Networks, Scale, log_probabilities
from anole.search.explore.ppo.rollout import Rollout, advantages
from anole.space.space import Space


@dataclass(frozen=True)
class Minibatch:
    """n steps of episodes, as tensors.

    Attributes:
        states: shape (n, n_knobs).
        actions: the actions taken, 0, 1 or 2 for every knob, shape (n, n_knobs).
        allowed: the allowed actions of each knob, shape (n, 3, n_knobs).
        log_probs: the log-probability of each action when it was taken, shape (n, n_actions), see `judge`.
        values: the critics' values of the states when they were left, shape (n, n_critics).
        returns: the estimated returns, shape (n, n_critics), to which the values are fitted.
        weights: the advantages of the actions with mean 0 and deviation 1, shape (n, n_critics).
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
        """Return some of the steps."""
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
        """Return the critics' mean values, shape (n,), of states of shape (n, n_knobs) at which a search stays."""
        return np.asarray(self._values(states, np.zeros_like(states)).mean(axis=-1))

    @torch.no_grad()
    def batch(self, rollout: Rollout, rewards: NDArray[np.float64]) -> Minibatch:
        """Return the steps of a rollout, with the rewards of what they reached, shape (n_steps, n_episodes)."""
        settings, live = self.settings, rollout.live
        states = self.space.normalized(rollout.vectors)
        values = self._values(states, self._moves(rollout))
        # Scaled, so that the value of a config at which a search rests is the config's score.
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
            weights=torch.from_numpy(standardized(estimates)).float(),
        )
        log_probs, _ = judge(self.networks, batch)
        return replace(batch, log_probs=log_probs)

    def _values(self, states: NDArray[np.float32], moves: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the values, shape (..., n_critics), of states and of the moves that leave them, (..., n_knobs)."""
        n_knobs = states.shape[-1]
        flat = (torch.from_numpy(each.reshape(-1, n_knobs)) for each in (states, moves))
        predicted = self.networks.values(*flat)
        values: NDArray[np.float64] = self._scale.restored(predicted.double()).numpy()
        return values.reshape(*states.shape[:-1], predicted.shape[-1])

    def _moves(self, rollout: Rollout) -> NDArray[np.float32]:
        """Return the moves that left each state, shape (n_steps + 1, n_episodes, n_knobs).

        The last state is not left yet, so that its moves are what the policy does on average. One whose episode has
        ended stays.
        """
        last = rollout.vectors[-1]
        logits = torch.from_numpy(self.policy(self.space.normalized(last)))
        bounded = torch.from_numpy(within(last, self.space.cardinalities))
        down, _, up = log_probabilities(logits, bounded).exp().numpy()
        return np.concatenate([rollout.actions - 1, (up - down)[None]]).astype(np.float32)

    def learn(self, batch: Minibatch) -> dict[str, float]:
        """Run the epochs of one update and return their mean statistics."""
        self._scale.update(batch.returns)
        figures = [self._step(batch.rows(rows)) for rows in self._minibatches(len(batch.states))]
        means = {name: float(torch.stack([figure[name] for figure in figures]).mean()) for name in figures[0]}
        return means | {"explained_variance": explained_variance(batch.values, batch.returns)}

    def _minibatches(self, n: int) -> Iterator[Tensor]:
        """Yield the rows of every minibatch of every epoch."""
        for _ in range(self.settings.n_epochs):
            order = torch.randperm(n, generator=self._generator)
            yield from order.tensor_split(min(self.settings.n_minibatches, n))

    def _step(self, batch: Minibatch) -> Mapping[str, Tensor]:
        """Take one gradient step and return its statistics."""
        settings = self.settings
        targets = self._scale.normalized(batch.returns)
        figures = losses(self.networks, replace(batch, returns=targets), settings.clip)
        loss = (
            figures["policy_loss"]
            + settings.value_coefficient * figures["value_loss"]
            - settings.entropy_coefficient * figures["entropy"]
        )
        torch.autograd.backward(loss)
        self._optimizer.step()
        return {name: figure.detach() for name, figure in figures.items()}


def judge(networks: Networks, batch: Minibatch) -> tuple[Tensor, Tensor]:
    """Return the log-probability of every action, (n, n_actions), and the entropy of all policies, (n,).

    An agent's action is joint, with the sum of its knobs' entropies; or each knob's step is an action, those of the
    first agent first, and an agent has their mean entropy.
    """
    log_probs = log_probabilities(networks.logits(batch.states), batch.allowed.transpose(0, 1))
    done, entropies = log_probs.gather(0, batch.actions[None])[0], -(log_probs.exp() * log_probs).sum(dim=0)
    if networks.acts_by_knob:
        by_knob = torch.cat([done[:, knobs] for knobs in networks.agents], dim=-1)
        return by_knob, torch.stack([entropies[:, knobs].mean(dim=-1) for knobs in networks.agents]).sum(dim=0)
    return torch.stack([done[:, knobs].sum(dim=-1) for knobs in networks.agents], dim=-1), entropies.sum(dim=-1)


def _of_each_action(networks: Networks, weights: Tensor) -> Tensor:
    """Return the advantages of actions, shape (n, n_actions or 1), given those by each critic, (n, n_critics)."""
    if not networks.acts_by_knob or weights.shape[-1] == 1:
        return weights
    sizes = torch.tensor([len(knobs) for knobs in networks.agents])
    return weights.repeat_interleave(sizes, dim=-1)


def losses(networks: Networks, batch: Minibatch, clip: float) -> dict[str, Tensor]:
    """Return the terms of the objective (PPO, equations 7 and 9) and diagnostic statistics.

    Every action's ratio is clipped separately, as in MAPPO, and weighs the advantage by its agent's critic, or by the
    one that all share; with one agent and one joint action this is PPO. Agents share no weights, so that the sum of
    their objectives trains each of them as the optimizer of its own would, whatever their number. `clip` is the paper's
    epsilon.
    """
    log_probs, entropies = judge(networks, batch)
    log_ratio = log_probs - batch.log_probs
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    weights = _of_each_action(networks, batch.weights)
    gains = torch.minimum(ratio * weights, clipped * weights).sum(dim=-1)
    return {
        "policy_loss": -gains.mean(),
        "value_loss": (networks.values(batch.states, batch.moves) - batch.returns).square().mean(),
        "entropy": entropies.mean(),
        "approx_kl": (ratio - 1 - log_ratio).detach().mean(),
        "clip_fraction": (ratio != clipped).float().mean(),
    }


def standardized(advantages: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return advantages, each critic's with mean 0 and deviation 1, shape (n, n_critics)."""
    return np.asarray((advantages - advantages.mean(axis=0)) / (advantages.std(axis=0) + 1e-8))


def explained_variance(values: Tensor, returns: Tensor) -> float:
    """Return the share of the returns' variance that the values explain: 1 is all, 0 no better than a constant."""
    variance = returns.var(correction=0)
    return float(1 - (returns - values).var(correction=0) / variance) if variance > 0 else 0.0


class Adam:
    """Kingma and Ba, "Adam: A Method for Stochastic Optimization" (ICLR 2015), algorithm 1.

    The learning rate is the paper's alpha; epsilon is that of the public PPO codes.
    """

    beta1, beta2, epsilon = 0.9, 0.999, 1e-5

    def __init__(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self._n_steps = 0
        self._moments = [(p, torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]

    @torch.no_grad()
    def step(self) -> None:
        """Take one step along the gradients and clears them."""
        self._n_steps += 1
        first_bias, second_bias = 1 - self.beta1**self._n_steps, 1 - self.beta2**self._n_steps
        for parameter, first, second in self._moments:
            if parameter.grad is None:
                continue
            first.lerp_(parameter.grad, 1 - self.beta1)
            second.mul_(self.beta2).addcmul_(parameter.grad, parameter.grad, value=1 - self.beta2)
            deviation = second.sqrt().div_(math.sqrt(second_bias)).add_(self.epsilon)
            parameter.addcdiv_(first, deviation, value=-self.learning_rate / first_bias)
            parameter.grad = None
