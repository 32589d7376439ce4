"""Builds candidates for CUDA: their source, and shared libraries of kernels and launching host code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx

from anole.record import Config
from anole.targets.base import Template
from anole.targets.cuda.device.architecture import BlockLimits
from anole.targets.cuda.device.runtime import prepare_to_compile, source_only
from anole.targets.cuda.device.toolchain import check_architecture
from anole.targets.shared.kernel import define, link
from anole.task import Workload


def cuda_target(description: Mapping[str, Any]) -> tvm.target.Target:
    """Returns TVM's target; its host is the processor that compiles."""
    limits = BlockLimits(**description["limits"])
    cuda = {
        "kind": "cuda",
        "arch": description["arch"],
        "max_threads_per_block": limits.threads_per_block,
        "max_shared_memory_per_block": limits.shared_bytes_per_block,
        "registers_per_block": limits.registers_per_block,
        "thread_warp_size": limits.warp_size,
    }
    return tvm.target.Target(cuda, host="llvm")


def compile_kernel(func: tirx.PrimFunc, description: Mapping[str, Any]) -> Any:
    """Compiles a scheduled function for the target and its host."""
    prepare_to_compile()
    # Within the target's scope the CUDA compiler finds the architecture; otherwise it would ask a GPU.
    with cuda_target(description) as target:
        return tvm.compile(tvm.IRModule({"main": func}), target)


def source(func: tirx.PrimFunc, description: Mapping[str, Any]) -> str:
    """Returns the CUDA C++ that TVM generates for a scheduled function."""
    with source_only():
        return str(compile_kernel(func, description).mod.imports[0].inspect_source())


def build(
    template: Template, workload: Workload, config: Config, description: Mapping[str, Any], artifact: Path
) -> None:
    """Builds one candidate into a shared library."""
    check_architecture(description["arch"])
    func = template.schedule(define(template, workload, config), workload, config)
    compile_kernel(func, description).export_library(str(artifact), fcompile=link)
