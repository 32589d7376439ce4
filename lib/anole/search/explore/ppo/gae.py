"""Generalised advantage estimation for parallel episodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def advantages(
    rewards: NDArray[np.float64],
    values: NDArray[np.float64],
    ended: NDArray[np.bool_],
    discount: float,
    gae_lambda: float,
) -> NDArray[np.float64]:
    """Returns the advantage of every action, shape (n_steps, n_episodes, n_critics).

    Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage Estimation" (ICLR 2016),
    equation 16: the sum over l of (discount * gae_lambda)^l delta_(t+l), with the temporal-difference error
    delta_t = r_t + discount * V(s_(t+1)) - V(s_t).

    The end of an episode ends the sum, but keeps the value of the last state: its config is as good as before,
    and only the search does not continue from it.

    Args:
        rewards: r_t, of the state that step t reached, shape (n_steps, n_episodes).
        values: V(s_t), of the state before each step and of the last one, shape (n_steps + 1, n_episodes, n_critics).
        ended: which episodes ended with step t, shape (n_steps, n_episodes).
        discount: the papers' gamma.
        gae_lambda: the papers' lambda.
    """
    errors = rewards[..., None] + discount * values[1:] - values[:-1]
    estimates = np.zeros_like(errors)
    following = np.zeros(errors.shape[1:])
    for step in reversed(range(len(errors))):
        following = errors[step] + discount * gae_lambda * ~ended[step, :, None] * following
        estimates[step] = following
    return estimates
