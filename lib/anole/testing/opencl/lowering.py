"""Lowers a scheduled CUDA function for OpenCL, and reads its launches from CUDA's host part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.tirx.build import codegen_build, split_host_device_mods

from anole.errors import TargetError
from anole.record import Config
from anole.targets.base import Template
from anole.targets.cuda.device.architecture import BlockLimits
from anole.targets.cuda.device.builder import cuda_target
from anole.targets.shared.kernel import define
from anole.task import Workload
from anole.testing.opencl.launches import Extents, Launch, Launches

_LAUNCH = "tirx.call_ffi_kernel"
_SYNCHRONISE = "tirx.tvm_storage_sync"


class NotCoveredError(TargetError):
    """TVM lowers a function to other steps for OpenCL than for CUDA, so that running it would show nothing."""


def lower(template: Template, workload: Workload, config: Config, description: Mapping[str, Any]) -> Launches:
    """Returns a candidate's kernels in OpenCL C.

    They are generated from the very functions that CUDA's are generated from, after all of TVM's passes: where TVM
    places barriers, guards and vectors is the same, and only the last step, which writes them as text, is another. The
    launches are those of CUDA's host part.

    Args:
        template: the workload's template.
        workload: the candidate's workload.
        config: the candidate's config.
        description: the description of the CUDA target.

    Raises:
        NotCoveredError: the functions are not the same, as where threads share a reduction.
    """
    func = template.schedule(define(template, workload, config), workload, config)
    target = _opencl_target(BlockLimits.from_json(description["limits"]))
    _, device = _split(func, target)
    host, on_cuda = _split(func, cuda_target(description))
    if not _is_same(device, on_cuda) or _synchronises_warps(device):
        raise NotCoveredError(
            f"{workload.label}: TVM makes other steps of this for OpenCL than for CUDA, as where threads share a "
            "reduction by warp shuffles; execute the CUDA source instead"
        )
    (body,) = (function.body for _, function in host.functions_items())
    return Launches(
        source=str(codegen_build(device, target).inspect_source()),
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


def _split(func: tirx.PrimFunc, target: tvm.target.Target) -> tuple[tvm.IRModule, tvm.IRModule]:
    """Returns the host and the device part of a scheduled function, lowered up to the generation of code."""
    pipeline, _, finish = tirx.get_default_tir_pipeline(target)
    module = tirx.transform.BindTarget(target)(tvm.IRModule({"main": func}))
    host, devices = split_host_device_mods(pipeline(module))
    (device,) = devices.values()
    return host, finish()(device)


def _is_same(one: tvm.IRModule, other: tvm.IRModule) -> bool:
    """Returns whether two device parts are the same, except for their target."""
    plain = [
        {variable.name_hint: func.without_attr("target") for variable, func in module.functions_items()}
        for module in (one, other)
    ]
    return plain[0].keys() == plain[1].keys() and all(
        tvm_ffi.structural_equal(plain[0][name], plain[1][name]) for name in plain[0]
    )


def _synchronises_warps(device: tvm.IRModule) -> bool:
    """Returns whether lanes of a warp wait for each other: OpenCL C gets a barrier there, and CUDA C++ nothing."""
    calls = (call for _, func in device.functions_items() for call in _found(func.body, ir.Call))
    return any(_name(call) == _SYNCHRONISE and str(call.args[0].value) == "warp" for call in calls)


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
