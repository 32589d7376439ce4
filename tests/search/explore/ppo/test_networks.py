"""The policy and value networks: their shapes, shared layers and initial weights."""

import pytest
import torch

from anole.search.explore.ppo.networks import ActorCritic, AgentsAndCritic, Scale, log_probabilities


def networks(shared_layer=True, seed=0):
    return ActorCritic(5, 20, shared_layer, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shared_layer", [True, False])
def test_the_first_layer_is_shared_or_not(shared_layer):
    both = networks(shared_layer)
    values = both.values(torch.rand(4, 5), torch.zeros(4, 5))
    assert values.shape == (4, 1)
    values.sum().backward()
    assert (both.policy_first[0].weight.grad is not None) == shared_layer
    assert all(parameter.grad is None for parameter in both.policy_rest.parameters())


def test_the_initial_policy_is_close_to_uniform():
    logits = networks().logits(torch.rand(50, 5))
    assert logits.shape == (3, 50, 5) and logits.softmax(dim=0).sub(1 / 3).abs().max() < 0.02


def test_initial_weights_come_only_from_the_generator():
    before = torch.get_rng_state()
    first, second, third = networks(seed=1), networks(seed=1), networks(seed=2)
    assert torch.equal(torch.get_rng_state(), before)
    states = torch.rand(4, 5)
    assert torch.equal(first.logits(states), second.logits(states))
    assert not torch.equal(first.logits(states), third.logits(states))


def test_masked_actions_have_no_probability_and_no_entropy():
    logits = torch.zeros(3, 2, requires_grad=True)
    allowed = torch.tensor([[True, False], [True, True], [True, False]])
    log_probs = log_probabilities(logits, allowed)
    entropies = -(log_probs.exp() * log_probs).sum(dim=0)
    assert log_probs.exp()[:, 1].tolist() == [0, 1, 0]
    assert entropies.tolist() == pytest.approx([torch.log(torch.tensor(3.0)).item(), 0])
    entropies.sum().backward()
    assert torch.isfinite(logits.grad).all()


def agents(sees_all=False, sees_actions=False):
    generator = torch.Generator().manual_seed(0)
    return AgentsAndCritic([[0, 3], [4, 1], [2]], 20, sees_all=sees_all, sees_actions=sees_actions, generator=generator)


@pytest.mark.parametrize("sees_all", [True, False])
def test_every_agent_observes_all_knobs_or_only_its_own(sees_all):
    states = torch.rand(6, 5)
    before = agents(sees_all).logits(states)
    assert before.shape == (3, 6, 5)
    for mine in ([0, 3], [1, 4], [2]):
        changed = states.clone()
        changed[:, mine] += 1
        differs = (agents(sees_all).logits(changed) != before).any(dim=0).any(dim=0)
        assert differs.nonzero().flatten().tolist() == ([0, 1, 2, 3, 4] if sees_all else mine)


@pytest.mark.parametrize("sees_actions", [True, False])
def test_the_critic_sees_all_knobs_and_no_policy_learns_from_it(sees_actions):
    both = agents(sees_actions=sees_actions)
    states = torch.rand(6, 5, requires_grad=True)
    both.values(states, torch.zeros(6, 5)).sum().backward()
    assert (states.grad != 0).all()
    assert all(parameter.grad is None for parameter in both.policies.parameters())


def test_a_critic_of_actions_sees_the_moves_of_earlier_agents():
    """The first knobs of the agents are 0, 1 and 2."""
    critic, states, moves = agents(sees_actions=True), torch.rand(6, 5), torch.zeros(6, 5)
    values = critic.values(states, moves)
    assert values.shape == (6, 3)
    for knob, affected in enumerate([[1, 2], [2], [], [], []]):
        changed = moves.clone()
        changed[:, knob] = 1
        differs = (critic.values(states, changed) != values).any(dim=0)
        assert differs.nonzero().flatten().tolist() == affected
    assert len({round(value, 4) for value in values[0].tolist()}) == 3, "it knows for whom it judges"


def test_a_critic_of_states_ignores_moves():
    states = torch.rand(6, 5)
    before, after = (agents().values(states, torch.full((6, 5), step)) for step in (0.0, 1.0))
    assert before.shape == (6, 1) and torch.equal(before, after)


def test_the_sizes_are_the_papers():
    """Section 4.1 of DCOC states them."""
    shapes = [tuple(layer.weight.shape) for layer in agents().critic if hasattr(layer, "weight")]
    assert shapes == [(20, 5), (20, 20), (20, 20), (1, 20)]
    assert [tuple(policy[0].weight.shape) for policy in agents().policies] == [(20, 2), (20, 2), (20, 1)]
    assert [tuple(policy[0].weight.shape) for policy in agents(sees_all=True).policies] == [(20, 5)] * 3
    assert tuple(agents(sees_actions=True).critic[0].weight.shape) == (20, 5 + 5 + 3)


def test_normalized_returns_have_mean_0_and_deviation_1():
    scale, returns = Scale(fixed=False), torch.randn(4, 1000, generator=torch.Generator().manual_seed(0)) * 0.05 + 0.7
    for update in returns:
        scale.update(update)
    normalized = scale.normalize(returns)
    assert (float(normalized.mean()), float(normalized.std())) == pytest.approx((0, 1), abs=1e-2)
    torch.testing.assert_close(scale.restore(normalized), returns)


def test_returns_are_not_scaled_before_the_first_update_or_if_fixed():
    new, fixed, returns = Scale(fixed=False), Scale(fixed=True), torch.tensor([0.2, 0.4])
    fixed.update(returns)
    for scale in (new, fixed):
        assert torch.equal(scale.normalize(returns), returns) and torch.equal(scale.restore(returns), returns)
    new.update(torch.full((9,), 0.3))
    assert torch.isfinite(new.normalize(returns)).all(), "equal returns are no trouble"
