"""Rollouts: valid steps of all knobs, the ends of episodes, and advantages."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.search.explore.ppo.action_mask import ActionMask
from anole.search.explore.ppo.rollout import advantages, move, roll_out
from anole.space import Constraint

from ....examples import examples
from ...conftest import space_of


def constant(*logits):
    """Return a policy with the same logits of decrement, stay and increment for every knob."""
    return lambda states: np.broadcast_to(np.array(logits, dtype=np.float32)[:, None, None], (3, *states.shape))


def walk(space, policy, begin, n_steps, converged_share=None, live=None, seed=0, n_enumerable=1 << 20, n_endless=0):
    mask, live = ActionMask(space, n_enumerable), np.ones(len(begin), dtype=bool) if live is None else np.array(live)
    rng = np.random.default_rng(seed)
    return roll_out(mask, policy, np.array(begin), live, n_steps, converged_share, rng, n_endless)


def move_from(space, begin, n, weights=(1, 1, 1), n_enumerable=1 << 20):
    """Return the configs after n moves from one config, and the steps that were allowed."""
    logits = np.log(np.array(weights, dtype=np.float32))[:, None, None] + np.zeros((3, n, len(begin)), np.float32)
    return move(ActionMask(space, n_enumerable), np.tile(begin, (n, 1)), logits, np.random.default_rng(0))


UNIFORM, UP, STAY = constant(0, 0, 0), constant(-99, 0, 99), constant(-99, 99, -99)
LINE = space_of([9])


@settings(max_examples=examples(60), deadline=None)
@given(
    st.booleans(),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(0, 8),
    st.floats(0, 1) | st.none(),
    st.tuples(*[st.floats(-20, 20)] * 3),
    st.integers(0, 2**32 - 1),
)
def test_no_episode_leaves_the_valid_configs(is_known, cardinalities, total, converged_share, logits, seed):
    space = space_of(cardinalities, [Constraint("the sum is too large", lambda c: sum(c.values()) <= total)])
    begin = space.sample(6, np.random.default_rng(seed))
    n_enumerable = 1 << 20 if is_known else 0
    rollout = walk(space, constant(*logits), begin, 9, converged_share, seed=seed, n_enumerable=n_enumerable)
    n_steps = len(rollout.live)
    assert rollout.vectors.shape == (n_steps + 1, len(begin), len(cardinalities)) and n_steps <= 9
    assert space.valid(rollout.vectors.reshape(-1, len(cardinalities))).all()
    assert ((rollout.vectors >= 0) & (rollout.vectors < space.cardinalities)).all()
    assert np.isin(rollout.actions, [0, 1, 2]).all()
    assert np.take_along_axis(rollout.allowed, rollout.actions[:, None], axis=1)[:, 0][rollout.live].all()
    np.testing.assert_array_equal(rollout.live[1:], rollout.live[:-1] & ~rollout.ended[:-1])
    assert (rollout.actions[~rollout.live] == 1).all() and not rollout.ended[~rollout.live].any()


@pytest.mark.parametrize(
    ("begin", "weights", "shares"),
    [(4, (0.2, 0.5, 0.3), [0, 0, 0, 0.2, 0.5, 0.3, 0, 0, 0]), (0, (1, 1, 1), [0.5, 0.5, 0, 0, 0, 0, 0, 0, 0])],
)
def test_moves_follow_the_masked_policy(begin, weights, shares):
    vectors, _ = move_from(LINE, [begin], 30_000, weights)
    assert np.bincount(vectors[:, 0], minlength=9) / 30_000 == pytest.approx(shares, abs=0.01)


@pytest.mark.parametrize("n_enumerable", [0, 1 << 20])
def test_a_single_valid_config_stays(n_enumerable):
    alone = space_of([3, 3], [Constraint("only one works", lambda c: (c["k0"] == 1) & (c["k1"] == 1))])
    rollout = walk(alone, UP, [[1, 1]], 5, n_enumerable=n_enumerable)
    assert (rollout.vectors == 1).all()
    assert rollout.allowed.sum(axis=1).tolist() == [[[1, 1]]] * 5


def test_knobs_that_must_be_equal_move_together():
    """Both knobs are equal in every valid config: the first one moves freely, and the second follows it."""
    equal = space_of([9, 9], [Constraint("they differ", lambda c: c["k0"] == c["k1"])])
    vectors, allowed = move_from(equal, [4, 4], 9_000)
    assert np.bincount(vectors[:, 0])[3:] / 9_000 == pytest.approx([1 / 3] * 3, abs=0.02)
    assert (vectors[:, 0] == vectors[:, 1]).all()
    assert (allowed.sum(axis=0) == [3, 1]).all()
    apart, _ = move_from(equal, [4, 4], 90, n_enumerable=0)
    assert (apart == 4).all(), "one knob cannot move while the other stays, which is all that is asked there"


@pytest.mark.parametrize(
    ("policy", "share", "n_endless", "lengths"),
    [(UP, 1.0, 0, [4, 2, 1]), (UP, 0.5, 0, [1, 2, 1]), (STAY, None, 0, [9, 9, 9]), (UP, 1.0, 3, [4, 4, 4])],
)
def test_an_episode_ends_when_enough_of_its_knobs_stay(policy, share, n_endless, lengths):
    """Knobs with a single value do not count; a knob that pushes against its bound stays."""
    rollout = walk(space_of([1, 2, 6]), policy, [[0, 1, 2], [0, 0, 4], [0, 1, 5]], 9, share, n_endless=n_endless)
    assert rollout.live.sum(axis=0).tolist() == lengths
    if share == 1.0:
        assert (rollout.vectors[-1] == [0, 1, 5]).all()


def test_ended_episodes_stand_still():
    rollout = walk(LINE, UP, [[0], [0]], 4, live=[True, False])
    assert rollout.vectors[-1].tolist() == [[4], [0]]
    nobody = walk(LINE, UP, [[0], [0]], 4, live=[False, False])
    assert nobody.live.shape == (0, 2) and nobody.vectors.shape == (1, 2, 1)


def test_one_step_changes_a_knob_by_one():
    rollout = walk(space_of([50] * 8), UNIFORM, np.full((16, 8), 25), 20)
    shares = np.bincount(rollout.actions.ravel()) / rollout.actions.size
    assert shares == pytest.approx([1 / 3] * 3, abs=0.03)


def by_definition(rewards, values, ended, discount, gae_lambda):
    """Return the sum of discounted errors, computed separately for every episode and step."""
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
def test_advantages_equal_a_plain_loop(n_steps, n_episodes, discount, gae_lambda, end_share, seed):
    rng = np.random.default_rng(seed)
    rewards, values = rng.normal(size=(n_steps, n_episodes)), rng.normal(size=(n_steps + 1, n_episodes, 2))
    ended = rng.random((n_steps, n_episodes)) < end_share
    np.testing.assert_allclose(
        advantages(rewards, values, ended, discount, gae_lambda),
        by_definition(rewards, values, ended, discount, gae_lambda),
        atol=1e-9,
    )


def test_with_lambda_1_advantages_are_returns_minus_values():
    rewards, values = np.ones((3, 1)), np.array([4.0, 4.0, 4.0, 8.0])[:, None, None]
    none_ended = np.zeros((3, 1), dtype=bool)
    expected = [1 + 0.5 * (1 + 0.5 * (1 + 0.5 * 8)) - 4, 1 + 0.5 * (1 + 0.5 * 8) - 4, 1 + 0.5 * 8 - 4]
    assert advantages(rewards, values, none_ended, 0.5, 1.0).ravel().tolist() == pytest.approx(expected)


def test_the_end_of_an_episode_keeps_the_last_states_value():
    rewards, values = np.ones((2, 1)), np.array([4.0, 6.0, 100.0])[:, None, None]
    ended = np.array([[True], [False]])
    assert advantages(rewards, values, ended, 0.5, 1.0)[0, 0, 0] == pytest.approx(1 + 0.5 * 6 - 4)
