"""A candidate's CUDA source, kernel by kernel, and what its kernels take of a device."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from tvm import tirx

from anole.record import Config
from anole.space import ALGORITHM
from anole.targets.cuda.device.builder import source
from anole.targets.cuda.target import CudaTarget
from anole.targets.shared.kernel import define
from anole.task import Workload

from .workloads import TARGET


def scheduled(workload: Workload, config: Config, target: CudaTarget = TARGET) -> tirx.PrimFunc:
    template = target.template(workload)
    return template.schedule(define(template, workload, config), workload, config)


def source_of(workload: Workload, config: Config, target: CudaTarget = TARGET) -> str:
    """The CUDA C++ of a candidate."""
    return source(scheduled(workload, config, target), target.description)


def kernels_of(text: str) -> list[str]:
    """The definitions of the kernels in a source, in the order in which they are launched."""
    return [kernel for kernel in text.split('extern "C" __global__ ')[1:] if "{" in kernel]


def taken_by(target: CudaTarget, workload: Workload, config: Config) -> dict[str, tuple[int, int]]:
    """What a candidate takes, read from its schedule and source, and the limit, by the words of a rejection."""
    script, kernels = scheduled(workload, config, target).script(), kernels_of(source_of(workload, config, target))
    if config.get(ALGORITHM) != "winograd":
        (kernel,) = kernels
        return taken_by_kernel(target, script, kernel)
    nests = re.split(r'(?=T\.thread_binding\(\d+, thread="blockIdx\.x")', script)[1:]
    data, products, outputs = zip(nests, kernels, strict=True)
    # A transform holds one of its arrays after the other.
    transforms = [taken_by_kernel(target, *each, together=max) for each in (data, outputs)]
    largest = {f"the transforms: {what}": max(each[what] for each in transforms) for what in transforms[0]}
    return taken_by_kernel(target, *products) | largest


def taken_by_kernel(
    target: CudaTarget, nest: str, kernel: str, together: Callable[[Iterable[int]], int] = sum
) -> dict[str, tuple[int, int]]:
    limits, bound = target.limits, re.findall(r'T\.thread_binding\((\d+), thread="([\w.]+)"', nest)
    loops = {axis: int(extent) for extent, axis in bound}
    found = re.search(r"__launch_bounds__\((\d+)\)", kernel)
    threads = int(found[1]) if found else 1
    arrays = re.findall(r"(__shared__ )?alignas\(64\) float (\w+)\[(\d+)\]", kernel)
    shared = [4 * int(size) for place, name, size in arrays if place and not name.startswith("red_")]
    # What threads add up together replaces what each of them held, and is no more than that.
    summed = "dense_local_ptr" if "dense_local_rf_ptr" in kernel else None
    held = together(int(size) for place, name, size in arrays if not place and "_local" in name and name != summed) + 8
    virtual = max((extent for axis, extent in loops.items() if axis.startswith("vthread")), default=1)
    return {
        "a block has too many threads": (threads, limits.threads_per_block),
        "a block has too many threads along z": (loops.get("threadIdx.z", 1), limits.threads_z),
        "too many bytes of shared memory": (
            sum(-(-size // 64) * 64 for size in shared[:-1]) + sum(shared[-1:]),
            limits.shared_bytes_per_block,
        ),
        "too many registers of a thread": (held, limits.registers_per_thread),
        "too many registers of a block": (held * threads, limits.registers_per_block),
        "too many virtual threads along an axis": (virtual, limits.virtual_threads),
        "too many blocks along x": (loops["blockIdx.x"], limits.grid_x),
        "too many blocks along y": (loops.get("blockIdx.y", 1), limits.grid_y),
    }
