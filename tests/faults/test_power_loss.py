"""A power loss at any time loses no acknowledged trial, and leaves either the old or the new database.

Each command runs once while its writes are recorded. The record is replayed up to each call, and the states that POSIX
allows after a power loss there are generated, see `crash_states`. In each state, acknowledged records can be read, and
the same command succeeds. By default, a sample of the states is tested; the slow tests use many more.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .crash_states import State, crash_states, sample_states
from .scenarios import SCENARIOS, fill_both, try_all, verify
from .system_calls import Driver, Ended

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler (cc)")

STATES = [(30, 24), pytest.param((60, 1000), marks=pytest.mark.slow, id="many")]
"""Maximum number of states to generate at each call, and to test in total; most differ only in a temporary file."""


@pytest.mark.parametrize("most", STATES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_possible_states_after_a_power_loss(driver: Driver, tmp_path: Path, name: str, most: tuple[int, int]) -> None:
    clean = fill_both(driver, name, tmp_path)
    states, now = list(crash_states(clean.disk, clean.entries, most[0])), tmp_path / "now"

    def problem(state: State) -> str:
        shutil.rmtree(now, ignore_errors=True)
        now.mkdir()
        state.write(now)
        return verify(driver, clean.scenario, Ended(0 if state.ended else -9, state.acknowledged, ""), now)

    def label(state: State) -> str:
        return f"after {state.after} of {len(clean.entries)} changes"

    try_all(f"{name}: {len(clean.entries)} changes", sample_states(states, most[1]), len(states), problem, label)
