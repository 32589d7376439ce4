"""CPU targets with injected faults of the machine or of candidates; a separate module, so workers import no pytest."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tvm
from tvm import tirx

from anole.keys import content_key
from anole.record import Config
from anole.targets.base import DeviceLocation
from anole.targets.cpu.target import CpuTarget
from anole.targets.shared.kernel import define, link
from anole.task import Workload


class FaultyCpu(CpuTarget):
    """The real processor, with faults named by the files of a folder and by each config's ``fails``.

    The folder is the description's ``faults``. Each build appends a line to its file ``built``: ``t`` for a config of
    another task, ``d`` for the default config, otherwise the config's ``name`` or ``-``.
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


class UndisturbedFaultyCpu(FaultyCpu):
    """A faulty processor that building does not disturb."""

    location = DeviceLocation.GPU


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
        if config.get("fails") == "wrong":
            return SimpleNamespace(relative_error=lambda: 1.0 + float(kernel.relative_error()))
        return kernel


class CallingCpu(CpuTarget):
    """The real processor; a config with ``calls`` calls that function of the C library instead of its kernel."""

    def build(self, workload: Workload, config: Config, artifact: Path) -> None:
        own = {name: value for name, value in config.items() if name != "calls"}
        if own == config:
            return super().build(workload, config, artifact)
        kernel = define(self.template(workload), workload, own)
        call = tirx.Evaluate(tirx.call_extern("int32", config["calls"]))
        func = tirx.PrimFunc(kernel.params, call).with_attr("global_symbol", "main")
        tvm.compile(tvm.IRModule({"main": func}), self.compiler_target()).export_library(str(artifact), fcompile=link)

    def template(self, workload: Workload) -> Any:
        return _IgnoringCalls(super().template(workload))

    def runner(self, workload: Workload) -> Any:
        raise AssertionError("nothing runs in this process")


class KeepingCpu(CallingCpu):
    """A `CallingCpu` that caches builds in the description's folder ``kept``."""

    def build(self, workload: Workload, config: Config, artifact: Path) -> None:
        kept = Path(self.description["kept"]) / f"{content_key(dict(config))}.so"
        if not kept.exists():
            super().build(workload, config, artifact)
            artifact.rename(kept)
        shutil.copy(kept, artifact)


class _IgnoringCalls:
    """A template that ignores ``calls``."""

    def __init__(self, template: Any) -> None:
        self._template = template

    def pack_weight(self, workload: Workload, config: Config, weight: Any) -> Any:
        return self._template.pack_weight(workload, {k: v for k, v in config.items() if k != "calls"}, weight)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._template, name)
