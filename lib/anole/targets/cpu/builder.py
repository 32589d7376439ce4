"""Candidates for the CPU as shared libraries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm

from anole.record import Config
from anole.targets.base import Template
from anole.targets.kernel import define, link
from anole.task import Workload


def llvm_target(description: Mapping[str, Any]) -> tvm.target.Target:
    """Returns what TVM calls this target."""
    return tvm.target.Target({"kind": "llvm", "mcpu": description["mcpu"], "num-cores": description["threads"]})


def build(
    template: Template, workload: Workload, config: Config, description: Mapping[str, Any], artifact: Path
) -> None:
    """Builds one candidate into a shared library."""
    func = template.schedule(define(template, workload, config), workload, config)
    library = tvm.compile(tvm.IRModule({"main": func}), llvm_target(description))
    library.export_library(str(artifact), fcompile=link)
