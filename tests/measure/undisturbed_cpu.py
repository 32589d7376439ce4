"""Devices that building does not disturb; a separate module, which spares worker processes the import of pytest."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anole.record import Config
from anole.targets.base import DeviceLocation, LocalDevice
from anole.targets.cpu.target import CpuTarget
from anole.task import Workload


class UndisturbedCpu(CpuTarget):
    """Two devices that building does not disturb, whose candidates log their steps and can wait for each other.

    A config has a ``name`` and a file ``notes`` for its log lines; its build or run waits until the line
    ``build_after`` or ``run_after`` is in that file.
    """

    location = DeviceLocation.GPU

    def units(self) -> Sequence[LocalDevice]:
        return [LocalDevice(f"undisturbed-{index}", {"ANOLE_TEST_UNIT": str(index)}) for index in range(2)]

    def build(self, workload: Workload, config: Config, artifact: Path) -> None:
        log_step(config, "begins {name}")
        wait_for(config, config.get("build_after"))
        if config.get("fails") == "build":
            raise ValueError("no such schedule")
        artifact.touch()
        log_step(config, "built {name}")

    def runner(self, workload: Workload) -> Any:
        return LoggingRunner()


class LoggingRunner:
    def load(self, artifact: Path, config: Config) -> Any:
        assert artifact.exists()
        wait_for(config, config.get("run_after"))
        log_step(config, f"ran {{name}} on {os.environ['ANOLE_TEST_UNIT']} in {os.getpid()}")
        if config.get("fails") == "run":
            raise RuntimeError("an illegal memory access was encountered")
        return ExactKernel()


class ExactKernel:
    def relative_error(self) -> float:
        return 0.0

    def __call__(self, number: int) -> float:
        return 1e-3


def log_step(config: Config, text: str) -> None:
    with open(config["notes"], "a") as notes:
        notes.write(text.format(**config) + "\n")


def wait_for(config: Config, text: str | None) -> None:
    while text is not None and not any(
        line.startswith(text) for line in Path(config["notes"]).read_text().splitlines()
    ):
        time.sleep(0.005)
