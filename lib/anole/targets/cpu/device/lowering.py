"""Lowers kernels for the CPU with TVM's own pipeline, but partitions loops and keeps local buffers on the stack.

TVM's pipeline forgets which loops to partition before it partitions them: where it narrows the variable of a loop to 32
bits, the hint still names the wide one. Without the partition, an incomplete last vector makes all others scalar, too.

TVM puts local buffers on the heap, and others from one KiB on. LLVM then cannot know that nothing else reads the
accumulators of a register tile: they are allocated and cleared in every kernel, and if weights are prefetched, all of
them are stored in every step.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.tirx import compilation_pipeline

PARTITION = "pragma_loop_partition_hint"
"""Annotation of a loop whose iterations that meet a condition everywhere are compiled apart from the others."""

_NAME = "anole.cpu"

_LARGEST_BYTES = 1 << 14
"""Upper bound for a buffer on the stack: a register tile, or a tile's transform. A thread's stack has megabytes."""


@cache
def pipeline() -> str:
    """Returns the pipeline's name for `tvm.compile`."""
    compilation_pipeline.register_tir_pipeline(_NAME, passes)
    return _NAME


def passes() -> tuple[Any, Any, Any]:
    """Returns the passes that lower a module, and those that finish its host and its device functions."""
    lower, finalize_host, finalize_device = s_tir.pipeline.default_s_tir_pipeline()
    partition = tvm.transform.module_pass(_partition, opt_level=0)
    keep_on_stack = tvm.transform.module_pass(_keep_on_stack, opt_level=0)
    return tvm.transform.Sequential([partition, lower, keep_on_stack]), finalize_host, finalize_device


def _partition(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Partitions the loops that ask for it, for which blocks have to be lowered first."""
    asking = {variable: func for variable, func in module.functions_items() if _asks(func)}
    if asking:
        module.update(_PARTITIONED(tvm.IRModule(asking)))
    return module


def _asks(func: tirx.PrimFunc) -> bool:
    loops: list[Any] = []
    tvm_ffi.structural_walk(func.body, (tirx.For, loops.append))
    return any(PARTITION in loop.annotations for loop in loops if loop.annotations)


_PARTITIONED = tvm.transform.Sequential(
    [
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.StmtSimplify(),
        s_tir.transform.LowerOpaqueBlock(),
        s_tir.transform.LoopPartition(),
    ]
)


def _keep_on_stack(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Marks all small local buffers so that TVM does not allocate them on the heap."""
    for variable, func in module.functions_items():
        body = tvm_ffi.structural_map(func.body, (tirx.AllocBuffer, _marked), order="post")
        module.update_func(variable, func.with_body(body))
    return module


def _marked(allocation: tirx.AllocBuffer) -> tirx.AllocBuffer:
    buffer = allocation.buffer
    if buffer.scope() != "local" or buffer.dtype.itemsize * prod(map(int, buffer.shape)) > _LARGEST_BYTES:
        return allocation
    annotations = dict(allocation.annotations or {})
    return tirx.AllocBuffer(buffer, {**annotations, "disable_lower_builtin": tirx.IntImm("bool", 1)})
