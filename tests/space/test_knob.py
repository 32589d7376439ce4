"""Knobs: splits that cover an extent, with tails."""

from __future__ import annotations

from math import prod

from hypothesis import given
from hypothesis import strategies as st

from anole.space import covering_knob, split_knob


def test_covering_splits_include_powers_of_two_with_tails() -> None:
    knob = covering_knob("tile_x", 7, 2)
    assert knob.values == ((1, 7), (2, 4), (4, 2), (7, 1))
    assert set(split_knob("tile_x", 7, 2).values) == {(1, 7), (7, 1)}


@given(extent=st.integers(1, 100), n_parts=st.integers(1, 4))
def test_splits_cover_an_extent_without_idle_outer_iterations(extent: int, n_parts: int) -> None:
    splits = covering_knob("tile", extent, n_parts).values
    assert len(set(splits)) == len(splits)
    for first, *inner in splits:
        assert (first - 1) * prod(inner) < extent <= first * prod(inner)
    assert set(split_knob("tile", extent, n_parts).values) <= set(splits)


def test_additional_splits_are_unique_and_sorted() -> None:
    knob = covering_knob("tile_x", 17, 2, [(3, 6), (17, 1)])
    assert (3, 6) in knob.values and knob.values.count((17, 1)) == 1
    assert list(knob.values) == sorted(knob.values)
    assert knob.features.shape == (len(knob), 2) and knob.feature_names == ("tile_x.0", "tile_x.1")
