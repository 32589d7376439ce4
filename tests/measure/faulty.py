"""Processors with faults, of the machine or of candidates; a module of its own, so that no process imports pytest."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anole.record import Config
from anole.targets.base import Place
from anole.targets.cpu.target import CpuTarget
from anole.task import Workload


class FaultyCpu(CpuTarget):
    """The real processor, with the faults that the files in a folder name, and with those that a config asks for.

    The folder is the description's ``faults``.

    Whatever is built is noted in the folder's file ``built``, one letter a line: ``t`` for a config of another task,
    ``d`` for the default config, otherwise the config's ``name`` or ``-``.
    """

    def build(self, workload: Workload, config: Config, artifact: Path) -> None:
        folder = Path(self.description["faults"])
        own = {name: value for name, value in config.items() if name not in ("fails", "name")}
        is_default = own == dict(self.default_config(workload)) and "name" not in config
        kind = "d" if is_default else str(config.get("name", "-"))
        with (folder / "built").open("a") as built:
            built.write(f"{'t' if workload.flop == 4096 else kind}\n")
        faults = {path.name for path in folder.iterdir()}
        if "nothing is built" in faults or (is_default and workload.flop != 4096 and "default fails" in faults):
            raise ValueError("no such schedule")
        if "disk full" in faults:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(artifact))
        match config.get("fails"):
            case "always":
                raise ValueError("no such schedule")
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "build crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "build hang":
                time.sleep(600)
            case "killed once" if "killed" not in faults:
                (folder / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            case "breaks the machine":
                (folder / "nothing is built").touch()
        super().build(workload, own, artifact)

    def runner(self, workload: Workload) -> Any:
        return _Runner(super().runner(workload), Path(self.description["faults"]))


class BesideFaultyCpu(FaultyCpu):
    """The same, as a device that building does not disturb."""

    place = Place.GPU


class _Runner:
    def __init__(self, runner: Any, folder: Path) -> None:
        self._runner, self._folder = runner, folder

    def load(self, artifact: Path, config: Mapping[str, Any]) -> Any:
        folder = self._folder
        if (folder / "nothing runs").exists():
            raise RuntimeError("no device")
        match config.get("fails"):
            case "killed run once" if not (folder / "killed run").exists():
                (folder / "killed run").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            case "run crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "run hang":
                time.sleep(600)
        kernel = self._runner.load(artifact, {k: v for k, v in config.items() if k not in ("fails", "name")})
        return _Wrong(kernel) if config.get("fails") == "wrong" else kernel


class _Wrong:
    """A kernel that says of itself that it is wrong."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def relative_error(self) -> float:
        return 1.0 + float(self._kernel.relative_error())
