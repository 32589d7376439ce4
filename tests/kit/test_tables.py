"""Recorded tables, and searches on them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anole.errors import StoreError
from anole.record import Status
from anole.search.presets import read_tuner
from anole.space import Constraint, Space, option_knob
from anole.targets import get_target
from anole.task import Conv2d
from kit.tables import Table, opened, read_table, replay

TABLES = Path(__file__).parents[2] / "benchmarks/tables"
WORKLOAD = Conv2d(1, 8, 8, 4, 16, (1, 1))
TARGET = {"kind": "cpu", "mcpu": "x86-64-v3", "model": "any", "features": ["avx2", "fma"], "threads": 1}
RESTRICTION = {"auto_unroll_max_step": [0], "tile_rc": [[1, 4], [4, 1]]}
RANDOM = read_tuner({"preset": "random", "batch": 5})


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., Path]:
    """Return a writer of tables with failures for every third config, and indices as microseconds for the others."""
    space = get_target(TARGET).space(WORKLOAD).restricted(RESTRICTION)
    assert space.valid_indices is not None

    def write(**changes: Any) -> Path:
        table = {
            "workload": asdict(WORKLOAD),
            "restriction": RESTRICTION,
            "target": TARGET,
            "cardinalities": space.cardinalities.tolist(),
            "latency_us": [None if row % 3 == 0 else 1.0 + index for row, index in enumerate(space.valid_indices)],
        }
        path = tmp_path / "table.json"
        path.write_text(json.dumps({**table, **changes}))
        return path

    return write


def test_every_valid_config_has_its_own_latency(recorded: Callable[..., Path]) -> None:
    table = read_table(recorded())
    indices = table.space.valid_indices
    assert indices is not None
    configs = [table.space.config(vector) for vector in table.space.vectors(indices)]
    for row, (index, measurement) in enumerate(zip(indices, table.measure(configs), strict=True)):
        failed = row % 3 == 0
        assert (measurement.status == Status.OK) is not failed
        assert measurement.latency_s == (None if failed else pytest.approx((1 + index) * 1e-6))
    assert table.best_s == pytest.approx((1 + indices[1]) * 1e-6)
    np.testing.assert_array_equal(table.rows(configs), np.arange(len(indices)))
    np.testing.assert_array_equal(table.costs_s, table.latencies_s)


def test_a_cost_is_a_latency_over_its_worth() -> None:
    """On an accelerator with bounded area, the fastest config is not the cheapest one."""
    table = read_table(TABLES / "vta/256-256_k3x3_s1_14x14.json")
    assert table.space.valid_indices is not None
    fastest, cheapest = int(np.nanargmin(table.latencies_s)), int(np.nanargmin(table.costs_s))
    for row in (fastest, cheapest):
        config = table.space.config(table.space.vectors(table.space.valid_indices[[row]])[0])
        with np.errstate(divide="ignore"):
            worth = table.space.worth(config, table.latencies_s[row])
            assert table.costs_s[row] == np.divide(table.latencies_s[row], worth)
    assert table.costs_s[cheapest] == table.min_cost_s < table.costs_s[fastest]


@pytest.mark.parametrize("path", sorted(TABLES.glob("*.json")), ids=lambda path: path.stem)
def test_recorded_tables_still_match_their_spaces(path: Path) -> None:
    table = read_table(path)
    assert len(table.latencies_s) == len(table.space.valid_indices)


def test_a_replay_tunes_on_the_table(recorded: Callable[..., Path]) -> None:
    table = read_table(recorded())
    first, again, other = (replay(table, RANDOM, 12, seed) for seed in (0, 0, 1))
    assert [trial.number for trial in first.trials] == list(range(12))
    assert sorted(first.iterations) == [0, 1, 2] and all("search_s" in log for log in first.iterations.values())
    assert [trial.config for trial in first.trials] == [trial.config for trial in again.trials]
    assert [trial.config for trial in first.trials] != [trial.config for trial in other.trials]


def test_a_whole_table_can_be_searched(recorded: Callable[..., Path]) -> None:
    table = read_table(recorded())
    trials = replay(table, RANDOM, 10_000, 0).trials
    assert len(trials) == len(table.latencies_s)
    assert min(trial.measurement.latency_s or np.inf for trial in trials) == table.best_s


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cardinalities": [1, 2]}, r"cardinalities \[1, 2\].* record it again"),
        ({"latency_us": [1.0]}, "with 1 valid configs"),
        ({"workload": {"height": 3}}, "is not a table"),
        ({"latency_us": ["fast"]}, "is not a table"),
    ],
)
def test_a_table_of_another_space_is_refused(
    recorded: Callable[..., Path], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(StoreError, match=message):
        read_table(recorded(**changes))


def test_a_missing_table_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"none.json: is not a table \(FileNotFoundError"):
        read_table(tmp_path / "none.json")


def test_an_opened_table_has_the_same_latencies_and_fails_where_the_constraint_held() -> None:
    def knobs(*values: int) -> list[Any]:
        return [option_knob("a", [1, 3]), option_knob("b", list(values))]

    odd = Constraint("too much", lambda columns: columns["a"] + columns["b"] < 8)
    small, large = Space(knobs(2, 4, 6), [odd]), Space(knobs(1, 2, 4, 6, 8))
    table = Table(WORKLOAD, small, np.arange(1.0, 1 + len(small.all_valid_indices)))
    whole = opened(table, large)
    found = {}
    for config in map(large.config, large.vectors(np.arange(large.size))):
        (measurement,) = whole.measure([config])
        found[config["a"], config["b"]] = measurement.latency_s
    for (a, b), latency_s in found.items():
        is_known = b in (2, 4, 6) and a + b < 8
        expected = next(table.measure([{"a": a, "b": b}])).latency_s if is_known else None
        assert latency_s == expected
    assert whole.min_cost_s == table.min_cost_s == 1.0
