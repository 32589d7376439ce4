"""Devices that building does not disturb; a module of its own, so that its processes need not import pytest."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anole.record import Config
from anole.targets.base import Place, Unit
from anole.targets.cpu.target import CpuTarget
from anole.task import Workload


class BesideCpu(CpuTarget):
    """Two devices that building does not disturb, whose candidates wait for each other and note what they do.

    A config names, by its ``name``, what is noted in its ``notes``; ``build_after`` and ``run_after`` are notes that
    are waited for.
    """

    place = Place.GPU

    def units(self) -> Sequence[Unit]:
        return [Unit(f"beside-{index}", {"ANOLE_TEST_UNIT": str(index)}) for index in range(2)]

    def build(self, workload: Workload, config: Config, artifact: Path) -> None:
        note(config, "begins {name}")
        wait_for(config, config.get("build_after"))
        if config.get("fails") == "build":
            raise ValueError("no such schedule")
        artifact.touch()
        note(config, "built {name}")

    def runner(self, workload: Workload) -> Any:
        return NotingRunner()


class NotingRunner:
    def load(self, artifact: Path, config: Config) -> Any:
        assert artifact.exists()
        wait_for(config, config.get("run_after"))
        note(config, f"ran {{name}} on {os.environ['ANOLE_TEST_UNIT']} in {os.getpid()}")
        if config.get("fails") == "run":
            raise RuntimeError("an illegal memory access was encountered")
        return Perfect()


class Perfect:
    def relative_error(self) -> float:
        return 0.0

    def __call__(self, number: int) -> float:
        return 1e-3


def note(config: Config, text: str) -> None:
    with open(config["notes"], "a") as notes:
        notes.write(text.format(**config) + "\n")


def wait_for(config: Config, text: str | None) -> None:
    while text is not None and not any(
        line.startswith(text) for line in Path(config["notes"]).read_text().splitlines()
    ):
        time.sleep(0.005)
