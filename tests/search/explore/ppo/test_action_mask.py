"""The action mask: steps of a knob that later knobs can complete to a valid config."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.search.explore.ppo import action_mask
from anole.search.explore.ppo.action_mask import ActionMask
from anole.space import Constraint, Space, option_knob, union

from ....examples import examples
from ...conftest import space_of


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 2**32 - 1), st.floats(0.05, 0.9))
def test_a_step_is_allowed_if_and_only_if_later_steps_complete_it(cardinalities, seed, valid_share):
    rng, n_knobs = np.random.default_rng(seed), len(cardinalities)
    holds = rng.random(cardinalities) < valid_share
    rule = Constraint("random", lambda columns: holds[tuple(columns[f"k{knob}"] for knob in range(n_knobs))])
    space = space_of(cardinalities, [rule])
    mask, knob = ActionMask(space), int(rng.integers(n_knobs))
    vector = rng.integers(cardinalities)

    def is_completable(step):
        moves = np.array([[0] * knob + [step, *later] for later in product((-1, 0, 1), repeat=n_knobs - 1 - knob)])
        ends = vector + moves
        inside = ends[((ends >= 0) & (ends < space.cardinalities)).all(axis=1)]
        return bool(space.valid(inside).any())

    assert mask.allowed_steps(vector[None], knob)[:, 0].tolist() == [is_completable(step) for step in (-1, 0, 1)]


def test_without_constraints_only_the_bounds_matter():
    mask = ActionMask(space_of([2**12, 2**12, 1]))
    vectors = np.array([[0, 2**12 - 1, 0], [5, 6, 0]])
    expected = [[[False, True, True], [True, True, True]], [[True, True, False], [True, True, True]]]
    assert [mask.allowed_steps(vectors, knob).T.tolist() for knob in (0, 1)] == expected
    assert mask.allowed_steps(vectors, 2).T.tolist() == [[False, True, False]] * 2


@pytest.mark.parametrize("n_enumerable", [0, 8, 9])
def test_in_a_large_space_every_single_step_must_be_valid(n_enumerable):
    """From (0, 1) the first knob may go up only if the second one then moves, too."""
    mask = ActionMask(space_of([3, 3], [Constraint("off the path", lambda c: c["k0"] + c["k1"] != 2)]), n_enumerable)
    allowed = mask.allowed_steps(np.array([[0, 1]]), 0)[:, 0].tolist()
    assert allowed == [False, True, n_enumerable == 9]


@pytest.mark.parametrize("batch_size", [1, 5, 1 << 14])
def test_constraints_apply_to_their_own_algorithm(batch_size, monkeypatch):
    """A knob without an effect may have any value."""
    monkeypatch.setattr(action_mask, "_BATCH_SIZE", batch_size)
    never = Constraint("never more than 0", lambda c: c["a"] == 0)
    space = union({"one": space_of([3]), "two": Space([option_knob("a", [0, 1, 2])], [never])})
    assert [knob.name for knob in space.knobs] == ["algorithm", "k0", "a"]
    mask = ActionMask(space)
    assert [mask.allowed_steps(np.array([[algorithm, 0, 0]]), 2)[2, 0] for algorithm in (0, 1)] == [True, False]
