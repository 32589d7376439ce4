"""Processors with faults, of the machine or of candidates; a module of its own, so that no process imports pytest."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx

from anole.keys import content_key
from anole.record import Config
from anole.targets.base import Place
from anole.targets.cpu.target import CpuTarget
from anole.targets.shared.kernel import define, link
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


class CallingCpu(CpuTarget):
    """The real processor, but for candidates that call a function of C's library in the place of their kernel."""

    def build(self, workload: Workload, config: Config, artifact: Path) -> None:
        own = {name: value for name, value in config.items() if name != "calls"}
        if own == config:
            return super().build(workload, config, artifact)
        kernel = define(self.template(workload), workload, own)
        call = tirx.Evaluate(tirx.call_extern("int32", config["calls"]))
        func = tirx.PrimFunc(kernel.params, call).with_attr("global_symbol", "main")
        tvm.compile(tvm.IRModule({"main": func}), self.compiler_target()).export_library(str(artifact), fcompile=link)

    def template(self, workload: Workload) -> Any:
        return _Untroubled(super().template(workload))

    def runner(self, workload: Workload) -> Any:
        raise AssertionError("nothing runs in this process")


class KeepingCpu(CallingCpu):
    """The same, which builds each config once, into the folder that is the description's ``kept``."""

    def build(self, workload: Workload, config: Config, artifact: Path) -> None:
        kept = Path(self.description["kept"]) / f"{content_key(dict(config))}.so"
        if not kept.exists():
            super().build(workload, config, artifact)
            artifact.rename(kept)
        shutil.copy(kept, artifact)


class _Untroubled:
    """A template that knows nothing of the calls."""

    def __init__(self, template: Any) -> None:
        self._template = template

    def pack_weight(self, workload: Workload, config: Config, weight: Any) -> Any:
        return self._template.pack_weight(workload, {k: v for k, v in config.items() if k != "calls"}, weight)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._template, name)
