"""Lowers kernels for the CPU with TVM's own pipeline, but keeps vectors whole and local buffers on the stack.

Three habits of TVM's pipeline make vectors scalar. It simplifies the indices of each axis before it joins them, so
that a vector that passes the end of a row no longer looks contiguous. It narrows the variables of loops to 32 bits
before it partitions the loops, whose hints then name the wide variables; so an incomplete last vector spoils all
others. And it does not know that processors round whole vectors to whole numbers.

TVM puts local buffers on the heap, and others from one KiB on. LLVM then cannot know that nothing else reads the
accumulators of a register tile: they are allocated and cleared in every kernel, and if weights are prefetched, all of
them are stored in every step.

TVM cuts a parallel loop into chunks that are all as long as the first. Of 28 rows in eight chunks, seven have four
rows and one has none, so that one of two threads computes 16 rows and the other 12.
"""

from __future__ import annotations

from functools import cache, partial
from math import prod
from typing import Any

import tvm
from tvm import ir, s_tir, tirx
from tvm.tirx import compilation_pipeline

from anole.ir.nodes import collect, with_each
from anole.ir.symbols import all_static, with_opaque_extents_named
from anole.targets.cpu.device.bfloat16 import lower_roundings, name_roundings
from anole.targets.cpu.device.dot_products import has_words, lower_dots, read_words
from anole.targets.cpu.device.not_a_number import keep_nan
from anole.targets.cpu.device.rounding import simplify_rounding

PARTITION = "pragma_loop_partition_hint"
"""Annotation of a loop over vectors: those that meet all conditions are compiled apart from the others."""

CHUNKS_OF_THREAD = 4
"""Chunks of a parallel loop for each thread, as many as the runtime makes where a kernel leaves it to it."""

_NAME = "anole.cpu"

ir.register_op_attr("tirx.nearbyint", "TVectorizable", True)

_LARGEST_BYTES = 1 << 14
"""Upper bound for a buffer on the stack: a register tile, or a tile's transform. A thread's stack has megabytes."""


@cache
def pipeline() -> str:
    """Return the pipeline's name for `tvm.compile`."""
    compilation_pipeline.register_tir_pipeline(_NAME, passes)
    return _NAME


def passes() -> tuple[Any, Any, Any]:
    """Return the passes that lower a module, and those that finish its host and its device functions."""
    lower, finalize_host, finalize_device = s_tir.pipeline.default_s_tir_pipeline()
    before = [tvm.transform.module_pass(change, opt_level=0) for change in (_keep_vectors_whole, _read_words)]
    first = [tirx.transform.prim_func_pass(change, opt_level=0) for change in (_take_plain_extents, name_roundings)]
    changes = (_keep_on_stack, _share_evenly, simplify_rounding, keep_nan, lower_dots, lower_roundings)
    after = [tirx.transform.prim_func_pass(change, opt_level=0) for change in changes]
    return tvm.transform.Sequential([*first, *before, lower, *after]), finalize_host, finalize_device


def _take_plain_extents(func: tirx.PrimFunc, *_: Any) -> tirx.PrimFunc:
    return with_opaque_extents_named(func)


def _keep_vectors_whole(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Flatten and partitions the functions that ask for it, for which blocks have to be lowered first."""
    asking = {
        variable: func
        for variable, func in module.functions_items()
        if any(PARTITION in (loop.annotations or {}) for loop in collect(func.body, tirx.For))
    }
    if asking:
        for variable, func in _FLAT_AND_PARTITIONED(tvm.IRModule(asking)).functions_items():
            if not _runs_around_itself(func):
                module.update_func(variable, func)
    return module


def _read_words(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Flatten the functions that read words of narrow numbers, and reads these where they lie."""
    for variable, func in module.functions_items():
        if has_words(func):
            (flat,) = (each for _, each in _FLAT(tvm.IRModule({variable: func})).functions_items())
            module.update_func(variable, read_words(flat))
    return module


def _runs_around_itself(func: tirx.PrimFunc) -> bool:
    """Whether a loop's extent depends on its own variable, which is how TVM partitions at a remainder."""
    return any(
        variable.same_as(loop.loop_var)
        for loop in collect(func.body, tirx.For)
        for variable in collect(loop.extent, tirx.Var)
    )


def _take_remainders_first(func: tirx.PrimFunc, *_: Any) -> tirx.PrimFunc:
    """Turn remainders of quotients into quotients of remainders, for TVM flattens once more and then reads them wrong.

    It takes ``(i + 3) // 2 % 4`` for ``(i + 2) // 2`` where i is below 4.
    """
    return with_each(func, tirx.FloorMod, _quotient_of_remainder)


def _quotient_of_remainder(remainder: tirx.FloorMod) -> tirx.Expr:
    terms = [remainder.a]
    while sums := [term for term in terms if isinstance(term, tirx.Add)]:
        terms = [term for term in terms if term is not sums[0]] + [sums[0].a, sums[0].b]
    quotients = [term for term in terms if isinstance(term, tirx.FloorDiv) and isinstance(term.b, tirx.IntImm)]
    if len(quotients) != 1:
        return remainder
    (quotient,), rest = quotients, [term for term in terms if term is not quotients[0]]
    whole = sum((term * quotient.b for term in rest), quotient.a)
    return tirx.floordiv(tirx.floormod(whole, quotient.b * remainder.b), quotient.b)


_FLAT = tvm.transform.Sequential(
    [
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
        tirx.transform.prim_func_pass(_take_remainders_first, opt_level=0),
    ]
)
_FLAT_AND_PARTITIONED = tvm.transform.Sequential([_FLAT, s_tir.transform.LoopPartition()])


def _keep_on_stack(func: tirx.PrimFunc, *_: Any) -> tirx.PrimFunc:
    """Mark all small local buffers so that TVM does not allocate them on the heap."""
    return with_each(func, tirx.AllocBuffer, _marked)


def _marked(allocation: tirx.AllocBuffer) -> tirx.AllocBuffer:
    buffer = allocation.buffer
    is_known = all_static(buffer.shape)
    if buffer.scope() != "local" or not is_known:
        return allocation
    if buffer.dtype.itemsize * prod(map(int, buffer.shape)) > _LARGEST_BYTES:
        return allocation
    annotations = dict(allocation.annotations or {})
    return tirx.AllocBuffer(buffer, {**annotations, "disable_lower_builtin": tirx.IntImm("bool", 1)})


def _share_evenly(func: tirx.PrimFunc, *_: Any) -> tirx.PrimFunc:
    """Cut parallel loops into as many chunks as the threads claim, whose lengths differ by one at most."""
    target = func.attrs.get("target") if func.attrs else None
    threads = int(target.attrs.get("num-cores", 0)) if target is not None else 0
    return with_each(func, tirx.For, partial(_cut, chunks=threads * CHUNKS_OF_THREAD)) if threads else func


def _cut(loop: tirx.For, chunks: int) -> tirx.For:
    extent = loop.extent
    if loop.kind != tirx.ForKind.PARALLEL or not isinstance(extent, tirx.IntImm) or int(extent) <= chunks:
        return loop
    if int(extent) % chunks == 0:
        return loop
    chunk = tirx.Var("chunk", loop.loop_var.ty.dtype)
    begin, end = (at * int(extent) // chunks for at in (chunk, chunk + 1))
    inner = tirx.For(loop.loop_var, loop.min + begin, end - begin, tirx.ForKind.SERIAL, loop.body)
    return tirx.For(chunk, 0, chunks, tirx.ForKind.PARALLEL, inner, annotations=loop.annotations)
