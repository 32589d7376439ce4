"""Advantages against their definition, and by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.search.explore.ppo.gae import advantages


def by_definition(rewards, values, ended, discount, gae_lambda):
    """The sum of discounted errors, for every episode and step on its own."""
    n_steps, n_episodes = rewards.shape
    estimates = np.zeros((n_steps, n_episodes, values.shape[2]))
    for critic, episode, first in itertools.product(range(values.shape[2]), range(n_episodes), range(n_steps)):
        weight = 1.0
        for step in range(first, n_steps):
            before, after = values[step, episode, critic], values[step + 1, episode, critic]
            estimates[first, episode, critic] += weight * (rewards[step, episode] + discount * after - before)
            weight *= discount * gae_lambda
            if ended[step, episode]:
                break
    return estimates


@given(
    st.integers(1, 12), st.integers(1, 5), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.integers(0, 2**32 - 1)
)
def test_equals_a_plain_loop(n_steps, n_episodes, discount, gae_lambda, end_share, seed):
    rng = np.random.default_rng(seed)
    rewards, values = rng.normal(size=(n_steps, n_episodes)), rng.normal(size=(n_steps + 1, n_episodes, 2))
    ended = rng.random((n_steps, n_episodes)) < end_share
    np.testing.assert_allclose(
        advantages(rewards, values, ended, discount, gae_lambda),
        by_definition(rewards, values, ended, discount, gae_lambda),
        atol=1e-9,
    )


def test_lambda_of_one_is_what_was_earned_less_what_was_expected():
    rewards, values = np.ones((3, 1)), np.array([4.0, 4.0, 4.0, 8.0])[:, None, None]
    none_ended = np.zeros((3, 1), dtype=bool)
    expected = [1 + 0.5 * (1 + 0.5 * (1 + 0.5 * 8)) - 4, 1 + 0.5 * (1 + 0.5 * 8) - 4, 1 + 0.5 * 8 - 4]
    assert advantages(rewards, values, none_ended, 0.5, 1.0).ravel().tolist() == pytest.approx(expected)


def test_an_end_keeps_the_value_of_where_it_ended():
    rewards, values = np.ones((2, 1)), np.array([4.0, 6.0, 100.0])[:, None, None]
    ended = np.array([[True], [False]])
    assert advantages(rewards, values, ended, 0.5, 1.0)[0, 0, 0] == pytest.approx(1 + 0.5 * 6 - 4)
