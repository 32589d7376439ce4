"""A small layer, all of whose programs are simulated within seconds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from anole.measure.measurer import SimulatedMeasurer
from anole.record import Trial
from anole.search.loop import tune
from anole.search.presets import PRESETS
from anole.search.state import Search, Subject
from anole.task import Conv2d, Task
from anole_vta.settings import describe_vta
from anole_vta.target import VtaTarget

LAYER = Conv2d(1, 4, 4, 24, 16, (3, 3), padding=(1, 1, 1, 1))


def every_trial(task: Task) -> Sequence[Trial]:
    """Return trials of all programs, by an exhaustive search."""
    target = VtaTarget(task.target)
    search = Search(Subject(target.space(task.workload), task.workload.flop, "task"), PRESETS["exhaustive"], seed=0)
    tune(search, SimulatedMeasurer(task, target).measure, 1_000_000)
    return search.trials


@pytest.fixture(scope="session")
def task() -> Task:
    return Task(LAYER, describe_vta(hardware="search"), 2)


@pytest.fixture(scope="session")
def trials(task: Task) -> Sequence[Trial]:
    return every_trial(task)
