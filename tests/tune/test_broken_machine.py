"""Faults of the machine end tuning with a message and are never recorded as trials."""

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
from anole.store.content import ShardContent
from anole.store.shard import Shard, read_shard

from ..terminal import run_command
from .conftest import TUNER, Project

LIBRARY = Path(__file__).parents[2] / "lib"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, seed=0)


def tune(project: Project, *more: str, **environment: str) -> subprocess.CompletedProcess[str]:
    receipt = project.folder / "receipt.json"
    command = [sys.executable, "-m", "anole", "tune", project.path, "--tuner", json.dumps(TUNER), "--trials", "4"]
    path = os.pathsep.join([str(LIBRARY), *filter(None, [os.environ.get("PYTHONPATH")])])
    command += ["--shards", project.shards, "--receipt", receipt, *more]
    return run_command(command, env={**os.environ, "PYTHONPATH": path, **environment}, timeout=120)


def statuses(project: Project) -> list[Status]:
    paths = project.shards.glob("*/*.jsonl")
    return [trial.measurement.status for path in paths for trial in read_shard(path).trials]


@pytest.mark.guard
def test_without_a_compiler_nothing_is_recorded_and_with_one_tuning_continues(project: Project) -> None:
    done = tune(project, PATH=str(project.folder))
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 2
    assert last.startswith("anole: found neither `cc` nor `gcc` nor `clang` on PATH; a C compiler")
    assert last.endswith("; running again continues after 0 trials")
    assert statuses(project) == [] and not (project.folder / "receipt.json").exists()
    assert tune(project).returncode == 0
    assert statuses(project) == [Status.OK] * 4


def forge(project: Project, template: Path, statuses: list[Status]) -> ShardContent:
    """Record a copy of another folder's run, with the failures that a broken machine would have caused."""
    content = read_shard(next(template.glob("*/*.jsonl")))
    with Shard.open(project.shards, content.run, content.task) as shard:
        for trial, status in zip(content.trials, statuses, strict=True):
            if status is not Status.OK:
                trial = replace(trial, measurement=Measurement(status, "no such tool"), gflops=None)
            shard.append_trial(trial)
    return content


def test_failures_that_the_machine_may_have_caused_are_measured_again_on_request(
    project: Project, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    expected = project.tune(4, shards=tmp_path / "template")
    failed = [Status.BUILD_ERROR, Status.RUN_TIMEOUT, Status.WRONG_ANSWER, Status.BUILD_TIMEOUT]
    template = forge(project, tmp_path / "template", failed)

    assert project.tune(4)["status"] == "failed" and statuses(project) == failed
    assert f"anole tune {project.path} --seed 0 --trials 4 --again failures" in caplog.messages[-1]

    again = project.tune(4, failures_again=True)
    assert statuses(project) == [Status.OK, Status.OK, Status.WRONG_ANSWER, Status.OK]
    assert "dense 32->64: 3 of 3 failed trials work now" in caplog.messages
    assert (again["status"], again["statuses"], again["confirmed"]) == ("tuned", {"ok": 3, "wrong_answer": 1}, True)
    assert (again["run_key"], again["measured"]) == (expected["run_key"], 4)
    lines = [json.loads(line)["kind"] for line in project.shard.read_text().splitlines()]
    assert (lines.count("trial"), lines.count("again")) == (4, 3)
    assert [trial.config for trial in project.content.trials] == [trial.config for trial in template.trials]

    project.tune(5, failures_again=True)
    assert "dense 32->64: no trial has failed in a way that the machine may have caused" in caplog.messages
    assert len(statuses(project)) == 5


@pytest.mark.guard
def test_the_command_measures_failures_again(project: Project, tmp_path: Path) -> None:
    project.tune(4, shards=tmp_path / "template")
    forge(project, tmp_path / "template", [Status.OK, Status.BUILD_ERROR, Status.OK, Status.OK])
    done = tune(project, "--again", "failures")
    assert done.returncode == 0 and "1 of 1 failed trials work now" in done.stderr
    assert statuses(project) == [Status.OK] * 4
