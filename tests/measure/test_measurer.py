"""Measuring on the real CPU: successes, and each way in which a candidate can fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from anole.errors import MachineError
from anole.measure.measurer import Measurer
from anole.measure.options import MeasureOptions
from anole.record import Status
from anole.search.evaluators.adaptive_evaluator import AdaptiveEvaluator
from anole.search.evaluators.fixed import Fixed
from anole.search.roles import Timer, Timing
from anole.search.ties import Compared
from anole.targets import get_target
from anole.targets.cpu.settings import describe_cpu
from anole.task import Conv2d, Task

from .faulty_cpu import FaultyCpu

TASK = Task(Conv2d(1, 8, 8, 8, 16, (3, 3), padding=(1, 1, 1, 1)), describe_cpu(), 1)
SPACE = get_target(TASK.target).space(TASK.workload)
CONFIGS = [SPACE.config(vector) for vector in SPACE.sample(4, np.random.default_rng(0))]


@dataclass(frozen=True)
class BestReporting:
    """An evaluator that returns, instead of the deviation, the best latency that was passed to it."""

    def evaluate(self, timer: Timer, best_s: float | None = None) -> Timing:
        return Timing(timer(1), best_s or 0.0, 0.0, 1)


@pytest.fixture(scope="module")
def faulty_measurer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measurer]:
    target = FaultyCpu({**TASK.target, "faults": str(tmp_path_factory.mktemp("faults"))})
    with Measurer(TASK, MeasureOptions(Fixed(), 2), target=target) as measurer:
        yield measurer


def test_measures_in_order() -> None:
    with Measurer(TASK, MeasureOptions(Fixed(number=2, repeats=5))) as measurer:
        measured = list(measurer.measure(CONFIGS))
        confirmed = measurer.confirm(CONFIGS[:2], seconds_each=0.05)
    assert [measurement.status for measurement in measured] == [Status.OK] * 4
    for measurement in measured:
        assert measurement.latency_s is not None and 0 < measurement.latency_s < 1e-2
        assert measurement.repeats == 5
        assert measurement.build_s > 0 and measurement.run_s > 0
        assert measurement.relative_error is not None and 0 < measurement.relative_error < 1e-5
    assert all(confirmation.repeats >= 5 for confirmation in confirmed)
    ratios = {each.latency_s: each.min_ratio for each in confirmed if isinstance(each, Compared)}
    assert len(ratios) == 2 and ratios[min(ratios)] == 1.0 and None not in ratios.values()
    # The exact same build times: they were not built again.
    assert [confirmation.build_s for confirmation in confirmed] == [each.build_s for each in measured[:2]]


def test_the_evaluator_knows_the_fastest_so_far() -> None:
    with Measurer(TASK, MeasureOptions(BestReporting())) as measurer:
        measured = list(measurer.measure(CONFIGS[:3])) + list(measurer.measure(CONFIGS[3:]))
    latencies_s = [measurement.latency_s for measurement in measured if measurement.latency_s is not None]
    reported_s = [measurement.latency_std_s for measurement in measured]
    assert reported_s == [0.0, *(min(latencies_s[:count]) for count in (1, 2, 3))]


@pytest.mark.guard
def test_a_slow_candidate_is_abandoned_after_one_micro_batch() -> None:
    evaluator = AdaptiveEvaluator(micro_batch=2, slow_factor=2.0)
    with Measurer(TASK, MeasureOptions(evaluator, 1), best_s=1e-9) as measurer:
        (measured,) = measurer.measure(CONFIGS[:1])
    assert (measured.status, measured.repeats, measured.cv) == (Status.OK, 1, 0.0)


@pytest.mark.examples(1)
@pytest.mark.parametrize(
    ("fault", "status", "error"),
    [
        ("always", Status.BUILD_ERROR, "ValueError: no such schedule"),
        ("build crash", Status.BUILD_ERROR, "SIGSEGV"),
        ("build hang", Status.BUILD_TIMEOUT, "killed after 20"),
        ("run crash", Status.RUN_ERROR, "SIGSEGV"),
        ("run hang", Status.RUN_TIMEOUT, "killed after 10"),
        ("wrong", Status.WRONG_ANSWER, "relative error"),
    ],
)
def test_a_failure_costs_one_trial(faulty_measurer: Measurer, fault: str, status: Status, error: str) -> None:
    first, second, third, _ = CONFIGS
    measured = list(faulty_measurer.measure([first, {**second, "fails": fault}, third]))
    assert [measurement.status for measurement in measured] == [Status.OK, status, Status.OK]
    assert error in str(measured[1].error)
    assert measured[1].latency_s is None


def test_without_a_folder_for_candidates_the_machine_is_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/no/such/folder")
    with pytest.raises(MachineError, match=r"^cannot create a temporary folder for candidates: FileNotFoundError"):
        Measurer(TASK, MeasureOptions(Fixed())).__enter__()


def test_the_target_sets_the_tolerance() -> None:
    strict = Task(TASK.workload, {**TASK.target, "max_relative_error": 1e-9}, 1)
    with Measurer(strict, MeasureOptions(Fixed(), 1)) as measurer:
        (measured,) = measurer.measure(CONFIGS[:1])
    assert measured.status == Status.WRONG_ANSWER
    assert str(measured.error).endswith("at most 1e-09 is allowed")
    assert measured.relative_error is not None and measured.relative_error > 1e-9


@pytest.mark.guard
def test_rivals_of_a_crashing_candidate_are_still_confirmed(faulty_measurer: Measurer) -> None:
    confirmed = faulty_measurer.confirm([CONFIGS[0], {**CONFIGS[1], "fails": "run crash"}], seconds_each=0.05)
    assert [measurement.status for measurement in confirmed] == [Status.OK, Status.RUN_ERROR]


def test_the_target_sets_the_number_of_threads() -> None:
    environment = get_target({**TASK.target, "threads": 3}).environment()
    assert environment["TVM_NUM_THREADS"] == "3"
