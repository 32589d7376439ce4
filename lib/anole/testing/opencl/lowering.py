"""Lowers a scheduled CUDA function for OpenCL, and reads the launches from the lowered host part."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.tirx.build import codegen_build, split_host_device_mods

from anole.errors import TargetError
from anole.record import Config
from anole.targets.base import Template
from anole.targets.cuda.device.architecture import BlockLimits
from anole.targets.shared.kernel import define
from anole.task import Workload
from anole.testing.opencl.launches import Extents, Launch, Launches

_LAUNCH = "tirx.call_ffi_kernel"
_CROSS_THREAD = "tirx.tvm_thread_allreduce"


class NotCoveredError(TargetError):
    """OpenCL lowers a function to other steps than CUDA, so that running it would show nothing about CUDA."""


def lower(template: Template, workload: Workload, config: Config, limits: BlockLimits) -> Launches:
    """Returns a candidate's kernels in OpenCL C.

    TVM lowers the scheduled function by the same passes as for CUDA, up to the generation of the source. Reductions
    across threads are the exception: CUDA gets warp shuffles, and OpenCL a tree whose barriers only some threads reach.

    Raises:
        NotCoveredError: threads share a reduction, as in a dense layer of few rows.
    """
    func = template.schedule(define(template, workload, config), workload, config)
    target = _opencl_target(limits)
    module = tirx.transform.BindTarget(target)(tvm.IRModule({"main": func}))
    if _shares_reductions(module):
        raise NotCoveredError(
            f"{workload.label}: threads share a reduction, which TVM lowers for OpenCL to a tree with barriers that "
            "only some threads reach, and for CUDA to warp shuffles; run the CUDA source instead"
        )
    pipeline, _, finish_device = tirx.get_default_tir_pipeline(target)
    host, devices = split_host_device_mods(pipeline(module))
    ((device_target, device),) = devices.items()
    source = codegen_build(finish_device()(device), device_target).inspect_source()
    (body,) = (function.body for _, function in host.functions_items())
    return Launches(
        source=str(source),
        parameters={buffer.name: _values(buffer) for buffer in func.params},
        workspaces={node.buffer.name: _values(node.buffer) for node in _found(body, tirx.AllocBuffer)},
        launches=tuple(_launch(call) for call in _found(body, ir.Call) if _name(call) == _LAUNCH),
    )


def _opencl_target(limits: BlockLimits) -> tvm.target.Target:
    """Returns a target with the limits of a GPU."""
    opencl = {
        "kind": "opencl",
        "max_threads_per_block": limits.threads_per_block,
        "max_shared_memory_per_block": limits.shared_bytes_per_block,
        "thread_warp_size": limits.warp_size,
    }
    return tvm.target.Target(opencl, host="llvm")


def _shares_reductions(module: tvm.IRModule) -> bool:
    """Returns whether a scheduled function reduces across threads."""
    for step in (s_tir.transform.CanonicalizeLoop(), s_tir.transform.LowerCrossThreadReduction()):
        module = step(module)
    return any(_name(call) == _CROSS_THREAD for call in _found(module["main"].body, ir.Call))


def _launch(call: Any) -> Launch:
    """Reads one launch: the kernel's name, its buffers, and the extents that the call's attributes name."""
    axes = list(call.attrs.launch_params)
    kernel, *buffers = call.args[: len(call.args) - len(axes)]
    extents = {str(axis): int(extent) for axis, extent in zip(axes, call.args[-len(axes) :], strict=True)}
    launch = Launch(
        str(kernel.value),
        tuple(str(buffer.args[0].name) for buffer in buffers),
        _along(extents, "blockIdx"),
        _along(extents, "threadIdx"),
    )
    if prod(launch.threads) != prod(extents.values()):
        raise TargetError(f"{launch.kernel} is launched with {', '.join(extents)}; allowed: blockIdx and threadIdx")
    return launch


def _along(extents: dict[str, int], index: str) -> Extents:
    return extents.get(f"{index}.x", 1), extents.get(f"{index}.y", 1), extents.get(f"{index}.z", 1)


def _values(buffer: Any) -> int:
    if str(buffer.dtype) != "float32":
        raise TargetError(f"buffer {buffer.name} holds {buffer.dtype}; only float32 is run as OpenCL")
    return prod(int(extent) for extent in buffer.shape)


def _name(call: Any) -> str:
    return str(getattr(call.op, "name", ""))


def _found(body: Any, kind: type) -> Sequence[Any]:
    """Returns all nodes of a kind, in the order in which they run."""
    found: list[Any] = []
    tvm_ffi.structural_walk(body, (kind, found.append))
    return found
