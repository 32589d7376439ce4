"""A process that is killed at any moment costs nothing that was acknowledged, and running again completes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.workflow

TRIALS = 12


def wait_until(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline_s = time.monotonic() + 120
    while not happened():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def kill_everything(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)


def kill_snakemake(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)


def kill_tuner(process: subprocess.Popen[str]) -> None:
    (tuner,) = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if child.name().startswith("python") and child.cmdline()[1:4] == ["-m", "anole", "tune"]
    ]
    tuner.kill()


@pytest.mark.parametrize(
    "kill",
    [kill_everything, *(pytest.param(kill, marks=pytest.mark.slow) for kill in (kill_snakemake, kill_tuner))],
)
def test_tuning_goes_on_where_it_was_killed(one: Any, kill: Callable[[subprocess.Popen[str]], None]) -> None:
    (shard,) = one.shards()
    one.edit("models.yaml", "trials: 2", f"trials: {TRIALS}")
    process = one.start("tuned")
    wait_until(lambda: len(shard.read_bytes().splitlines()) > 6, process)
    kill(process)
    acknowledged = b"".join(line for line in shard.read_bytes().splitlines(keepends=True) if line.endswith(b"\n"))
    process.wait(timeout=60)
    outcome = one.snakemake("tuned")
    assert outcome.code == 0, outcome.output
    assert shard.read_bytes().startswith(acknowledged)
    trials = one.shards()[shard].trials
    assert [trial.number for trial in trials] == list(range(TRIALS))
    assert len({str(trial.config) for trial in trials}) == TRIALS


@pytest.mark.guard
def test_extraction_is_done_again_when_it_was_killed(empty: Any, onnx_writer: Callable[..., None]) -> None:
    onnx_writer(empty.folder / "chain.onnx", [16])
    empty.write({"chain": {"source": "onnx:chain.onnx"}})
    process = empty.start("tuned")
    wait_until(Path(empty.folder / "logs/extract/chain-cpu.log").exists, process)
    kill_everything(process)
    process.wait(timeout=60)
    outcome = empty.snakemake("tuned")
    assert outcome.code == 0, outcome.output
    assert sorted(outcome.jobs) == ["extract", "tune"]
