"""An engine in a separate process: its outputs, its turns and its errors."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from shlex import quote

import numpy as np
import pytest

from anole.evaluate.engines import Engine
from anole.evaluate.timing.engine_process import EngineError, EngineProcess, start_engines


def test_an_engine_returns_outputs_and_takes_turns() -> None:
    with EngineProcess(partial(Engine, "range", partial(np.arange, 3), list)) as engine:
        assert engine.started.outputs == [0, 1, 2]
        assert engine.started.start_s > 0
        for _ in range(2):
            times_s = engine.burst(1e-3)
            assert times_s.sum() >= 1e-3 and (times_s > 0).all()
        assert len(engine.burst(0.0, 5)) == 5


def test_an_engine_inherits_the_environment_at_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    process = EngineProcess(partial(Engine, "threads", partial(os.getenv, "TVM_NUM_THREADS"), list))
    monkeypatch.setenv("TVM_NUM_THREADS", "7")
    with process as engine:
        assert engine.started.outputs == ["7"]


def test_an_engines_output_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with EngineProcess(partial(Engine, "loud", partial(print, "tuned!", flush=True), repr)):
        pass
    said = capfd.readouterr()
    assert said.out == "" and "tuned!" in said.err


@pytest.mark.parametrize(
    ("run", "message"),
    [(partial(np.arange, "three"), r"Error: .*three|TypeError: "), (partial(os._exit, 7), "its process exited with 7")],
)
def test_the_error_of_a_failing_engine_is_reported(run: Callable[[], object], message: str) -> None:
    with pytest.raises(EngineError, match=message), EngineProcess(partial(Engine, "broken", run, list)):
        pass


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is only one core")
@pytest.mark.parametrize("pinned", [True, False])
def test_an_engine_is_pinned_to_a_core_only_on_request(tmp_path: Path, pinned: bool) -> None:
    command = f"env --unset=OMP_NUM_THREADS nproc >> {quote(str(tmp_path))}/cores"  # nproc would print that variable
    write_cores = partial(subprocess.run, command, shell=True)
    with EngineProcess(partial(Engine, "cores", write_cores, repr), pinned=pinned) as engine:
        engine.burst(0.0)
    last = (tmp_path / "cores").read_text().split()[-1]
    assert int(last) == (1 if pinned else len(os.sched_getaffinity(0)))


def test_engines_that_do_not_start_are_named_unless_required(caplog: pytest.LogCaptureFixture) -> None:
    good, bad = (partial(Engine, "range", partial(np.arange, limit), list) for limit in (3, "three"))
    with ExitStack() as running, caplog.at_level(logging.WARNING):
        assert list(start_engines({"good": good, "bad": bad}, running, "net")) == ["good"]
        assert "net: bad does not run: " in caplog.text
        with pytest.raises(EngineError, match="net: bad does not run: "):
            start_engines({"bad": bad, "good": good}, running, "net")
