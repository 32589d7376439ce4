"""The update: what it learns from, that its first step is on-policy, and that it learns."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from anole.search.explore.ppo import MAPPO, PPO
from anole.search.explore.ppo.rollout import roll_out
from anole.search.explore.ppo.update import Batch, Learner, explained_variance, judge, losses
from anole.space import Constraint, Space, option_knob


@pytest.fixture
def space():
    """Two agents in turns, so that their knobs are not in order."""
    return Space(
        [
            option_knob("a", list(range(9)), agent="one"),
            option_knob("only", [1], agent="two"),
            option_knob("b", list(range(5)), agent="one"),
        ],
        [Constraint("too far apart", lambda columns: np.abs(columns["a"] - columns["b"]) < 4)],
    )


def rolled(space, settings, n_steps=20, seed=0, converged_share=None):
    """Returns a learner, what it did, and the rewards: high is good, 11 / 12 the best."""
    rng = np.random.default_rng(seed)
    learner = Learner(settings, space, rng)
    begin = space.sample(32, rng)
    rollout = roll_out(space, learner.policy, begin, np.ones(len(begin), dtype=bool), n_steps, converged_share, rng)
    return learner, rollout, rollout.vectors[1:].sum(axis=-1) / 12


@pytest.mark.parametrize("settings", [PPO(), MAPPO()], ids=lambda settings: settings.name)
def test_the_first_minibatch_is_on_policy(space, settings):
    """Every probability ratio is 1 before the first step."""
    learner, *done = rolled(space, settings)
    learner.learn(learner.batch(*done))  # the policy is no longer uniform
    rng = np.random.default_rng(1)
    rollout = roll_out(space, learner.policy, space.sample(20, rng), np.ones(20, dtype=bool), 20, 0.75, rng)
    batch = learner.batch(rollout, rollout.vectors[1:].sum(axis=-1) / 12)
    first = batch.rows(torch.arange(0, len(batch.states), 7))
    log_probs, _ = judge(learner.networks, first)
    torch.testing.assert_close((log_probs - first.log_probs).exp(), torch.ones(log_probs.shape), rtol=0, atol=1e-5)
    figures = losses(learner.networks, first, 0.3)
    assert float(figures["approx_kl"].detach()) == pytest.approx(0, abs=1e-6)
    assert float(figures["clip_fraction"]) == 0


@pytest.mark.parametrize(("settings", "agents"), [(PPO(), [[0, 1, 2]]), (MAPPO(), [[0, 2], [1]])])
def test_the_log_probabilities_are_those_of_the_moves_that_were_made(space, settings, agents):
    """The rollout's own weights, knob by knob, agree with what the update believes of each agent."""
    learner, rollout, rewards = rolled(space, settings)
    batch = learner.batch(rollout, rewards)
    logits = learner.policy(batch.states.numpy())
    expected = np.zeros((len(batch.states), len(agents)))
    for row in range(len(expected)):
        for agent, knobs in enumerate(agents):
            for knob in knobs:
                may = batch.allowed[row, :, knob].numpy()
                weights = np.exp(logits[:, row, knob]) * may
                expected[row, agent] += math.log(weights[batch.actions[row, knob]] / weights.sum())
    np.testing.assert_allclose(batch.log_probs.numpy(), expected, atol=1e-5)


def test_only_steps_of_live_episodes_are_learned_from(space):
    learner, rollout, rewards = rolled(space, PPO(), converged_share=0.5)
    assert not rollout.live.all()
    assert len(learner.batch(rollout, rewards).states) == rollout.live.sum()


def test_the_value_of_rest_is_the_score():
    """With rewards that never change, the returns tend to the reward."""
    flat = Space([option_knob("a", list(range(9)))])
    learner, rollout, _ = rolled(flat, PPO(gae_lambda=1.0), n_steps=150)
    returns = learner.batch(rollout, np.full(rollout.live.shape, 0.7)).returns.view(150, -1)
    torch.testing.assert_close(returns[0], torch.full_like(returns[0], 0.7), rtol=0, atol=1e-4)


def test_learns_which_way_is_up_and_what_it_is_worth(space):
    learner, rng = Learner(PPO(), space, np.random.default_rng(0)), np.random.default_rng(0)
    figures, heights = [], []
    for _ in range(40):
        rollout = roll_out(space, learner.policy, space.sample(20, rng), np.ones(20, dtype=bool), 20, None, rng)
        rewards = rollout.vectors[1:].sum(axis=-1) / 12
        heights.append(rewards[-1].mean())
        figures.append(learner.learn(learner.batch(rollout, rewards)))
    assert heights[0] < 0.7 and np.mean(heights[-5:]) > 0.85
    assert figures[-1]["explained_variance"] > 0.5 > figures[0]["explained_variance"]
    assert figures[-1]["entropy"] < figures[0]["entropy"]


def test_constant_rewards_and_lonely_steps_are_no_trouble(space):
    for n_steps in (1, 3):
        learner, rollout, rewards = rolled(space, PPO(), n_steps)
        figures = learner.learn(learner.batch(rollout, np.zeros_like(rewards)))
        assert all(math.isfinite(figure) for figure in figures.values())
    single = learner.batch(rollout, rewards).rows(torch.tensor([0]))
    assert all(math.isfinite(figure) for figure in learner.learn(single).values())
    assert all(torch.isfinite(parameter).all() for parameter in learner.networks.parameters())


def test_the_ratio_counts_no_further_than_the_clip():
    settings = PPO()
    space = Space([option_knob("a", list(range(9)))])
    learner, rollout, rewards = rolled(space, settings)
    batch = learner.batch(rollout, rewards)
    far = Batch(**{**vars(batch), "log_probs": batch.log_probs - 1})
    figures = losses(learner.networks, far, 0.3)
    weights = (batch.advantages - batch.advantages.mean()) / batch.advantages.std(correction=0)
    expected = -torch.where(weights > 0, 1.3 * weights, math.e * weights).mean()
    assert float(figures["policy_loss"].detach()) == pytest.approx(float(expected), abs=1e-5)
    assert float(figures["clip_fraction"]) == 1
    assert float(figures["approx_kl"]) == pytest.approx(math.e - 2, abs=1e-5)


def test_explained_variance():
    returns = torch.tensor([1.0, 2.0, 3.0])
    assert explained_variance(returns, returns) == 1
    assert explained_variance(torch.zeros(3), returns) == 0
    assert explained_variance(torch.tensor([3.0, 2.0, 1.0]), returns) == -3
    assert explained_variance(returns, torch.ones(3)) == 0
