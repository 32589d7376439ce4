"""Timing rivals in turns: how often each runs in a turn, depending on its latency."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anole.measure.worker_functions import make_run_function
from anole.record import Config
from anole.search.evaluators.fixed import Fixed
from anole.targets.cpu.settings import describe_cpu
from anole.targets.cpu.target import CpuTarget
from anole.task import Dense, Workload


class Paced:
    """A kernel that takes as long as its config says, and records the number of runs of each call."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def relative_error(self) -> float:
        return 0.0

    def __call__(self, number: int) -> float:
        self.config["calls"].append(number)
        return float(self.config["latency_s"])


class PacedCpu(CpuTarget):
    """A CPU target with such kernels."""

    def runner(self, workload: Workload) -> Any:
        return self

    def load(self, artifact: Path, config: Config) -> Paced:
        return Paced(config)


def test_short_runs_are_repeated_with_warm_caches() -> None:
    configs: list[dict[str, Any]] = [{"latency_s": latency_s, "calls": []} for latency_s in (1e-4, 8e-3)]
    run = make_run_function(PacedCpu(describe_cpu(threads=1)), Dense(1, 8, 8), Fixed())
    timed = run([("kernel", config) for config in configs], None, 0.0)
    assert [each.timing and each.timing.latency_s for each in timed] == pytest.approx([1e-4, 8e-3])
    assert [config["calls"] for config in configs] == [[1, 2] * 5, [1] * 5]
