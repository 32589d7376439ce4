"""Property tests of `Overlap`: results come in the order of the configs, whatever ends when."""

from __future__ import annotations

import math
from collections.abc import Container
from multiprocessing import Pipe
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.errors import MeasureError
from anole.measure.builders import Built
from anole.measure.measurer import Overlap
from anole.record import Config, Measurement, Status

OK, FAILED = Status.OK, Status.BUILD_ERROR


class RandomOrder:
    """The common part of builders and a runner whose work ends in random order; it records which candidates ran."""

    def __init__(self, chance: Random, n: int, failing: set[int]) -> None:
        self._chance, self.n, self.n_workers, self._failing = chance, n, n, failing
        self._building: list[tuple[int, Config]] = []
        self._running: list[Built] = []
        self.ran, self.breaks_after = list[int](), math.inf
        self._here, there = Pipe()
        there.send("always readable")
        self.left_s = 1.0

    @property
    def connections(self) -> list[Any]:
        return [self._here]

    @property
    def n_busy(self) -> int:
        return len(self._building)

    def _take_some(self, items: list[Any]) -> list[Any]:
        """Remove and return a random subset of the items, perhaps none."""
        self._chance.shuffle(items)
        n = self._chance.randint(0, len(items))
        ended, items[:] = items[:n], items[n:]
        return ended


class RandomBuilders(RandomOrder):
    def begin(self, position: int, config: Config) -> None:
        assert len(self._building) < self.n
        self._building.append((position, config))

    def collect(self, readable: Container[Any]) -> list[Built]:
        failed = Measurement(FAILED, "no such schedule")
        return [
            Built(position, config, Path("none"), 0.0, failed if position in self._failing else None)
            for position, config in self._take_some(self._building)
        ]

    def abandon(self) -> None:
        self._building.clear()


class RandomRunner(RandomOrder):
    @property
    def has_room(self) -> bool:
        return len(self._running) < self.n_workers and self._chance.random() < 0.7

    def begin(self, candidate: Built) -> None:
        assert candidate.failure is None
        self._running.append(candidate)
        self.ran.append(candidate.position)

    def collect(self, readable: Container[Any]) -> list[tuple[int, Measurement]]:
        if len(self.ran) >= self.breaks_after:
            raise MeasureError("all servers are gone")
        return [
            (candidate.position, Measurement(OK, latency_s=float(candidate.config["number"])))
            for candidate in self._take_some(self._running)
        ]

    def abandon(self) -> None:
        self._running.clear()


def run_overlapped(seed: int, n: int, failing: set[int]) -> tuple[RandomRunner, Overlap]:
    chance = Random(seed)
    builders = RandomBuilders(chance, chance.randint(1, 3), failing)
    runner = RandomRunner(chance, chance.randint(1, 4), failing)
    configs = [{"number": number} for number in range(n)]
    return runner, Overlap(builders, runner, configs)  # type: ignore[arg-type]


@given(st.integers(0), st.integers(0, 12), st.sets(st.integers(0, 11)))
def test_each_config_is_measured_once_and_yielded_in_order(seed: int, n: int, failing: set[int]) -> None:
    runner, overlap = run_overlapped(seed, n, failing)
    measured = list(overlap)
    assert [each.status for each in measured] == [FAILED if number in failing else OK for number in range(n)]
    buildable = [number for number in range(n) if number not in failing]
    assert [each.latency_s for each in measured if each.status is OK] == buildable
    assert sorted(runner.ran) == buildable


@given(st.integers(0), st.integers(1, 12), st.data())
def test_measurements_yielded_before_an_error_are_a_prefix(seed: int, n: int, data: st.DataObject) -> None:
    runner, overlap = run_overlapped(seed, n, set())
    runner.breaks_after = data.draw(st.integers(1, n))
    yielded: list[float | None] = []
    with pytest.raises(MeasureError, match="all servers are gone"):
        for measurement in overlap:
            yielded.append(measurement.latency_s)
    assert yielded == list(range(len(yielded)))
