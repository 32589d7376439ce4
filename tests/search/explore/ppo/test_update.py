"""The PPO update: its batches, its losses, its on-policy first step, and that it learns."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from anole.search.explore.ppo import MAPPO, PPO
from anole.search.explore.ppo.action_mask import ActionMask, bounded_steps
from anole.search.explore.ppo.networks import log_probabilities
from anole.search.explore.ppo.rollout import roll_out
from anole.search.explore.ppo.update import Adam, Learner, evaluate_actions, explained_variance, losses
from anole.space import Constraint, Space, option_knob

from ...conftest import space_of


@pytest.fixture
def space():
    """A space with alternating agents, whose knobs are not contiguous."""
    return Space(
        [
            option_knob("a", list(range(9)), agent="one"),
            option_knob("only", [1], agent="two"),
            option_knob("b", list(range(5)), agent="one"),
        ],
        [Constraint("too far apart", lambda columns: np.abs(columns["a"] - columns["b"]) < 4)],
    )


def run_episodes(learner, rng, n=20, n_steps=20, converged_share=None):
    """Return a learner's rollout and its rewards: higher is better, the maximum is 11 / 12."""
    space = learner.space
    begin = space.sample(n, rng)
    live = np.ones(len(begin), dtype=bool)
    rollout = roll_out(ActionMask(space), learner.policy, begin, live, n_steps, converged_share, rng)
    return rollout, rollout.vectors[1:].sum(axis=-1) / 12


def new_rollout(space, settings, n_steps=20, converged_share=None):
    rng = np.random.default_rng(0)
    learner = Learner(settings, space, rng)
    return learner, *run_episodes(learner, rng, 32, n_steps, converged_share)


@pytest.mark.parametrize("settings", [PPO(), MAPPO()], ids=lambda settings: settings.name)
def test_the_first_minibatch_is_on_policy(space, settings):
    """Every probability ratio is 1 before the first step."""
    learner, *done = new_rollout(space, settings)
    learner.learn(learner.batch(*done))  # the policy is no longer uniform
    batch = learner.batch(*run_episodes(learner, np.random.default_rng(1), converged_share=0.75))
    first = batch.rows(torch.arange(0, len(batch.states), 7))
    log_probs, _ = evaluate_actions(learner.networks, first)
    torch.testing.assert_close((log_probs - first.log_probs).exp(), torch.ones(log_probs.shape), rtol=0, atol=1e-5)
    figures = losses(learner.networks, first, 0.3)
    assert float(figures["approx_kl"].detach()) == pytest.approx(0, abs=1e-6)
    assert float(figures["clip_fraction"]) == 0


def test_ended_episodes_are_not_in_the_batch(space):
    learner, rollout, rewards = new_rollout(space, PPO(), converged_share=0.5)
    assert not rollout.live.all()
    assert len(learner.batch(rollout, rewards).states) == rollout.live.sum()


def test_constant_rewards_give_constant_returns():
    """With constant rewards, the returns converge to the reward."""
    learner, rollout, _ = new_rollout(space_of([9]), PPO(gae_lambda=1.0), n_steps=150)
    returns = learner.batch(rollout, np.full(rollout.live.shape, 0.7)).returns.view(150, -1)
    torch.testing.assert_close(returns[0], torch.full_like(returns[0], 0.7), rtol=0, atol=1e-4)


@pytest.mark.guard
def test_policy_and_values_learn(space):
    learner, rng = Learner(PPO(), space, np.random.default_rng(0)), np.random.default_rng(0)
    figures, heights = [], []
    for _ in range(40):
        rollout, rewards = run_episodes(learner, rng)
        heights.append(rewards[-1].mean())
        figures.append(learner.learn(learner.batch(rollout, rewards)))
    assert heights[0] < 0.7 and np.mean(heights[-5:]) > 0.85
    assert figures[-1]["explained_variance"] > 0.5 > figures[0]["explained_variance"]
    assert figures[-1]["entropy"] < figures[0]["entropy"]


def test_degenerate_batches_give_finite_statistics(space):
    for n_steps in (1, 3):
        learner, rollout, rewards = new_rollout(space, PPO(), n_steps)
        figures = learner.learn(learner.batch(rollout, np.zeros_like(rewards)))
        assert all(math.isfinite(figure) for figure in figures.values())
    single = learner.batch(rollout, rewards).rows(torch.tensor([0]))
    assert all(math.isfinite(figure) for figure in learner.learn(single).values())
    assert all(torch.isfinite(parameter).all() for parameter in learner.networks.parameters())


def test_the_ratio_is_clipped():
    learner, *done = new_rollout(space_of([9]), PPO())
    batch = learner.batch(*done)
    far = replace(batch, log_probs=batch.log_probs - 1)
    figures = losses(learner.networks, far, 0.3)
    expected = -torch.where(batch.weights > 0, 1.3 * batch.weights, math.e * batch.weights).mean()
    assert float(figures["policy_loss"].detach()) == pytest.approx(float(expected), abs=1e-5)
    assert float(figures["clip_fraction"]) == 1
    assert float(figures["approx_kl"]) == pytest.approx(math.e - 2, abs=1e-5)


def test_explained_variance():
    returns = torch.tensor([1.0, 2.0, 3.0])
    assert explained_variance(returns, returns) == 1
    assert explained_variance(torch.zeros(3), returns) == 0
    assert explained_variance(torch.tensor([3.0, 2.0, 1.0]), returns) == -3
    assert explained_variance(returns, torch.ones(3)) == 0


@pytest.fixture
def constrained_space():
    """A space with mostly invalid joint moves, in which the knobs of two agents must move together."""
    return Space(
        [
            option_knob("a", list(range(6)), agent="one"),
            option_knob("b", list(range(6)), agent="two"),
            option_knob("c", list(range(4)), agent="one"),
        ],
        [
            Constraint("too far apart", lambda columns: np.abs(columns["a"] - columns["b"]) < 2),
            Constraint("too much", lambda columns: columns["a"] + columns["c"] < 6),
        ],
    )


def moves_from_one_config(space, n, n_enumerable=1 << 20):
    """Return a learner with non-uniform policies, each of its joint moves, and how often it made them."""
    learner = Learner(MAPPO(ratio="agent"), space, np.random.default_rng(0))
    with torch.no_grad():
        for parameter in learner.networks.parameters():
            parameter.add_(0.7 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    begin = np.tile([3, 3, 2], (n, 1))
    live = np.ones(n, dtype=bool)
    rollout = roll_out(ActionMask(space, n_enumerable), learner.policy, begin, live, 1, None, np.random.default_rng(1))
    _, first, counts = np.unique(space.indices(rollout.vectors[1]), return_index=True, return_counts=True)
    return learner, learner.batch(rollout, np.zeros((1, n))).rows(torch.tensor(first)), counts


@pytest.mark.parametrize("n_enumerable", [0, 1 << 20])
def test_moves_have_the_probabilities_of_the_policy(constrained_space, n_enumerable):
    """Training is on-policy: the frequencies of moves match the probabilities whose ratios the update uses.

    With masks that know only the bounds of knobs they do not match, which shows that this test can fail.
    """
    learner, batch, counts = moves_from_one_config(constrained_space, 40_000, n_enumerable)
    shares, predicted = counts / counts.sum(), batch.log_probs.sum(dim=-1).exp().double().numpy()
    assert len(shares) > 5
    np.testing.assert_allclose(shares, predicted, atol=0.01)
    assert predicted.sum() == pytest.approx(1, abs=0.01)
    ends = torch.from_numpy(bounded_steps(np.array([3, 3, 2]), constrained_space.cardinalities))
    log_probs, _ = evaluate_actions(learner.networks, replace(batch, allowed=ends.expand_as(batch.allowed)))
    predicted = log_probs.sum(dim=-1).exp().detach().numpy()
    assert predicted.sum() < 0.9 and np.abs(shares - predicted).max() > 0.05


def test_a_critic_of_actions_does_not_bias_the_policies(constrained_space):
    """The mean gradient of every policy, weighted by its baseline, is 0 over all moves.

    It is not 0 with a baseline that depends on all actions, which shows that this test can fail.
    """
    learner, batch, _ = moves_from_one_config(constrained_space, 40_000)
    networks, joint_probabilities = learner.networks, batch.log_probs.sum(dim=-1).exp()
    assert float(joint_probabilities.sum()) == pytest.approx(1, abs=1e-5), "these are all joint moves"
    values = networks.values(batch.states, batch.moves).detach()
    assert values.shape[1] == 2 and float(values[:, 1].std()) > 0.1, "its value depends on what was done before"

    def bias(agent, baseline):
        networks.policies.zero_grad()
        log_probs, _ = evaluate_actions(networks, batch)
        (joint_probabilities * log_probs[:, agent] * baseline).sum().backward()
        return max(float(parameter.grad.abs().max()) for parameter in networks.policies[agent].parameters())

    for agent in range(2):
        assert bias(agent, values[:, agent]) < 1e-3 < 0.05 < bias(agent, batch.moves.sum(dim=1))


def test_an_agent_learns_from_its_own_critics_advantages(constrained_space):
    learner, *done = new_rollout(constrained_space, MAPPO())
    batch = learner.batch(*done)
    assert batch.weights.shape == batch.values.shape == batch.returns.shape == (len(batch.states), 2)
    np.testing.assert_allclose(batch.weights.mean(dim=0), 0, atol=1e-5)
    np.testing.assert_allclose(batch.weights.std(dim=0, correction=0), 1, atol=1e-3)
    alone = replace(batch, weights=batch.weights * torch.tensor([1.0, 0.0]))
    losses(learner.networks, alone, 0.2)["policy_loss"].backward()
    first, second = learner.networks.policies
    assert all(parameter.grad.abs().sum() > 0 for parameter in first.parameters())
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in second.parameters())


@pytest.mark.parametrize("critic", ["actions", "state"])
def test_an_agent_learns_independently_of_the_others(space, critic):
    """The number of agents does not change the weight of the entropy relative to an agent's own objective."""
    settings = MAPPO(critic=critic, ratio="agent")
    learner, *done = new_rollout(space, settings)
    batch = learner.batch(*done)
    figures = losses(learner.networks, batch, settings.clip)
    (figures["policy_loss"] - settings.entropy_coefficient * figures["entropy"]).backward()
    for agent, (knobs, policy) in enumerate(zip(learner.networks.agents, learner.networks.policies, strict=True)):
        together = [parameter.grad.clone() for parameter in policy.parameters()]
        policy.zero_grad()
        log_probs = log_probabilities(learner.networks.logits(batch.states), batch.allowed.transpose(0, 1))[..., knobs]
        own = log_probs.gather(0, batch.actions[None, :, knobs])[0].sum(dim=-1)
        weights = batch.weights[:, agent if critic == "actions" else 0]
        gain = ((own - batch.log_probs[:, agent]).exp() * weights).mean()
        entropy = -(log_probs.exp() * log_probs).sum(dim=(0, 2)).mean()
        (-gain - settings.entropy_coefficient * entropy).backward()
        for parameter, gradient in zip(policy.parameters(), together, strict=True):
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-6)


def test_adam_takes_the_papers_steps():
    parameter, idle = nn.Parameter(torch.tensor([3.0, -2.0, 0.0], dtype=torch.float64)), nn.Parameter(torch.ones(2))
    adam = Adam([parameter, idle], 0.05)
    theta, m, v = np.array([3.0, -2.0, 0.0]), np.zeros(3), np.zeros(3)
    for t in range(1, 31):
        ((parameter - t / 10) ** 4).sum().backward()
        adam.step()
        g = 4 * (theta - t / 10) ** 3
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        theta -= 0.05 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-5)
        assert parameter.tolist() == pytest.approx(theta.tolist())
    assert parameter.grad is None and idle.tolist() == [1, 1]


@pytest.mark.parametrize("critic", ["actions", "state"])
def test_ratios_are_per_knob_and_entropies_are_agent_means(space, critic):
    """The code of MAPPO's authors does this. The first agent has knobs 0 and 2, the second has knob 1."""
    learner, *done = new_rollout(space, MAPPO(critic=critic))
    batch = learner.batch(*done)
    log_probs = log_probabilities(learner.networks.logits(batch.states), batch.allowed.transpose(0, 1)).detach()
    taken = log_probs.gather(0, batch.actions[None])[0]
    far = replace(batch, log_probs=batch.log_probs - torch.tensor([1.0, 0.0, 0.0]))
    figures = losses(learner.networks, far, 0.2)
    torch.testing.assert_close(batch.log_probs, taken[:, [0, 2, 1]])
    weights = batch.weights[:, [0, 0, 1]] if critic == "actions" else batch.weights.expand(-1, 3)
    gains = torch.minimum(math.e * weights[:, 0], 1.2 * weights[:, 0]) + weights[:, 1] + weights[:, 2]
    assert float(figures["policy_loss"].detach()) == pytest.approx(-float(gains.mean()), abs=1e-5)
    entropies = -(log_probs.exp() * log_probs).sum(dim=0).mean(dim=0)
    assert float(figures["entropy"].detach()) == pytest.approx(float(entropies[[0, 2]].mean() + entropies[1]), abs=1e-5)
