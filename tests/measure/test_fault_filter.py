"""Failures of candidates are recorded only if the machine still works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anole.errors import MachineError, MeasureError
from anole.measure.device_access import RemoteDevices
from anole.measure.fault_filter import FaultFilteringMeasurer
from anole.measure.measurer import Measurer
from anole.measure.options import Limits, MeasureOptions
from anole.record import Config, Status
from anole.search.evaluators.fixed import Fixed
from anole.targets import get_target
from anole.targets.cpu.settings import describe_cpu
from anole.targets.rpc.address import Remote
from anole.task import Dense, Task

from .faulty_cpu import FaultyCpu, UndisturbedFaultyCpu
from .servers import HOST, server

TASK = Task(Dense(1, 64, 64), describe_cpu(threads=1), 1)
SPACE = get_target(TASK.target).space(TASK.workload)
CONFIGS = [SPACE.config(vector) for vector in SPACE.sample(24, np.random.default_rng(0))]


@pytest.fixture
def faults(tmp_path: Path) -> Path:
    return tmp_path


class Measuring:
    """A fault-filtering measurer of a faulty processor, with the log of its builds."""

    def __init__(self, faults: Path, measurer: FaultFilteringMeasurer) -> None:
        self._faults, self.measurer, self.yielded = faults, measurer, list[Status]()

    def measure(self, configs: list[Config]) -> list[Status]:
        self.yielded = []
        for measurement in self.measurer.measure(configs):
            self.yielded.append(measurement.status)
        return self.yielded

    @property
    def built(self) -> str:
        """The letters of the builds since the last call."""
        path = self._faults / "built"
        text = path.read_text() if path.exists() else ""
        path.unlink(missing_ok=True)
        return "".join(text.split())


with_both_targets = pytest.mark.parametrize("target", [FaultyCpu, UndisturbedFaultyCpu], indirect=True)
"""A target on which building disturbs timing, and one on which they overlap."""


@pytest.fixture
def target(request: pytest.FixtureRequest, faults: Path) -> FaultyCpu:
    kind = getattr(request, "param", FaultyCpu)
    return kind({**TASK.target, "faults": str(faults)})  # type: ignore[no-any-return]


@pytest.fixture
def measuring(faults: Path, target: FaultyCpu) -> Iterator[Measuring]:
    yield from _measuring(faults, target, None)


def _measuring(faults: Path, target: FaultyCpu, known: Config | None, **where: Any) -> Iterator[Measuring]:
    options = MeasureOptions(Fixed(1, 1), 1, Limits(build_s=10.0))
    measurer = Measurer(TASK, options, target=target, **where)
    with FaultFilteringMeasurer(measurer, TASK, target, known) as filtering:
        yield Measuring(faults, filtering)


def failing(configs: list[dict[str, Any]]) -> list[Config]:
    return [{**config, "fails": "always"} for config in configs]


OK, FAILED = Status.OK, Status.BUILD_ERROR


@with_both_targets
@pytest.mark.parametrize(
    ("fault", "measured", "built"),
    [
        # A failure before a success costs nothing.
        ("", ["xxxoo"], ["-----"]),
        # Failures at the end are accepted when a config that worked works again.
        ("", ["kxx", "x"], ["k--k", "-k"]),
        # Without a success, the default config is tried.
        ("", ["xxx"], ["---d"]),
        # If that fails, too, a tiny task is tried, and the default config is not tried again.
        ("default fails", ["xx", "xx"], ["--dt", "--t"]),
    ],
)
@pytest.mark.examples(2)
def test_failures_are_accepted_if_the_machine_works(
    faults: Path, measuring: Measuring, fault: str, measured: list[str], built: list[str]
) -> None:
    if fault:
        (faults / fault).touch()
    kinds: dict[str, Config] = {"o": {}, "k": {"name": "k"}, "x": {"fails": "always"}}
    for letters, expected in zip(measured, built, strict=True):
        requested = [{**config, **kinds[letter]} for config, letter in zip(CONFIGS, letters, strict=False)]
        assert measuring.measure(requested) == [FAILED if letter == "x" else OK for letter in letters]
        assert measuring.built == expected


@with_both_targets
@pytest.mark.examples(1)
def test_many_consecutive_failures_are_checked_less_often(measuring: Measuring) -> None:
    assert measuring.measure([{**config, "fails": "always", "name": "x"} for config in CONFIGS]) == [FAILED] * 24
    built = measuring.built
    assert built.count("d") == 2 and built.startswith("x" * 8) and built.endswith("d")


@with_both_targets
@pytest.mark.parametrize(
    ("fault", "status", "how"),
    [("nothing is built", "build_error", "no such schedule"), ("nothing runs", "run_error", "no device")],
)
@pytest.mark.examples(1)
def test_no_failure_is_accepted_if_nothing_works(
    faults: Path, measuring: Measuring, fault: str, status: str, how: str
) -> None:
    (faults / fault).touch()
    message = r"dense 64->64: 3 candidates in a row failed, .*the smallest task \(dense 32->64\) fails now too, with "
    with pytest.raises(MeasureError, match=message + rf"{status} \(.*{how}\); the machine is at fault"):
        measuring.measure(CONFIGS[:3])
    assert measuring.yielded == []


@with_both_targets
def test_nothing_is_yielded_after_the_machine_breaks(measuring: Measuring) -> None:
    breaking = {**CONFIGS[1], "fails": "breaks the machine"}
    with pytest.raises(MeasureError, match="a config that worked before fails now too, with build_error"):
        for chunk in ([CONFIGS[0], breaking], list(CONFIGS[2:6])):
            measuring.measure(chunk)
    assert measuring.yielded == []


def test_a_known_config_that_fails_shows_that_the_machine_is_at_fault(faults: Path, target: FaultyCpu) -> None:
    (faults / "nothing is built").touch()
    for measuring in _measuring(faults, target, CONFIGS[0]):
        with pytest.raises(MeasureError, match="a config that worked before fails now too"):
            measuring.measure(list(CONFIGS[1:3]))
        assert "t" not in measuring.built


def test_a_broken_known_config_is_not_blamed_on_a_machine_that_builds_the_default(
    faults: Path, target: FaultyCpu
) -> None:
    for measuring in _measuring(faults, target, {**CONFIGS[0], "fails": "always"}):
        assert measuring.measure(failing(CONFIGS[1:3])) == [FAILED] * 2
        assert measuring.built == "---d"


def test_a_full_disk_ends_measuring_immediately(faults: Path, measuring: Measuring) -> None:
    (faults / "disk full").touch()
    with pytest.raises(MachineError, match=r"No space left on device: .*; free some space"):
        measuring.measure(CONFIGS[:3])
    assert measuring.yielded == []


@with_both_targets
@pytest.mark.parametrize(("fails", "status"), [("killed once", OK), ("killed run once", OK), ("killed", FAILED)])
@pytest.mark.examples(1)
def test_a_killed_candidate_is_measured_again(measuring: Measuring, fails: str, status: Status) -> None:
    troubled = {**CONFIGS[1], "fails": fails, "name": "k"}
    assert measuring.measure([CONFIGS[0], troubled, CONFIGS[2]]) == [OK, status, OK]
    assert measuring.built.count("k") == 2


@with_both_targets
@pytest.mark.examples(1)
def test_the_machine_is_checked_if_all_confirmations_fail(faults: Path, measuring: Measuring) -> None:
    assert measuring.measure(list(CONFIGS[:2])) == [OK] * 2
    (faults / "nothing runs").touch()
    with pytest.raises(MeasureError, match="a config that worked before fails now too"):
        measuring.measurer.confirm(CONFIGS[:2], 0.01)


@pytest.mark.guard
def test_a_remote_device_is_checked_too(faults: Path) -> None:
    process = server(faults)
    process.start()
    try:
        access = RemoteDevices(Remote(HOST, process.port))
        for measuring in _measuring(faults, FaultyCpu({**TASK.target, "faults": str(faults)}), None, access=access):
            assert measuring.measure(failing(CONFIGS[:2])) == [FAILED] * 2
            (faults / "nothing is built").touch()
            with pytest.raises(MeasureError, match="a config that worked before fails now too"):
                measuring.measure(list(CONFIGS[2:4]))
    finally:
        process.kill()
