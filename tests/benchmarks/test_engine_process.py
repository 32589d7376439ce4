"""An engine in a process of its own answers, takes turns, and says why it cannot."""

from __future__ import annotations

import os
from functools import partial

import numpy as np
import pytest

from anole.evaluate.engines import Engine
from engine_process import EngineError, EngineProcess


def test_an_engine_answers_once_and_takes_turns() -> None:
    with EngineProcess(partial(Engine, "range", partial(np.arange, 3), list)) as engine:
        assert engine.started.outputs == [0, 1, 2]
        assert engine.started.start_s > 0
        for _ in range(2):
            times_s = engine.burst(1e-3)
            assert times_s.sum() >= 1e-3 and (times_s > 0).all()


def test_an_engine_has_the_environment_of_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    process = EngineProcess(partial(Engine, "threads", partial(os.getenv, "TVM_NUM_THREADS"), list))
    monkeypatch.setenv("TVM_NUM_THREADS", "7")
    with process as engine:
        assert engine.started.outputs == ["7"]


def test_what_an_engine_prints_is_no_output_of_ours(capfd: pytest.CaptureFixture[str]) -> None:
    with EngineProcess(partial(Engine, "loud", partial(print, "tuned!", flush=True), repr)):
        pass
    said = capfd.readouterr()
    assert said.out == "" and "tuned!" in said.err


def test_an_engine_that_fails_says_why() -> None:
    process = EngineProcess(partial(Engine, "range", partial(np.arange, "three"), list))
    with pytest.raises(EngineError, match=r"Error: .*three|TypeError: "), process:
        pass


def test_an_engine_whose_process_ends_is_found_out() -> None:
    process = EngineProcess(partial(Engine, "gone", partial(os._exit, 7), list))
    with pytest.raises(EngineError, match="its process exited with 7"), process:
        pass
