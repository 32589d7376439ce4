"""Timing of engines under background load, where every run counts."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from anole.documents.evaluation import LoadLatency, read_evaluation
from anole.errors import AnoleError
from anole.evaluate.engines import Engine
from anole.evaluate.timing.engine_process import EngineError
from anole.evaluate.timing.load import LOAD_SCHEDULE, load_latency, log_load, run_busy_processes, time_under_load
from anole.evaluate.timing.turns import TurnSchedule

from ...tiny_builds import HOME, run_python
from ...waiting import becomes_true, has_ended

SCHEDULE = TurnSchedule(max_rounds=2, min_burst_s=0.0, pause_s=0.0, min_runs=3)

SCRIPT = """
import logging
from functools import partial
from pathlib import Path
from anole.evaluate import device
from anole.evaluate.timing import load
from anole.evaluate.timing.turns import TurnSchedule
from anole.evaluate.stage import evaluate_build

def recording(count, before=load.run_busy_processes):
    print("neighbours", count)
    return before(count)

load.run_busy_processes = recording
logging.basicConfig(filename="load.txt", level=logging.INFO)
schedule = TurnSchedule(max_rounds=2, min_burst_s=0.0, pause_s=0.0)
load_schedule = TurnSchedule(max_rounds=2, min_burst_s=0.0, pause_s=0.0, min_runs=4)
device.time_under_load = partial(load.time_under_load, schedule=load_schedule)
evaluate_build(Path("net"), Path("load.json"), schedule=schedule, neighbours=(1,))
"""


def test_percentiles_are_over_all_runs() -> None:
    times = [np.arange(1, 51) / 1e3, np.arange(51, 101) / 1e3]
    assert load_latency("build", 2, times) == LoadLatency("build", 2, 0.05, 0.095, 0.099, runs=100, rounds=2)
    assert load_latency("build", 0, [np.array([0.3, 0.1])]) == LoadLatency("build", 0, 0.1, 0.3, 0.3, runs=2, rounds=1)


def test_no_engine_has_fewer_than_48_runs() -> None:
    assert LOAD_SCHEDULE.max_rounds * LOAD_SCHEDULE.min_runs >= 48
    assert LOAD_SCHEDULE.max_rounds * LOAD_SCHEDULE.min_burst_s >= 6


SITE: Any = SimpleNamespace(timing=nullcontext)


def test_every_started_engine_is_timed_with_each_number_of_busy_processes() -> None:
    starts = {
        name: partial(Engine, name, partial(np.arange, limit), list)
        for name, limit in (("build", 3), ("broken", "three"), ("other", 4))
    }
    found = time_under_load(starts, (0, 1), SITE, "net", SCHEDULE)
    rows = [(latency.neighbours, latency.engine, latency.runs, latency.rounds) for latency in found]
    assert rows == [(count, engine, 6, 2) for count in (0, 1) for engine in ("build", "other")]
    starts_s = [latency.start_s for latency in found]
    assert starts_s[:2] == starts_s[2:] and all(start_s is not None and 0 < start_s < 60 for start_s in starts_s)


def test_an_engine_that_fails_during_its_turns_is_named() -> None:
    good, bad = partial(np.arange, 3), partial(next, iter(["once"]))
    starts = {"build": partial(Engine, "build", good, list), "other": partial(Engine, "other", bad, list)}
    with pytest.raises(EngineError, match="net: other: StopIteration"):
        time_under_load(starts, (1,), SITE, "net", SCHEDULE)


def test_a_log_line_has_both_latencies_and_their_ratios(caplog: pytest.LogCaptureFixture) -> None:
    own, other = LoadLatency("build", 2, 0.01, 0.02, 0.04, 600, 6), LoadLatency("torch", 2, 0.02, 0.03, 0.05, 300, 6)
    with caplog.at_level(logging.INFO):
        log_load("net", [own, other])
    assert caplog.messages == [
        "net: with 2 busy processes: p50/p95/p99 10.000/20.000/40.000 ms, against 20.000/30.000/50.000 ms of torch "
        "(2.00x/1.50x/1.25x), 600 and 300 runs"
    ]


@pytest.mark.slow
def test_a_build_is_evaluated_with_a_busy_process(tiny_project: Path) -> None:
    before = sorted((tiny_project / "net").rglob("*"))
    assert run_python(tiny_project, "-c", SCRIPT).stdout.splitlines() == ["neighbours 1"]
    evaluation = read_evaluation(tiny_project / "load.json")
    engines = [(latency.engine, latency.neighbours, latency.runs) for latency in evaluation.load_latencies or ()]
    assert engines == [("build", 1, 8), ("torch", 1, 8), ("onnxruntime", 1, 8)]
    assert all(0 < latency.p50_s <= latency.p95_s <= latency.p99_s for latency in evaluation.load_latencies or ())
    assert len(evaluation.latencies) == 2
    lines = [line for line in (tiny_project / "load.txt").read_text().splitlines() if "with 1 busy" in line]
    assert len(lines) == 2
    assert sorted((tiny_project / "net").rglob("*")) == before


HOST = """
import signal, time
from anole.evaluate.timing.load import run_busy_processes
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in background jobs of a shell
with run_busy_processes(2) as ids:
    print(*ids, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("count", [0, 2])
def test_processes_are_busy_until_the_block_ends(count: int) -> None:
    with pytest.raises(KeyError), run_busy_processes(count) as ids:
        assert len(set(ids)) == count
        for process in ids:
            assert becomes_true(lambda process=process: psutil.Process(process).cpu_times().user > 0.05)
            assert os.getpriority(os.PRIO_PROCESS, process) == os.getpriority(os.PRIO_PROCESS, 0)
            assert os.sched_getaffinity(process) == os.sched_getaffinity(0)
        raise KeyError
    assert not any(map(psutil.pid_exists, ids))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_busy_processes_do_not_outlive_a_killed_parent(how: signal.Signals) -> None:
    environment = {**os.environ, "PYTHONPATH": str(HOME / "lib")}
    with subprocess.Popen([sys.executable, "-c", HOST], stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        ids = list(map(int, parent.stdout.readline().split()))
        assert len(ids) == 2 and not any(map(has_ended, ids))
        parent.send_signal(how)
    assert becomes_true(lambda: all(map(has_ended, ids)))


def test_a_busy_process_that_ends_too_early_is_an_error() -> None:
    with pytest.raises(AnoleError, match="a busy process ended before"), run_busy_processes(2) as ids:
        os.kill(ids[1], signal.SIGKILL)
        # The main thread ends before the others, and the process only with all threads.
        assert becomes_true(lambda: os.waitid(os.P_PID, ids[1], os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None)
