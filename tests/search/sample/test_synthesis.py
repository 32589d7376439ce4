"""Sample synthesis: the most probable valid configs, in order."""

import itertools
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.search.sample.synthesis import synthesize
from anole.space import Constraint

from ...examples import examples
from ..conftest import space_of


def frequency(vector, vectors):
    """Return the probability of a config with independent knobs, times n^n_knobs."""
    return prod(int((vectors[:, knob] == value).sum()) for knob, value in enumerate(vector))


@st.composite
def pools(draw):
    cardinalities = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    row = st.tuples(*[st.integers(0, size - 1) for size in cardinalities])
    return cardinalities, np.array(draw(st.lists(row, min_size=1, max_size=12)))


@settings(max_examples=examples(100), deadline=None)
@given(pools(), st.integers(0, 6))
def test_valid_combinations_come_once_by_decreasing_probability(pool, max_sum):
    cardinalities, vectors = pool
    found = [tuple(vector.tolist()) for vector in synthesize(vectors, space_of(cardinalities))]
    assert sorted(found) == sorted(itertools.product(*[sorted(set(column)) for column in vectors.T.tolist()]))
    frequencies = [frequency(vector, vectors) for vector in found]
    assert frequencies == sorted(frequencies, reverse=True)
    assert found[0] == tuple(int(np.bincount(column).argmax()) for column in vectors.T), "the mode of every knob"
    limited = space_of(cardinalities, [Constraint("too much", lambda c: sum(c.values()) <= max_sum)])
    valid = [tuple(vector.tolist()) for vector in synthesize(vectors, limited)]
    assert valid == [vector for vector in found if sum(vector) <= max_sum]


@pytest.mark.parametrize("n_valid", [0, 1])
def test_it_stops_if_nearly_nothing_is_valid(n_valid):
    never = Constraint("hardly ever", lambda c: sum(c.values()) < n_valid)
    vectors = np.random.default_rng(0).integers(1, 10, size=(500, 12))
    assert list(synthesize(vectors, space_of([10] * 12, [never]))) == []
