"""Processes that use the same folder, device or shard at the same time lose no trials."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ..workflow.conftest import Project
from .conftest import SNAKEMAKE, message_of, tune_command
from .ledger import AllFigures, Ledger, trials_in, trials_of
from .processes import SHELL, Running

pytestmark = pytest.mark.workflow

HERE, THERE = 8, 12
"""Numbers of trials of a run on this machine and on another one."""


def identities(project: Project) -> set[tuple[str, str]]:
    """Return the identities of all trials in all shards: their configs and times."""
    trials = [trial for path in Ledger(project.folder).shards() for trial in trials_of(path)]
    return {(str(trial["config"]), str(trial["created_at"])) for trial in trials}


def the_shard(project: Project) -> Path:
    """Return the shard of the project's only run, not counting copies from other machines."""
    (path,) = (path for path in Ledger(project.folder).shards() if path.name.count(".") == 1)
    return path


def until(happened: Callable[[], bool], running: Running) -> None:
    deadline_s = time.monotonic() + 60
    while not happened():
        assert running.process.poll() is None, running.output
        assert time.monotonic() < deadline_s, running.output
        time.sleep(0.005)


@pytest.fixture
def elsewhere(built: Project, tmp_path: Path) -> Project:
    """The project on another machine, which independently measured more trials of the same run."""
    other = built.copy(tmp_path / "elsewhere")
    shutil.rmtree(other.folder / "db/shards")
    time.sleep(0.002)  # Its trials get different times.
    done = other.anole(*tune_command(other.folder, "npu", THERE))
    assert done.returncode == 0, done.stderr
    assert not identities(other) & identities(built)
    return other


def test_only_one_snakemake_can_run_in_a_folder(built: Project) -> None:
    built.edit("models.yaml", "trials: 4", f"trials: {HERE}")
    ledger = Ledger(built.folder)
    ledger.note()
    both = [Running(SNAKEMAKE, built.folder) for _ in range(2)]
    codes = [running.wait() for running in both]
    refused, finished = sorted(both, key=lambda running: running.wait(), reverse=True)
    assert sorted(codes) == [0, 2], finished.output + refused.output
    assert message_of(refused.output) == "anole: another snakemake is running in this folder"
    assert (ledger.lost(), ledger.doubled()) == (0, 0)
    assert ledger.n_trials() == trials_in(built.folder / "db/tuning.sqlite") == HERE
    assert built.snakemake().jobs == {}


@pytest.mark.slow
def test_snakemakes_in_two_folders_share_a_device(tuned_cpu: Project, tmp_path: Path) -> None:
    tuned_cpu.edit("models.yaml", "trials: 4", f"trials: {HERE}")
    both = [tuned_cpu, tuned_cpu.copy(tmp_path / "another")]
    for running in [Running([*SNAKEMAKE, "tuned"], project.folder) for project in both]:
        assert running.wait() == 0, running.output
    for project in both:
        trials = trials_of(the_shard(project))
        assert [trial["number"] for trial in trials] == list(range(HERE))
        assert {trial["status"] for trial in trials} == {"ok"}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))])
def test_an_import_during_tuning_loses_no_trial(
    built: Project, elsewhere: Project, figures: AllFigures, seed: int
) -> None:
    ledger, both = Ledger(built.folder), identities(built) | identities(elsewhere)
    ledger.note()
    rng = random.Random(seed)
    tuner = Running([*SHELL, *tune_command(built.folder, "npu", HERE)], built.folder)
    time.sleep(rng.uniform(0, 0.6))
    imports = [Running([*SHELL, "import", str(elsewhere.folder / "db/shards")], built.folder) for _ in range(2)]
    assert tuner.wait() == 0, tuner.output
    for running in imports:
        if running.wait() != 0:
            assert "in use" in message_of(running.output)
    last = built.anole("import", str(elsewhere.folder / "db/shards"))
    assert last.returncode == 0, last.stderr
    lost = len(both - identities(built))
    figures["tune (simulated)", "import of the same run meanwhile"].add(lost=lost, doubled=ledger.doubled())
    assert (lost, ledger.lost(), ledger.doubled()) == (0, 0, 0)
    assert len(trials_of(the_shard(built))) >= HERE
    merged = built.anole("merge")
    assert merged.returncode == 0, merged.stderr
    assert trials_in(built.folder / "db/tuning.sqlite") == len(trials_of(the_shard(built)))


def test_a_tuner_that_waited_for_a_replaced_shard_appends_to_the_new_one(built: Project, elsewhere: Project) -> None:
    path, longer = the_shard(built), the_shard(elsewhere)
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        tuner = Running([*SHELL, *tune_command(built.folder, "npu", THERE + 4)], built.folder)
        until(lambda: path.name in tuner.output, tuner)
        os.replace(shutil.copy(longer, path.with_suffix(".new")), path)
    assert tuner.wait() == 0, tuner.output
    assert path.read_bytes().startswith(longer.read_bytes())
    assert [trial["number"] for trial in trials_of(path)] == list(range(THERE + 4))
