"""Unions of spaces: a config has an algorithm, and only this algorithm's knobs have an effect."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.errors import ConfigError
from anole.keys import canonical_json
from anole.space import ALGORITHM, Constraint, Space, option_knob, split_knob, union
from anole.space.loops import Annotation, Loop, LoopNest


def nest(name, split):
    return LoopNest((Loop(name, "i", split[:, 0], 0, Annotation.SERIAL),), ())


DIRECT = Space(
    [split_knob("tile_f", 64, 3), option_knob("unroll", (0, 16, 64))],
    [Constraint("too wide", lambda columns: columns["tile_f"][:, 2] <= 16)],
    lambda columns: nest("direct", columns["tile_f"]),
)
WINOGRAD = Space(
    [option_knob("tile_size", (2, 4)), split_knob("tile_p", 8, 2), option_knob("unroll", (0, 16, 64))],
    [Constraint("too deep", lambda columns: columns["tile_p"][:, 0] < 8)],
    lambda columns: nest("winograd", columns["tile_p"]),
)
DEEP = replace(DIRECT, merit=lambda columns: columns["tile_f"][:, 2])
SPACE = union({"direct": DIRECT, "winograd": WINOGRAD}, agent="rest")


def configs(space):
    return [space.config(vector) for vector in space.vectors(space.valid_indices)]


def test_a_union_has_the_configs_of_all_algorithms():
    assert SPACE.size == DIRECT.size + WINOGRAD.size
    expected = [{ALGORITHM: "direct", **config} for config in configs(DIRECT)]
    expected += [{ALGORITHM: "winograd", **config} for config in configs(WINOGRAD)]
    assert sorted(map(canonical_json, configs(SPACE))) == sorted(map(canonical_json, expected))


@given(st.integers(0, SPACE.size - 1))
def test_indices_vectors_and_configs_round_trip(index):
    (vector,) = SPACE.vectors([index])
    assert SPACE.indices(vector[None])[0] == index
    np.testing.assert_array_equal(SPACE.vector(SPACE.config(vector)), vector)


@given(st.integers(0, SPACE.size - 1), st.integers(0, 99))
def test_knobs_of_other_algorithms_are_ignored(index, seed):
    (vector,) = SPACE.vectors([index])
    other = np.random.default_rng(seed).integers(0, SPACE.cardinalities)
    own = {ALGORITHM, *SPACE.config(vector)}
    for at, knob in enumerate(SPACE.knobs):
        if knob.name in own:
            other[at] = vector[at]
    assert SPACE.indices(other[None])[0] == index
    assert SPACE.config(other) == SPACE.config(vector)
    np.testing.assert_array_equal(SPACE.canonical(other[None])[0], vector)
    np.testing.assert_array_equal(SPACE.features(other[None]), SPACE.features(vector[None]))
    is_valid = SPACE.rejection(SPACE.config(vector)) is None
    assert SPACE.valid(other[None])[0] == SPACE.valid(vector[None])[0] == is_valid


def test_only_its_own_constraints_reject_a_config():
    assert SPACE.rejection({ALGORITHM: "direct", "tile_f": [1, 1, 64], "unroll": 0}) == "too wide"
    assert SPACE.rejection({ALGORITHM: "winograd", "tile_size": 2, "tile_p": [8, 1], "unroll": 0}) == "too deep"


def test_features_equal_those_of_the_algorithms_own_space():
    for name, space in (("direct", DIRECT), ("winograd", WINOGRAD)):
        vectors = space.vectors(space.valid_indices)
        same = np.array([SPACE.vector({ALGORITHM: name, **config}) for config in configs(space)])
        columns = [SPACE.feature_names.index(feature) for feature in space.feature_names]
        np.testing.assert_array_equal(SPACE.features(same)[:, columns], space.features(vectors))
    assert len(set(SPACE.feature_names)) == SPACE.features(SPACE.vectors([0])).shape[1]


def test_a_sample_is_balanced_between_algorithms():
    sampled = SPACE.sample(16, np.random.default_rng(0))
    counts = Counter(SPACE.config(vector)[ALGORITHM] for vector in sampled)
    assert min(counts.values()) >= 4
    assert len(set(SPACE.indices(SPACE.sample(1000, np.random.default_rng(0))))) == len(SPACE.valid_indices)


def test_a_large_sample_is_balanced_even_if_few_configs_are_valid():
    splits = [split_knob(f"tile_{name}", 2**10, 4) for name in "fyx"]
    seldom = Space(splits, [Constraint("too wide", lambda columns: columns["tile_f"][:, 3] <= 2)])
    space = union({"often": Space(splits), "seldom": seldom})
    sampled = space.sample(64, np.random.default_rng(0))
    counts = Counter(space.config(vector)[ALGORITHM] for vector in sampled)
    assert counts == {"often": 32, "seldom": 32} and space.valid(sampled).all()


def test_a_union_may_be_restricted_to_one_algorithm():
    assert configs(SPACE.restrict({ALGORITHM: ["winograd"]})) == [
        config for config in configs(SPACE) if config[ALGORITHM] == "winograd"
    ]


def test_a_config_with_knobs_of_another_algorithm_is_rejected():
    with pytest.raises(ConfigError, match="config has knobs"):
        SPACE.vector({ALGORITHM: "direct", "tile_size": 2, "tile_p": [8, 1], "unroll": 0})


def test_knobs_with_the_same_name_must_be_equal():
    with pytest.raises(ConfigError, match="knob unroll of b has different values"):
        union({"a": DIRECT, "b": Space([option_knob("unroll", (0, 1))])})


def test_merits_are_per_algorithm_and_promising_configs_cover_both():
    tiled = replace(WINOGRAD, merit=lambda columns: -columns["tile_p"][:, 0])
    found = union({"direct": DEEP, "winograd": tiled})
    configs = [found.config(vector) for vector in found.promising(2, np.random.default_rng(0))]
    by_algorithm = {config[ALGORITHM]: config for config in configs}
    assert by_algorithm["direct"]["tile_f"][2] == 16 and by_algorithm["winograd"]["tile_p"][0] == 1


def test_worth_equals_the_worth_in_the_algorithms_own_space():
    discounted = replace(WINOGRAD, discount=lambda columns: 1 / columns["tile_size"])
    with_toll = replace(WINOGRAD, toll=lambda columns: columns["tile_size"] / 10)
    config = {ALGORITHM: "winograd", "tile_size": 4, "tile_p": [2, 4], "unroll": 0}
    direct = {ALGORITHM: "direct", "tile_f": [64, 1, 1], "unroll": 0}
    for space, worth in ((WINOGRAD, 1.0), (discounted, 0.25), (with_toll, 0.2)):
        found = union({"direct": DIRECT, "winograd": space})
        assert (found.worth(direct, 2.0), found.worth(config, 2.0)) == (1.0, pytest.approx(worth))


def test_a_union_has_a_merit_only_if_all_spaces_do():
    assert union({"direct": DEEP, "winograd": WINOGRAD}).merit is None
