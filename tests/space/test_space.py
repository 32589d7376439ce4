"""Spaces: the mappings between config, index, index vector and features, and subspaces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.errors import ConfigError
from anole.record import Measurement, Status
from anole.search.roles import History
from anole.space import Constraint, Space, option_knob, split_knob

from ..examples import examples


def make_space() -> Space:
    return Space(
        [split_knob("tile_f", 64, 3), option_knob("unroll", (0, 16, 64)), option_knob("pad_at", ("inline", "root"))],
        [Constraint("too wide", lambda columns: columns["tile_f"][:, 2] <= 16)],
    )


@given(st.integers(0, 28 * 6 - 1))
def test_indices_vectors_and_configs_round_trip(index):
    space = make_space()
    (vector,) = space.vectors([index])
    assert space.indices(vector[None])[0] == index
    np.testing.assert_array_equal(space.vector(space.config(vector)), vector)


def test_a_sample_is_valid_distinct_and_respects_exclusions():
    space = make_space()
    excluded = space.valid_indices[::2]
    sampled = space.indices(space.sample(1000, np.random.default_rng(0), exclude=excluded))
    assert sorted(sampled) == sorted(set(space.valid_indices) - set(excluded))


def test_every_feature_has_a_name():
    space = make_space()
    assert space.features(space.vectors([0, 5])).shape == (2, len(space.feature_names))
    assert space.feature_names == (
        "tile_f.0", "tile_f.1", "tile_f.2", "unroll", "pad_at=inline", "pad_at=root",
    )  # fmt: skip


@given(st.sets(st.sampled_from([0, 16, 64]), min_size=1), st.sets(st.sampled_from(["inline", "root"]), min_size=1))
def test_a_subspace_has_the_configs_with_the_allowed_values(unrolls, places):
    space = make_space()
    part = space.restrict({"unroll": sorted(unrolls), "pad_at": sorted(places)})
    configs = [part.config(vector) for vector in part.vectors(part.valid_indices)]
    unrestricted = [space.config(vector) for vector in space.vectors(space.valid_indices)]
    assert configs == [config for config in unrestricted if config["unroll"] in unrolls and config["pad_at"] in places]
    vectors = part.vectors(part.valid_indices)
    same = np.array([space.vector(config) for config in configs])
    columns = [space.feature_names.index(name) for name in part.feature_names]
    np.testing.assert_array_equal(part.features(vectors), space.features(same)[:, columns])


def test_a_split_may_be_given_as_a_list_or_a_tuple():
    assert len(make_space().restrict({"tile_f": [[1, 4, 16], (2, 2, 16)]}).knobs[0]) == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [({"tile_q": [1]}, r"no knobs \['tile_q'\]"), ({"unroll": [0, 17]}, "knob unroll has no value 17")],
)
def test_unknown_knobs_and_values_are_rejected(values, message):
    with pytest.raises(ConfigError, match=message):
        make_space().restrict(values)


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=5), st.integers(0, 99))
def test_denormalized_inverts_normalized_with_rounding(cardinalities, seed):
    space = Space([option_knob(f"k{at}", list(range(size))) for at, size in enumerate(cardinalities)])
    rng = np.random.default_rng(seed)
    vectors = rng.integers(0, cardinalities, size=(20, len(cardinalities)))
    points = space.normalize(vectors)
    assert points.min() >= 0 and points.max() <= 1
    offsets = rng.uniform(-0.49, 0.49, points.shape) / np.maximum(space.cardinalities - 1, 1)
    np.testing.assert_array_equal(space.denormalize(points), vectors)
    np.testing.assert_array_equal(space.denormalize((points + offsets).astype(np.float32)), vectors)


def test_a_discount_reduces_the_worth_of_a_config():
    space = make_space()
    vectors = space.vectors(space.valid_indices)
    assert (space.discounts(vectors) == 1).all() and space.worth(space.config(vectors[0])) == 1.0
    half = replace(space, discount=lambda columns: 1 / (1 + (columns["unroll"] > 0)))
    expected = [1.0 if half.config(vector)["unroll"] == 0 else 0.5 for vector in vectors]
    assert half.discounts(vectors).tolist() == expected == [half.worth(half.config(vector)) for vector in vectors]


def test_a_toll_is_subtracted_from_the_speed_down_to_zero():
    space = make_space()
    vectors, latencies_s = space.vectors(space.valid_indices[:4]), np.array([0.5, 0.1, 2.0, np.nan])
    np.testing.assert_array_equal(space.worths(vectors, latencies_s), np.ones(4))
    tolled = replace(space, toll=lambda columns: np.full(len(columns["unroll"]), 1.0))
    np.testing.assert_allclose(tolled.worths(vectors, latencies_s) / latencies_s, [1.0, 9.0, 0.0, np.nan])
    both = replace(space, discount=lambda columns: np.full(4, 0.5), toll=lambda columns: np.arange(4.0) / 10)
    np.testing.assert_allclose(both.worths(vectors, latencies_s)[:3] / latencies_s[:3], [1.0, 4.9, 0.05])


def test_valid_configs_are_enumerated_in_batches_and_cached(monkeypatch):
    original, asked = make_space(), []
    valid = original.valid_indices
    monkeypatch.setattr("anole.space.space._ENUMERATION_BATCH", 7)
    monkeypatch.setattr("anole.space.space._MAX_ENUMERABLE", 10)
    watched = [
        replace(each, holds=lambda columns, holds=each.holds: asked.append(1) or holds(columns))
        for each in original.constraints
    ]
    space = replace(original, constraints=watched)
    # Searches do not enumerate a large space; `all_valid_indices` does.
    assert space.valid_indices is None and not asked
    np.testing.assert_array_equal(space.all_valid_indices, valid)
    assert len(asked) == -(-space.size // 7) * len(watched) > 1
    vectors = space.vectors(np.arange(space.size))
    np.testing.assert_array_equal(np.flatnonzero(space.valid(vectors)), valid)
    assert len(asked) == -(-space.size // 7) * len(watched)


def test_enumeration_does_not_change_what_is_sampled(monkeypatch):
    monkeypatch.setattr("anole.space.space._MAX_ENUMERABLE", 10)
    space = make_space()
    before, _ = space.sample(20, np.random.default_rng(0)), space.all_valid_indices
    np.testing.assert_array_equal(space.sample(20, np.random.default_rng(0)), before)
    large = replace(space, is_enumerated=True).sample(20, np.random.default_rng(0))
    monkeypatch.setattr("anole.space.space._MAX_ENUMERABLE", 1000)
    np.testing.assert_array_equal(make_space().sample(20, np.random.default_rng(0)), large)
    assert large.tolist() != before.tolist()


def test_names_of_an_agent_exclude_knobs_with_one_value():
    knobs = [
        option_knob("block", (8, 16), agent="hardware"),
        option_knob("batch", (1,), agent="hardware"),
        option_knob("tile", (1, 2), agent="mapping"),
    ]
    space = Space(knobs)
    assert [space.names_of(agent) for agent in ("hardware", "mapping", "nobody")] == [["block"], ["tile"], []]
    assert space.restrict({"block": [8]}).names_of("hardware") == []


def test_a_history_multiplies_speeds_by_worth():
    space = replace(make_space(), discount=lambda columns: np.where(columns["unroll"] == 64, 0.25, 1.0))
    history = History(space, 10**9)
    configs = [{"tile_f": (64, 1, 1), "unroll": unroll, "pad_at": "root"} for unroll in (0, 64, 64)]
    measured = [Measurement(Status.OK, latency_s=0.5)] * 2
    history.add(space.vectors_of(configs), [*measured, Measurement(Status.RUN_ERROR, error="no result")])
    assert history.gflops.tolist() == [2.0, 0.5, 0.0]


def space_with_merit(**changes: object) -> Space:
    """Return a space whose merit prefers more filters and smaller sizes, and ignores ``place``."""
    knobs = [
        option_knob("size", (2, 4, 6), balanced=True),
        option_knob("filters", tuple(range(20))),
        option_knob("place", tuple(range(30))),
    ]
    settings = {"merit": lambda columns: columns["filters"] * 2.0 - columns["size"], **changes}
    return Space(knobs, [Constraint("too many", lambda columns: columns["filters"] < 18)], **settings)


def test_promising_configs_alternate_between_kinds_by_merit():
    space = space_with_merit()
    configs = [space.config(vector) for vector in space.promising(12, np.random.default_rng(0))]
    assert [config["filters"] for config in configs] == [17, 17, 17, 16, 16, 16, 15, 15, 15, 14, 14, 14]
    for at in range(0, 12, 3):
        assert sorted(config["size"] for config in configs[at : at + 3]) == [2, 4, 6]


def test_promising_configs_respect_exclusions_and_distinct_merits():
    space = space_with_merit()
    first = space.promising(9, np.random.default_rng(0))
    more = space.promising(1000, np.random.default_rng(1), exclude=space.indices(first))
    assert len(more) == 3 * 18 and space.valid(more).all()
    assert not np.isin(space.indices(more), space.indices(first)).any()


def test_without_a_merit_no_config_is_promising():
    assert space_with_merit(merit=None).promising(5, np.random.default_rng(0)).shape == (0, 3)


def test_the_best_sampled_config_is_deterministic():
    best = space_with_merit().best_sampled
    assert (best["filters"], best["size"]) == (17, 2)
    assert best == space_with_merit().best_sampled


def test_the_best_sampled_config_comes_from_the_core_if_few_are_valid():
    wide = tuple(range(1 << 12))
    knobs = [option_knob("a", wide), option_knob("b", wide)]
    few_valid = Constraint("too large", lambda columns: columns["a"] + columns["b"] < 2)
    rare = {"merit": lambda columns: columns["b"] * 1.0 - columns["a"]}
    assert Space(knobs, [few_valid], **rare, core={"a": (0, 1), "b": (0, 1)}).best_sampled == {"a": 0, "b": 1}
    with pytest.raises(ConfigError, match="no config of this workload"):
        _ = Space(knobs, [few_valid], **rare, core={"a": (7, 8)}).best_sampled


def test_a_subspace_drops_the_core_and_an_opened_space_keeps_only_costs() -> None:
    space = space_with_merit(discount=lambda c: 1.0 / c["size"], toll=lambda c: c["size"], core={}, merit_is_speed=True)
    part, opened = space.restrict({"filters": [3, 5]}), space.to_open()
    for kept in ("constraints", "discount", "toll", "merit", "merit_is_speed"):
        assert getattr(part, kept) == getattr(space, kept) != getattr(space_with_merit(merit=None).to_open(), kept)
    assert (opened.constraints, opened.merit, opened.merit_is_speed) == ((), None, False)
    assert (opened.discount, opened.toll, opened.core, part.core) == (space.discount, space.toll, None, None)
    assert part.best_sampled["filters"] == 5


def test_an_opened_space_may_have_wider_knobs() -> None:
    space = make_space()
    opened = space.to_open([option_knob("unroll", (0, 16, 64, 512))])
    assert [knob.name for knob in opened.knobs] == [knob.name for knob in space.knobs] and len(opened) == 28 * 8
    wide = {"tile_f": [1, 1, 64], "unroll": 512, "pad_at": "inline"}
    assert opened.rejection(wide) is None
    assert len(space.to_open()) == len(space) > len(space.valid_indices)
    assert space.to_open().feature_names == space.feature_names


def test_only_hard_constraints_cause_a_refusal() -> None:
    slow = Constraint("too narrow", lambda columns: columns["tile_f"][:, 2] > 1)
    hard = Constraint("too wide", lambda columns: columns["tile_f"][:, 2] <= 16, hard=True)
    space = Space([split_knob("tile_f", 64, 3)], [slow, hard])
    reasons = [
        (space.rejection(config), space.refusal(config))
        for config in ({"tile_f": [64, 1, 1]}, {"tile_f": [1, 1, 64]}, {"tile_f": [4, 1, 16]})
    ]
    assert reasons == [("too narrow", None), ("too wide", "too wide"), (None, None)]
