"""Compiles a build's network once more, as it was compiled, but to kernels alone and for several levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm

from anole.compile.build import match_network
from anole.compile.device import lower_network
from anole.compile.recorded import recorded_manifest, recorded_receipts
from anole.documents.build import Build
from anole.errors import ExportError, cause
from anole.export.levels import Level
from anole.export.sequence import KernelSequence, check_kernels, lower_calls, read_sequence
from anole.export.workspaces import Workspaces
from anole.targets.base import Device
from anole.targets.cpu.device.builder import llvm_target


@dataclass(frozen=True)
class Lowered:
    """A network's sequence of kernels, and the kernels' code before it is compiled for a level."""

    kernels: KernelSequence
    functions: tvm.IRModule


def lower_build(build: Build, target: Device) -> Lowered:
    """Returns the network of a build, with the configs that the build was compiled with.

    Raises:
        ExtractError: the network cannot be loaded.
        BuildError: the network has changed since it was built.
        ExportError: it cannot be lowered, or does something that has no form in C.
    """
    network = match_network(build.model_spec, recorded_manifest(build), recorded_receipts(build), target)
    try:
        lowered, _ = lower_network(network, target)
        module = lower_calls(lowered, target.compiler_target())
    except Exception as error:
        raise ExportError(f"build {build.name}: TVM cannot lower it: {cause(error)}") from error
    kernels = read_sequence(module, len(build.outputs))
    check_kernels(module, kernels.kernels)
    named = {name: module[name].with_attr("global_symbol", name) for name in kernels.kernels}
    return Lowered(kernels, tvm.IRModule({tvm.ir.GlobalVar(name): named[name] for name in named}))


def compile_level(lowered: Lowered, target: Device, level: Level, threads: int, made: Path) -> Workspaces:
    """Writes the object with the kernels of one level, if there are any, and returns what memory they allocate.

    The kernels do not check their arguments, which are the library's own.
    """
    workspaces = Workspaces()
    if not lowered.kernels.kernels:
        return workspaces
    options: dict[str, Any] = {**target.compiler_options, "tirx.disable_assert": True}
    processor = llvm_target({**level.description, "threads": threads})
    try:
        with tvm.transform.PassContext(config=options, instruments=[workspaces]):
            library = tvm.tirx.build(lowered.functions, target=processor, pipeline=target.compiler_pipeline())
    except Exception as error:
        raise ExportError(f"TVM cannot compile the kernels for {level.name}: {cause(error)}") from error
    library.write_to_file(str(made), "o")
    return workspaces


def largest(each: Sequence[Workspaces]) -> Workspaces:
    """Returns workspaces that suffice for all levels."""
    made = Workspaces()
    made.serial_bytes = max(one.serial_bytes for one in each)
    made.chunk_bytes = max(one.chunk_bytes for one in each)
    return made
