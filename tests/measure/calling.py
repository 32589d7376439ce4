"""A processor with troubled candidates; a module of its own, so that its processes need not import pytest."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx

from anole.keys import content_key
from anole.record import Config
from anole.targets.cpu.target import CpuTarget
from anole.targets.shared.kernel import define, link
from anole.task import Workload


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
