"""The builder of CPU candidates as shared libraries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tvm
from tvm import tirx

from anole.host.processor import llvm_attributes
from anole.record import Config
from anole.targets.base import Template
from anole.targets.cpu.device.lowering import pipeline
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.runtime import compile_runtime, compile_tiles
from anole.targets.shared.kernel import define, link
from anole.task import Workload


def llvm_target(description: Mapping[str, Any]) -> tvm.target.Target:
    """Return TVM's target for a described CPU; features that vary within its model are attributes."""
    mcpu = str(description["mcpu"])
    settings = {"kind": "llvm", "mcpu": mcpu, "num-cores": description["threads"]}
    attributes = llvm_attributes(mcpu, description.get("features", ()))
    return tvm.target.Target({**settings, "mattr": attributes} if attributes else settings)


def runtime_objects(description: Mapping[str, Any], folder: Path) -> list[Path]:
    """Compile, into a folder, the objects to link with every library for a described CPU; return their paths."""
    tiles = [compile_tiles(folder)] if VectorUnit.of(description).tile_types else []
    return [compile_runtime(int(description["threads"]), folder), *tiles]


def candidate_context() -> tvm.transform.PassContext:
    """Return TVM's settings for compiling candidates: the same loops as in networks, in less time.

    Arguments are not checked, because the runner passes correct ones and LLVM would spend a quarter of its time on the
    checks. Statements without effect are not removed, because LLVM removes them.
    """
    return tvm.transform.PassContext(config={"tirx.disable_assert": True}, disabled_pass=["tirx.RemoveNoOp"])


def load(func: tirx.PrimFunc, description: Mapping[str, Any]) -> Any:
    """Compile a scheduled function and load it into this process."""
    with TemporaryDirectory(prefix="anole-") as folder:
        artifact = Path(folder) / "kernel.so"
        _export(func, description, artifact)
        return tvm.runtime.load_module(str(artifact))["main"]


def build(
    template: Template, workload: Workload, config: Config, description: Mapping[str, Any], artifact: Path
) -> None:
    """Build one candidate into a shared library."""
    func = template.schedule(define(template, workload, config), workload, config)
    with candidate_context():
        _export(func, description, artifact)


def _export(func: tirx.PrimFunc, description: Mapping[str, Any], artifact: Path) -> None:
    library = tvm.compile(tvm.IRModule({"main": func}), llvm_target(description), tir_pipeline=pipeline())
    objects = runtime_objects(description, artifact.parent)
    library.export_library(str(artifact), fcompile=link, addons=list(map(str, objects)))
