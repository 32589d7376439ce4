"""Rollouts: parallel episodes in a space, in which a step moves each knob one value down, one up or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anole.search.explore.ppo.action_mask import ActionMask
from anole.space.space import Vectors

Policy = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""Maps states, shape (n, n_knobs), to the logits of decrement, stay and increment, shape (3, n, n_knobs)."""


@dataclass(frozen=True)
class Rollout:
    """The paths of parallel episodes.

    Attributes:
        vectors: index vectors before each step and after the last, shape (n_steps + 1, n_episodes, n_knobs).
        live: mask of the episodes that took part in a step, shape (n_steps, n_episodes); the others stand still.
        ended: mask of the episodes that ended with a step, shape (n_steps, n_episodes).
        allowed: the action mask of each knob, shape (n_steps, 3, n_episodes, n_knobs).
    """

    vectors: NDArray[np.int64]
    live: NDArray[np.bool_]
    ended: NDArray[np.bool_]
    allowed: NDArray[np.bool_]

    @property
    def actions(self) -> NDArray[np.int64]:
        """The actions, shape (n_steps, n_episodes, n_knobs): 0 decrement, 1 stay, 2 increment."""
        return np.diff(self.vectors, axis=0) + 1


def roll_out(
    mask: ActionMask,
    policy: Policy,
    vectors: Vectors,
    live: NDArray[np.bool_],
    n_steps: int,
    converged_share: float | None,
    rng: np.random.Generator,
    n_endless: int = 0,
) -> Rollout:
    """Continue episodes from index vectors until all have ended, or for `n_steps` steps.

    An episode converges and ends at a step in which at least `converged_share` of its knobs stay. The rule comes from
    the papers' code, which also counts knobs that move to a boundary; the action mask makes those at one stay.

    Args:
        mask: the steps that the space allows.
        policy: gives the probabilities of the steps.
        vectors: current configs of the episodes, shape (n_episodes, n_knobs).
        live: mask of the episodes that have not ended, shape (n_episodes,).
        n_steps: max number of steps.
        converged_share: the share of the knobs with more than one value that must stay to end an episode; None ends no
            episode.
        rng: samples the steps.
        n_endless: number of initial steps that never end an episode.
    """
    movable = mask.space.cardinalities > 1
    path = [vectors]
    lives: list[NDArray[np.bool_]] = []
    ends: list[NDArray[np.bool_]] = []
    masks: list[NDArray[np.bool_]] = []
    while live.any() and len(lives) < n_steps:
        sampled, allowed = move(mask, vectors, policy(mask.space.normalize(vectors)), rng)
        moved = np.where(live[:, None], sampled, vectors)
        ended = np.zeros_like(live)
        if converged_share is not None and movable.any() and len(lives) >= n_endless:
            staying = (moved == vectors)[:, movable].mean(axis=1)
            ended = live & (staying >= converged_share)
        path.append(moved)
        lives.append(live)
        ends.append(ended)
        masks.append(allowed)
        vectors, live = moved, live & ~ended
    shape = (len(lives), len(vectors))
    return Rollout(
        np.array(path),
        np.array(lives, dtype=bool).reshape(shape),
        np.array(ends, dtype=bool).reshape(shape),
        np.array(masks, dtype=bool).reshape(len(masks), 3, *vectors.shape),
    )


def move(
    mask: ActionMask, vectors: Vectors, logits: NDArray[np.float32], rng: np.random.Generator
) -> tuple[Vectors, NDArray[np.bool_]]:
    """Sample a joint move for each episode: one allowed step per knob, one knob after the other.

    Return the index vectors after the move, shape (n_episodes, n_knobs), and the action mask of each knob, shape
    (3, n_episodes, n_knobs) as the logits.
    """
    moved = vectors.copy()
    allowed = np.empty(logits.shape, dtype=bool)
    uniform = rng.random(vectors.shape)
    for knob in range(vectors.shape[1]):
        allowed[:, :, knob] = mask.allowed_steps(moved, knob)
        moved[:, knob] += _steps(allowed[:, :, knob], logits[:, :, knob], uniform[:, knob])
    return moved, allowed


def _steps(allowed: NDArray[np.bool_], logits: NDArray[np.float32], uniform: NDArray[np.float64]) -> NDArray[np.int64]:
    """Sample allowed steps of -1, 0 or 1 by inverse transform of uniform random values, shape (n,)."""
    masked = np.where(allowed, logits, -np.inf)
    down, stay, up = np.exp(masked - masked.max(axis=0))
    thresholds = uniform * (down + stay + up)
    return np.asarray((thresholds >= down + stay).astype(np.int64) - (thresholds < down))


def advantages(
    rewards: NDArray[np.float64],
    values: NDArray[np.float64],
    ended: NDArray[np.bool_],
    discount: float,
    gae_lambda: float,
) -> NDArray[np.float64]:
    """Return the advantage of every action, shape (n_steps, n_episodes, n_critics).

    Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage Estimation" (ICLR 2016),
    equation 16: the sum over l of (discount * gae_lambda)^l delta_(t+l), with the temporal-difference error
    delta_t = r_t + discount * V(s_(t+1)) - V(s_t).

    The end of an episode ends the sum, but keeps the value of the last state: the config is as good as before; the
    search just does not continue from it.

    Args:
        rewards: r_t, of the state that step t reached, shape (n_steps, n_episodes).
        values: V(s_t), of the state before each step and of the last one, shape (n_steps + 1, n_episodes, n_critics).
        ended: mask of the episodes that ended with step t, shape (n_steps, n_episodes).
        discount: the papers' gamma.
        gae_lambda: the papers' lambda.
    """
    errors = rewards[..., None] + discount * values[1:] - values[:-1]
    estimates = np.zeros_like(errors)
    next_estimate = np.zeros(errors.shape[1:])
    for step in reversed(range(len(errors))):
        next_estimate = errors[step] + discount * gae_lambda * ~ended[step, :, None] * next_estimate
        estimates[step] = next_estimate
    return estimates
