"""Faults of the machine end a tuning with a message, and are never recorded as trials."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from anole.record import Measurement, Status
from anole.search.presets import read_tuner
from anole.store.shard import Shard, read_shard
from anole.targets.cpu.settings import describe_cpu
from anole.task import Dense, Task
from anole.tune.options import TuneOptions
from anole.tune.stage import tune_task

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


@pytest.mark.guard
def test_without_a_compiler_nothing_is_recorded_and_with_one_it_goes_on(task: Path, tmp_path: Path) -> None:
    said = tune(task, PATH=str(tmp_path))
    last = said.stderr.strip().splitlines()[-1]
    assert said.returncode == 2 and last.startswith(
        "anole: found neither `cc` nor `gcc` nor `clang` on PATH; a C compiler"
    )
    assert last.endswith("; running again continues after 0 trials")
    assert statuses(task) == [] and not (tmp_path / "receipt.json").exists()
    assert tune(task).returncode == 0
    assert statuses(task) == [Status.OK] * 4


def forge(task: Path, template: Path, statuses: list[Status]) -> Path:
    """Records a run like that of another folder, but with failures, as a broken machine left them before."""
    content = read_shard(next(template.glob("*/*.jsonl")))
    with Shard.open(task.parent / "shards", content.run, content.task) as shard:
        for trial, status in zip(content.trials, statuses, strict=True):
            if status is not Status.OK:
                trial = replace(trial, measurement=Measurement(status, "no such tool"), gflops=None)
            shard.append_trial(trial)
    return shard.path


def test_what_the_machine_made_fail_is_measured_again_when_it_is_asked_for(
    task: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    settings, template, receipt = read_tuner(TUNER), tmp_path / "template", tmp_path / "receipt.json"
    tune_task(task, TuneOptions(settings, 0, 4, template), receipt)
    expected = json.loads(receipt.read_text())
    failed = [Status.BUILD_ERROR, Status.RUN_TIMEOUT, Status.WRONG_ANSWER, Status.BUILD_TIMEOUT]
    shard = forge(task, template, failed)

    tune_task(task, TuneOptions(settings, 0, 4, tmp_path / "shards"), receipt)
    assert json.loads(receipt.read_text())["status"] == "failed" and statuses(task) == failed
    assert f"anole tune {task} --seed 0 --trials 4 --again failures" in caplog.messages[-1]

    tune_task(task, TuneOptions(settings, 0, 4, tmp_path / "shards"), receipt, failures_again=True)
    again = json.loads(receipt.read_text())
    assert statuses(task) == [Status.OK, Status.OK, Status.WRONG_ANSWER, Status.OK]
    assert "dense 32->64: 3 of 3 failed trials work now" in caplog.messages
    assert (again["status"], again["statuses"], again["confirmed"]) == ("tuned", {"ok": 3, "wrong_answer": 1}, True)
    assert (again["run_key"], again["measured"]) == (expected["run_key"], 4)
    lines = [json.loads(line)["kind"] for line in shard.read_text().splitlines()]
    assert (lines.count("trial"), lines.count("again")) == (4, 3)
    assert [trial.config for trial in read_shard(shard).trials] == [
        trial.config for trial in read_shard(next(template.glob("*/*.jsonl"))).trials
    ]

    tune_task(task, TuneOptions(settings, 0, 5, tmp_path / "shards"), receipt, failures_again=True)
    assert "dense 32->64: no trial failed in a way that may be the machine's fault" in caplog.messages
    assert len(statuses(task)) == 5


@pytest.mark.guard
def test_the_command_measures_failures_again(task: Path, tmp_path: Path) -> None:
    tune_task(task, TuneOptions(read_tuner(TUNER), 0, 4, tmp_path / "template"), tmp_path / "receipt.json")
    forge(task, tmp_path / "template", [Status.OK, Status.BUILD_ERROR, Status.OK, Status.OK])
    said = tune(task, "--again", "failures")
    assert said.returncode == 0 and "1 of 1 failed trials work now" in said.stderr
    assert statuses(task) == [Status.OK] * 4
