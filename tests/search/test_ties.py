"""Ties: configs that a comparison in turns cannot distinguish, and the choice among them by merit."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from anole.record import Confirmation, Measurement, Status
from anole.search.confirm import confirm
from anole.search.ties import Compared, is_slower, min_ratios, prefer_merit
from anole.space.knob import ALGORITHM, option_knob
from anole.space.space import Space
from anole.space.union import union

TILES = [1, 2, 4, 8, 16]


def space_of(merit: Callable[[Any], Any] | None = None, tiles: Sequence[int] = TILES) -> Space:
    return Space([option_knob("tile", list(tiles))], merit=merit)


BY_TILE = space_of(lambda columns: columns["tile"].astype(np.float64))


def turns_of(seconds: Sequence[float], seed: int, turns: int = 40, noise: float = 0.03) -> list[list[float]]:
    """Return the latencies of kernels in turns: with independent noise, a common drift, and occasional pauses."""
    rng = random.Random(seed)
    drifts = [rng.lognormvariate(0, 0.2) for _ in range(turns)]
    return [
        [each * drift * rng.lognormvariate(0, noise) * (5.0 if rng.random() < 0.05 else 1.0) for drift in drifts]
        for each in seconds
    ]


def confirm_tiles(
    latencies: Mapping[int, float], seed: int, space: Space = BY_TILE, default: int | None = None, **noise: Any
) -> list[Confirmation]:
    """Confirm configs by their tile and true latency, with noise."""

    def measure(configs: Sequence[Mapping[str, Any]]) -> list[Measurement]:
        measured = turns_of([latencies[config["tile"]] for config in configs], seed, **noise)
        return [
            Compared(Status.OK, latency_s=float(np.median(each)), min_ratio=ratio)
            for each, ratio in zip(measured, min_ratios(measured), strict=True)
        ]

    prefer = prefer_merit(space, None if default is None else {"tile": default})
    return confirm([{"tile": tile} for tile in latencies], measure, 64, prefer)


def test_a_tie_is_decided_by_merit_despite_noise() -> None:
    rounds = [confirm_tiles({1: 1.0, 2: 1.0, 4: 1.0, 8: 1.0, 16: 1.1}, seed) for seed in range(50)]
    chosen = [each[0].config["tile"] for each in rounds]
    assert chosen.count(8) >= 48 and 16 not in chosen
    # By latency alone, chance would choose each of them.
    fastest = {min(each, key=lambda one: one.measurement.latency_s or math.inf).config["tile"] for each in rounds}
    assert fastest == {1, 2, 4, 8}
    for each in rounds:
        assert [one.rank for one in each] == [0, 1, 2, 3, 4]
        latencies = [one.measurement.latency_s for one in each[1:]]
        assert latencies == sorted(latencies) and {type(one.measurement) for one in each} == {Measurement}


def test_a_clear_winner_wins_regardless_of_merit() -> None:
    assert {confirm_tiles({1: 1.0, 8: 1.05, 16: 1.1}, seed)[0].config["tile"] for seed in range(50)} == {1}
    assert {confirm_tiles({1: 1.0, 8: 2.0}, seed, turns=5)[0].config["tile"] for seed in range(50)} == {1}


def test_less_noise_resolves_smaller_differences() -> None:
    assert confirm_tiles({1: 1.0, 16: 1.01}, 0, noise=0.1)[0].config["tile"] == 16
    assert confirm_tiles({1: 1.0, 16: 1.01}, 0, noise=0.001)[0].config["tile"] == 1


def test_exact_latencies_give_exact_ratios() -> None:
    low, same, high = min_ratios([[1.0] * 5, [1.0] * 5, [1.5] * 5])
    assert (low, same) == (1.0, 1.0) and high == pytest.approx(1.5)
    assert min_ratios([]) == [] and min_ratios([[2.0, 3.0]]) == [1.0]


def test_a_common_drift_cancels_out() -> None:
    drift = np.random.default_rng(0).lognormal(0, 0.5, 40)
    assert min_ratios([list(drift), list(1.01 * drift)])[1] == pytest.approx(1.01)


@pytest.mark.parametrize(("default", "chosen"), [(None, 2), (8, 8), (16, 2)])
def test_ties_without_merit_go_to_the_default_or_the_first_config(default: int | None, chosen: int) -> None:
    for space in (space_of(), space_of(lambda columns: np.ones(len(columns["tile"])))):
        rounds = [confirm_tiles(dict.fromkeys((8, 4, 2), 1.0), seed, space, default) for seed in range(9)]
        assert {each[0].config["tile"] for each in rounds} == {chosen}


@pytest.mark.parametrize(("default", "chosen"), [("far", ("far", 4)), ("near", ("near", 2)), (None, ("near", 2))])
def test_merits_of_different_algorithms_are_not_compared(default: str | None, chosen: tuple[str, int]) -> None:
    spaces = {
        "near": space_of(lambda columns: columns["tile"].astype(np.float64)),
        "far": space_of(lambda columns: 1e6 - columns["tile"].astype(np.float64)),
    }
    prefer = prefer_merit(union(spaces), None if default is None else {ALGORITHM: default, "tile": 1})
    configs = [{ALGORITHM: name, "tile": tile} for name, tile in (("far", 8), ("far", 4), ("near", 1), ("near", 2))]
    for ordered in (configs, configs[::-1]):
        found = ordered[prefer(ordered)]
        assert (found[ALGORITHM], found["tile"]) == chosen


FAILED = Measurement(Status.RUN_ERROR, error="no")


@pytest.mark.parametrize(
    "measured",
    [
        (Measurement(Status.OK, latency_s=1.0), Measurement(Status.OK, latency_s=2.0)),
        (Compared(Status.OK, latency_s=1.0, min_ratio=1.0), Compared(Status.RUN_ERROR, error="no")),
        (FAILED, FAILED),
    ],
)
def test_failures_and_other_measurements_never_tie(measured: Sequence[Measurement]) -> None:
    found = confirm([{"tile": 1}, {"tile": 16}], lambda _: measured, 2, prefer_merit(BY_TILE, None))
    assert [each.config["tile"] for each in found] == [1, 16]


@pytest.mark.parametrize(
    ("latency_s", "cv", "repeats", "slower"),
    [
        (1.02e-3, 0.02, 100, True),
        (1.004e-3, 0.02, 100, False),
        (1.02e-3, 0.2, 100, False),
        (1.02e-3, 0.02, 2, False),
        (0.9e-3, 0.0, 1, False),
        (1.0001e-3, None, 0, False),
        (None, None, 0, True),
    ],
)
def test_a_record_is_slower_only_beyond_its_noise(
    latency_s: float | None, cv: float | None, repeats: int, slower: bool
) -> None:
    best = Measurement(Status.OK, latency_s=1e-3, cv=0.02, repeats=100)
    status = Status.OK if latency_s else Status.RUN_ERROR
    assert is_slower(Measurement(status, latency_s=latency_s, cv=cv, repeats=repeats), best) == slower
    exact = Measurement(Status.OK, latency_s=1e-3)
    assert is_slower(replace(exact, latency_s=1.0001e-3), exact) and not is_slower(exact, exact)
