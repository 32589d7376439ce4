"""Faults of the machine end a tuning with a message, and are never recorded as trials."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anole.record import Status
from anole.store.shard import read_shard
from anole.targets.cpu.settings import describe_cpu
from anole.task import Dense, Task

LIBRARY = Path(__file__).parents[2] / "lib"
TUNER = {"preset": "random", "evaluator": {"number": 1, "repeats": 2}, "n_confirm": 1}


@pytest.fixture
def task(tmp_path: Path) -> Path:
    task = Task(Dense(1, 32, 64), describe_cpu(threads=1), 1)
    path = tmp_path / f"{task.key}.json"
    path.write_text(json.dumps(task.to_json()))
    return path


def tune(task: Path, *more: str, **environment: str) -> subprocess.CompletedProcess[str]:
    shards, receipt = task.parent / "shards", task.parent / "receipt.json"
    command = [sys.executable, "-m", "anole", "tune", task, "--tuner", json.dumps(TUNER), "--trials", "4"]
    path = os.pathsep.join([str(LIBRARY), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [*command, "--shards", shards, "--receipt", receipt, *more],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def statuses(task: Path) -> list[Status]:
    return [
        trial.measurement.status for path in task.parent.glob("shards/*/*.jsonl") for trial in read_shard(path).trials
    ]


def test_without_a_linker_nothing_is_recorded_and_with_one_it_goes_on(task: Path, tmp_path: Path) -> None:
    said = tune(task, PATH=str(tmp_path))
    last = said.stderr.strip().splitlines()[-1]
    assert said.returncode == 2 and last.startswith("anole: found neither `ld` nor `cc` on PATH; a linker is needed")
    assert last.endswith("; running again continues after 0 trials")
    assert statuses(task) == [] and not (tmp_path / "receipt.json").exists()
    assert tune(task).returncode == 0
    assert statuses(task) == [Status.OK] * 4


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 96 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    made = mount and subprocess.run([mount, "-t", "tmpfs", "-o", "size=96k", "tmpfs", folder], capture_output=True)
    if not made or made.returncode:
        pytest.skip("a small disk needs the right to mount one")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("left_bytes", [pytest.param(8 << 10, marks=pytest.mark.slow), 24 << 10])
def test_on_a_full_disk_no_failure_is_recorded(task: Path, small_disk: Path, left_bytes: int) -> None:
    (small_disk / "filler").write_bytes(bytes((96 << 10) - left_bytes))
    said = tune(task, TMPDIR=str(small_disk))
    assert said.returncode == 2 and "No space left on device" in said.stderr, said.stderr
    assert set(statuses(task)) <= {Status.OK}
    (small_disk / "filler").unlink()
