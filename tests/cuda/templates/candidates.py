"""Helpers of the CUDA tests: a target, workloads for every template, candidates' source and its resource usage."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from hypothesis import strategies as st
from tvm import tirx

from anole.record import Config
from anole.space import ALGORITHM
from anole.targets.shared.kernel import define
from anole.task import BatchMatmul, Conv2d, Dense, Workload
from anole_cuda.device.builder import source
from anole_cuda.settings import describe_cuda
from anole_cuda.target import CudaTarget
from anole_cuda.templates.winograd_space import winograd_space

TARGET = CudaTarget(describe_cuda("sm_90"))
LIMITS = TARGET.limits


@st.composite
def convolutions(draw: st.DrawFn) -> Conv2d:
    """Return a convolution with any size, stride, padding and dilation, maybe grouped or depthwise."""
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    dilation = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    padding = draw(st.tuples(*[st.integers(0, 2)] * 4))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    kind = draw(st.sampled_from(["plain", "plain", "grouped", "depthwise"]))
    groups = {"plain": 1, "grouped": draw(st.integers(2, 3)), "depthwise": draw(st.integers(2, 24))}[kind]
    return Conv2d(
        batch=draw(st.integers(1, 2)),
        height=max(reach[0] - padding[0] - padding[2], draw(st.integers(1, 13))),
        width=max(reach[1] - padding[1] - padding[3], draw(st.integers(1, 13))),
        in_channels=groups if kind == "depthwise" else groups * draw(st.integers(1, 12)),
        out_channels=groups if kind == "depthwise" else groups * draw(st.integers(1, 24)),
        kernel=kernel,
        strides=draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        padding=padding,
        dilation=dilation,
        groups=groups,
    )


dense_layers = st.builds(Dense, st.integers(1, 50), st.integers(1, 48), st.integers(1, 72))
"""Dense layers with few and with many rows."""

products = st.builds(
    BatchMatmul, st.integers(1, 3), st.integers(1, 40), st.integers(1, 32), st.integers(1, 48), st.booleans()
)

workloads = convolutions() | dense_layers | products

ONE_OF_EACH = {
    "conv2d": Conv2d(1, 14, 14, 32, 64, (3, 3), padding=(1, 1, 1, 1)),
    "grouped": Conv2d(1, 14, 14, 32, 64, (3, 3), padding=(1, 1, 1, 1), groups=4),
    "depthwise": Conv2d(1, 14, 14, 32, 32, (3, 3), padding=(1, 1, 1, 1), groups=32),
    "gemm": Dense(64, 48, 40),
    "gemv": Dense(1, 128, 40),
    "batch_matmul": BatchMatmul(3, 32, 16, 40),
    "transposed": BatchMatmul(3, 32, 16, 40, transpose_right=True),
}
"""A workload of every template."""

WINOGRAD = ONE_OF_EACH["conv2d"]
"""A workload that the Winograd template supports, too."""


def by_winograd(workload: Conv2d, **changes: object) -> Config:
    """Return the fastest Winograd config by the model, with changes."""
    return {ALGORITHM: "winograd", **winograd_space(LIMITS, TARGET.gpu, workload).best_sampled, **changes}


def default_of(kind: str) -> tuple[Workload, Config]:
    """Return a workload and its default config, by the name of a kind; ``winograd 4`` has tiles of size 4."""
    if kind in ONE_OF_EACH:
        return ONE_OF_EACH[kind], TARGET.default_config(ONE_OF_EACH[kind])
    return WINOGRAD, by_winograd(WINOGRAD, tile_size=int(kind[-1]))


KINDS = (*ONE_OF_EACH, "winograd 2", "winograd 4")

winograd_convolutions = st.builds(
    Conv2d,
    batch=st.integers(1, 2),
    height=st.integers(4, 13),
    width=st.integers(4, 13),
    in_channels=st.integers(1, 14),
    out_channels=st.integers(2, 24),
    kernel=st.just((3, 3)),
    padding=st.tuples(*[st.integers(0, 2)] * 4),
)
"""Convolutions with odd and even sizes, prime channels, and different paddings on each side."""


def schedule(workload: Workload, config: Config, target: CudaTarget = TARGET) -> tirx.PrimFunc:
    template = target.template(workload)
    return template.schedule(define(template, workload, config), workload, config)


def source_of(workload: Workload, config: Config, target: CudaTarget = TARGET) -> str:
    """Return the CUDA C++ source of a candidate."""
    return source(schedule(workload, config, target), target.description)


def kernels_of(text: str) -> list[str]:
    """Return the kernels' definitions in a source, in launch order."""
    return [kernel for kernel in text.split('extern "C" __global__ ')[1:] if "{" in kernel]


def resource_usage(target: CudaTarget, workload: Workload, config: Config) -> dict[str, tuple[int, int]]:
    """Return a candidate's resource usage, from its schedule and source, and the limits, by rejection reason."""
    script, kernels = schedule(workload, config, target).script(), kernels_of(source_of(workload, config, target))
    if config.get(ALGORITHM) != "winograd":
        (kernel,) = kernels
        return kernel_usage(target, script, kernel)
    nests = re.split(r'(?=T\.thread_binding\(\d+, thread="blockIdx\.x")', script)[1:]
    data, products, outputs = zip(nests, kernels, strict=True)
    # A transform's arrays are in registers one after the other.
    transforms = [kernel_usage(target, *each, together=max) for each in (data, outputs)]
    largest = {f"the transforms: {reason}": max(each[reason] for each in transforms) for reason in transforms[0]}
    return kernel_usage(target, *products) | largest


def kernel_usage(
    target: CudaTarget, nest: str, kernel: str, together: Callable[[Iterable[int]], int] = sum
) -> dict[str, tuple[int, int]]:
    limits, bound = target.limits, re.findall(r'T\.thread_binding\((\d+), thread="([\w.]+)"', nest)
    loops = {axis: int(extent) for extent, axis in bound}
    found = re.search(r"__launch_bounds__\((\d+)\)", kernel)
    threads = int(found[1]) if found else 1
    arrays = re.findall(r"(__shared__ )?alignas\(64\) float (\w+)\[(\d+)\]", kernel)
    shared = [4 * int(size) for is_shared, name, size in arrays if is_shared and not name.startswith("red_")]
    # Sums across threads replace the threads' partial sums, and are no larger.
    summed = "dense_local_ptr" if "dense_local_rf_ptr" in kernel else None
    held = (
        together(int(size) for is_shared, name, size in arrays if not is_shared and "_local" in name and name != summed)
        + 8
    )
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
