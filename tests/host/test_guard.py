"""The guard reports a model that hangs, crashes or ends the process, and does not affect a stage that works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from anole.host.guard import LIMIT_NAME

from ..terminal import run_command
from ..waiting import becomes_true

STAGE = """
import ctypes, os, signal, sys, threading, time
from anole.__main__ import main
from anole.errors import ExtractError
from anole.host import guard

@main.command()
def stage():
    guard.guard("model net")
    with guard.step("the factory"):
        {factory}
    {rest}

main(["stage"], prog_name="anole")
"""


def start(factory: str, rest: str = "print('worked', flush=True)", limit_s: str = "60") -> subprocess.Popen[str]:
    code = STAGE.format(factory=factory, rest=rest)
    environment = {**os.environ, LIMIT_NAME: limit_s}
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


FORKS = "os.fork() or (os.closerange(0, 3), time.sleep(5)); os._exit(0)"


@pytest.mark.parametrize(
    ("factory", "rest", "status", "problem"),
    [
        ("os._exit(0)", "", 2, "the factory ended the process with status 0"),
        ("ctypes.string_at(0)", "", 2, "the factory was killed by SIGSEGV"),
        ("os.kill(os.getpid(), 9)", "", 2, "the factory was killed by SIGKILL; the machine may have run out of memory"),
        (FORKS, "", 2, "the factory ended the process with status 0"),
        ("os.closerange(0, 99); os._exit(0)", "", 2, "the factory ended the process with status 0"),
        # The stage ends as it would without the guard.
        ("pass", "raise ExtractError('model net: is odd')", 2, "is odd"),
        ("pass", "sys.exit(7)", 7, None),
        ("pass", "os._exit(0)", 2, "the process exited unexpectedly with status 0"),
    ],
)
def test_code_that_ends_the_process_is_reported(factory: str, rest: str, status: int, problem: str | None) -> None:
    process = start(factory, rest)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (status, "")
    assert errors == ("" if problem is None else f"anole: model net: {problem}\n")


@pytest.mark.parametrize("factory", ["os.closerange(0, 99); time.sleep(60)", "ctypes.CDLL(None).pause()"])
def test_code_that_hangs_is_killed(factory: str) -> None:
    began = time.monotonic()
    process = start(factory, limit_s="0.5")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2 and time.monotonic() - began < 30
    assert errors == (
        "anole: model net: the factory did not finish within 0.5 s; "
        "set the environment variable ANOLE_MODEL_LIMIT_S to more seconds if it takes longer\n"
    )


def test_only_the_steps_of_the_model_have_a_limit() -> None:
    process = start("print('garbage' * 9999)", "time.sleep(1); print('worked')", limit_s="0.8")
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert output.endswith("garbage\nworked\n")


def test_a_thread_that_a_model_left_does_not_keep_a_stage_alive() -> None:
    process = start("threading.Thread(target=time.sleep, args=[60]).start()", limit_s="1")
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors) == (0, "worked\n", "")


@pytest.mark.parametrize("limit_s", ["nan", "soon"])
def test_an_invalid_limit_is_rejected(limit_s: str) -> None:
    _, errors = start("pass", limit_s=limit_s).communicate(timeout=60)
    assert errors == f"anole: ANOLE_MODEL_LIMIT_S: found '{limit_s}'; expected a positive number of seconds\n"


@pytest.mark.examples(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_stage_outlives_its_guard(number: signal.Signals) -> None:
    process = start("print(os.getpid(), flush=True); time.sleep(60)")
    assert process.stdout is not None
    stage = int(process.stdout.readline())
    process.send_signal(number)
    assert process.wait(timeout=30) == -number
    assert becomes_true(lambda: not Path(f"/proc/{stage}").exists())


@pytest.mark.guard
def test_a_factory_that_ends_the_process_is_an_error_of_its_model(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text("import os\ndef ends():\n    os._exit(0)\n")
    (tmp_path / "models.yaml").write_text(
        "models: {net: {source: 'torch:nets:ends', inputs: {x: [1, 4]}}}\n"
        "targets: {cpu: {kind: cpu}}\nbuilds: [{model: net, target: cpu}]\n"
    )
    done = run_command([sys.executable, "-m", "anole", "extract", "net", "--target", "cpu"], cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "anole: model net: the factory nets:ends ended the process with status 0\n"
    assert not (tmp_path / "work").exists()
