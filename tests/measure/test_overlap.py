"""Building and running in parallel on undisturbed devices: overlap, order of results, choice of device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from anole.host import lock
from anole.measure.measurer import Measurer
from anole.measure.options import Limits, MeasureOptions
from anole.record import Status
from anole.search.evaluators.fixed import Fixed
from anole.targets.cpu.settings import describe_cpu
from anole.task import Dense, Task

from .undisturbed_cpu import UndisturbedCpu

TASK = Task(Dense(1, 8, 8), describe_cpu(threads=1), 1)
ONCE = MeasureOptions(Fixed(number=1, repeats=1), 2, Limits(build_s=30.0, run_s=30.0))

AFTER_FIRST = {"build_after": "built c0"}
"""Makes the first candidate run first: two builders may end in any order."""


@pytest.fixture(scope="module")
def measurer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measurer]:
    folder = tmp_path_factory.mktemp("locks")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(lock, "lock_path", lambda device: folder / f"{device}.lock")
        with Measurer(TASK, ONCE, target=UndisturbedCpu(TASK.target)) as measurer:
            yield measurer


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.touch()
    return path


def configs(notes: Path, count: int, **changes: Mapping[str, str]) -> list[dict[str, Any]]:
    names = [f"c{index}" for index in range(count)]
    return [{"name": name, "notes": str(notes), **changes.get(name, {})} for name in names]


def read_runs(notes: Path) -> dict[str, tuple[str, str]]:
    """Return the device and the process of each candidate that ran, by its name."""
    lines = [line.split() for line in notes.read_text().splitlines() if line.startswith("ran")]
    return {name: (unit, process) for _, name, _, unit, _, process in lines}


def test_candidates_are_built_while_one_runs(measurer: Measurer, notes: Path) -> None:
    measured = list(measurer.measure(configs(notes, 6, c0={"run_after": "built c3"})))
    assert [measurement.status for measurement in measured] == [Status.OK] * 6


def test_a_built_candidate_does_not_wait_for_an_unfinished_build(measurer: Measurer, notes: Path) -> None:
    measured = list(measurer.measure(configs(notes, 5, c1={"build_after": "ran c3", "fails": "build"})))
    failed, ok = Status.BUILD_ERROR, Status.OK
    assert [measurement.status for measurement in measured] == [ok, failed, ok, ok, ok]
    assert measured[1].error == "ValueError: no such schedule"


def test_the_number_of_builds_ahead_is_limited(measurer: Measurer, notes: Path) -> None:
    in_order = {f"c{index}": {"build_after": f"begins c{index - 1}"} for index in (2, 3, 4)}
    list(measurer.measure(configs(notes, 12, c0={"run_after": "built c4"}, c1=AFTER_FIRST, **in_order)))
    lines = notes.read_text().splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("ran c0"))
    assert sum(line.startswith("begins") for line in lines[:first]) == 1 + 2 * 2


def test_a_failure_only_costs_its_process(measurer: Measurer, notes: Path) -> None:
    measured = list(measurer.measure(configs(notes, 3, c1={"fails": "run"}, c2={"build_after": "ran c1"})))
    assert [measurement.status for measurement in measured] == [Status.OK, Status.RUN_ERROR, Status.OK]
    assert measured[1].error == "RuntimeError: an illegal memory access was encountered"
    in_process = read_runs(notes)
    assert in_process["c1"] != in_process["c2"]


def test_abandoned_candidates_do_not_come_back(measurer: Measurer, notes: Path) -> None:
    begun = measurer.measure(configs(notes, 6, c1={"run_after": "never", **AFTER_FIRST}))
    assert next(iter(begun)).status is Status.OK
    begun.close()
    measured = list(measurer.measure(configs(notes, 2)))
    assert [measurement.status for measurement in measured] == [Status.OK, Status.OK]


def test_rivals_are_confirmed_together(measurer: Measurer, notes: Path) -> None:
    confirmed = measurer.confirm(configs(notes, 3, c1={"fails": "build"}), seconds_each=0.01)
    assert [measurement.status for measurement in confirmed] == [Status.OK, Status.BUILD_ERROR, Status.OK]
    assert len(set(read_runs(notes).values())) == 1


def test_each_measurer_takes_an_idle_device_and_keeps_it(measurer: Measurer, notes: Path, tmp_path: Path) -> None:
    others = tmp_path / "others"
    others.touch()
    assert len(list(measurer.measure(configs(notes, 2)))) == 2
    with Measurer(TASK, ONCE, target=UndisturbedCpu(TASK.target)) as other:
        assert len(list(other.measure(configs(others, 1)))) == 1
        assert len(list(measurer.measure(configs(notes, 1)))) == 1
    assert [{unit for unit, _ in read_runs(path).values()} for path in (notes, others)] == [{"0"}, {"1"}]
