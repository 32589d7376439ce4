"""A power loss at any point loses no acknowledged trial, and leaves a database that is the old or the new one.

Every command runs once while its writes are recorded. The record is replayed up to each call, and for each the states
that POSIX allows a power loss to leave are made, see `crash_states`. In each state what was acknowledged can be read,
and the same command ends well. A sample of the states is tried by default; many more are where the slow tests run.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .crash_states import State, crash_states, sampled_states
from .scenarios import SCENARIOS, Scenario, fail_if, outlived, prepared
from .system_calls import Driver, Ended

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler (cc)")

SAMPLE = 24
"""So many states of each scenario are tried by default."""

MANY = 1000
"""So many are tried where the slow tests run; all of them differ, the most only in a temporary file."""


def outlive(driver: Driver, wanted: Scenario, state: State, folder: Path) -> str:
    """Returns what does not hold in a state, or nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    state.write(folder)
    return outlived(driver, wanted, Ended(0 if state.ended else -9, state.acknowledged, ""), folder)


def replay(driver: Driver, name: str, folder: Path, most_each: int, most: int) -> None:
    clean = prepared(driver, name, folder)
    states = list(crash_states(clean.disk, clean.entries, most_each))
    chosen = sampled_states(states, most)
    problems = []
    for state in chosen:
        problem = outlive(driver, clean.scenario, state, folder / "now")
        if problem:
            problems.append(f"after {state.after} of {len(clean.entries)} changes: {problem}")
    print(f"{name}: {len(clean.entries)} changes, {len(chosen)} of {len(states)} states, {len(problems)} bad")
    fail_if(problems, len(chosen))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_sample_of_the_states_after_a_power_loss(driver: Driver, tmp_path: Path, name: str) -> None:
    replay(driver, name, tmp_path, 30, SAMPLE)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_states_after_a_power_loss(driver: Driver, tmp_path: Path, name: str) -> None:
    replay(driver, name, tmp_path, 60, MANY)
