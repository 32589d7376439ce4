"""TVM's lowering pipeline, changed to keep vectors vectorized, local buffers on the stack, and chunks even.

Three properties of TVM's pipeline turn vectors into scalars. It simplifies the indices of each axis before it flattens
them, so a vector that crosses the end of a row no longer looks contiguous. It narrows loop variables to 32 bits before
it partitions loops, whose hints then refer to the 64-bit variables; so an incomplete last vector makes all others
scalar. And it does not know that CPUs have vector instructions that round to integers.

TVM allocates local buffers, and all others of 1 KiB or more, on the heap. LLVM then cannot prove that
nothing else reads the accumulators of a register tile: they are allocated and cleared in every kernel, and if weights
are prefetched, they are all stored in every step.

TVM splits a parallel loop into chunks of the same length, rounded up. For 28 rows in eight chunks, seven chunks have
four rows and one is empty, so one of two threads computes 16 rows and the other 12.
"""

from __future__ import annotations

from functools import cache, partial
from math import prod
from typing import Any

import tvm
from tvm import ir, s_tir, tirx
from tvm.tirx import compilation_pipeline

from anole.ir.nodes import collect, map_nodes, with_values
from anole.ir.symbols import all_static, name_opaque_extents
from anole.targets.cpu.device.bfloat16 import lower_roundings, name_roundings
from anole.targets.cpu.device.dot_products import has_packed_words, load_packed_words, lower_dots
from anole.targets.cpu.device.not_a_number import keep_nan
from anole.targets.cpu.device.rounding import simplify_rounding

PARTITION = "pragma_loop_partition_hint"
"""Annotation of a loop over vectors: iterations that meet all conditions are compiled separately."""

CHUNKS_PER_THREAD = 4
"""Chunks of a parallel loop per thread; the runtime's default is the same."""

_PIPELINE_NAME = "anole.cpu"

_HIDDEN = "anole.hidden"

ir.register_op_attr("tirx.nearbyint", "TVectorizable", True)
tvm.ir._ffi_api.RegisterOp(_HIDDEN, "A variable in a condition at which loops are not partitioned.")
ir.register_op_attr(_HIDDEN, "TCallEffectKind", 0)

_MAX_STACK_BYTES = 1 << 14
"""Maximum size of a buffer on the stack: a register tile, or a tile's transform. A thread's stack has megabytes."""


@cache
def pipeline() -> str:
    """Return the pipeline's name for `tvm.compile`."""
    compilation_pipeline.register_tir_pipeline(_PIPELINE_NAME, passes)
    return _PIPELINE_NAME


def passes() -> tuple[Any, Any, Any]:
    """Return the lowering passes, and the passes that finalize the host and the device functions."""
    lower, finalize_host, finalize_device = s_tir.pipeline.default_s_tir_pipeline()
    flattening = [
        tvm.transform.module_pass(change, opt_level=0) for change in (_partition_vector_loops, _load_packed_words)
    ]
    first = [tirx.transform.prim_func_pass(change, opt_level=0) for change in (_use_opaque_extents, name_roundings)]
    rewrites = (_keep_on_stack, _share_evenly, simplify_rounding, keep_nan, lower_dots, lower_roundings)
    last = [tirx.transform.prim_func_pass(change, opt_level=0) for change in rewrites]
    return tvm.transform.Sequential([*first, *flattening, lower, *last]), finalize_host, finalize_device


def _use_opaque_extents(func: tirx.PrimFunc, *_: Any) -> tirx.PrimFunc:
    return name_opaque_extents(func)


def _partition_vector_loops(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Flatten and partition the functions with the annotation, which requires lowering their blocks first."""
    annotated = {
        variable: func
        for variable, func in module.functions_items()
        if any(PARTITION in (loop.annotations or {}) for loop in collect(func.body, tirx.For))
    }
    if annotated:
        for variable, func in _FLATTEN_AND_PARTITION(tvm.IRModule(annotated)).functions_items():
            if not _depends_on_loops(func):
                module.update_func(variable, func)
    return module


def _load_packed_words(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Flatten the functions that read packed words, and replace the words by int32 loads."""
    for variable, func in module.functions_items():
        if has_packed_words(func):
            (flat,) = (function for _, function in _FLATTEN(tvm.IRModule({variable: func})).functions_items())
            module.update_func(variable, load_packed_words(flat))
    return module


def _depends_on_loops(func: tirx.PrimFunc) -> bool:
    """Whether a loop's extent depends on a loop variable, a bug of TVM's partitioning if there is a remainder."""
    loops = collect(func.body, tirx.For)
    variables = [variable for loop in loops for variable in collect(loop.extent, tirx.Var)]
    return any(variable.same_as(loop.loop_var) for variable in variables for loop in loops)


def _hide_conditions(func: tirx.PrimFunc, *_: Any) -> tirx.PrimFunc:
    """Hide variables of conditions whose bound is not constant, where TVM would partition without clamping the bound.

    The rows of a triangle would overwrite the rows before them, and small sizes of a range would exceed the buffer.
    """
    hinted_vars = [hint.node for hint in collect(func.body, tirx.AttrStmt) if hint.attr_key == PARTITION]
    lane_vars = [loop.loop_var for loop in collect(func.body, tirx.For) if loop.kind == tirx.ForKind.VECTORIZED]

    def hide(condition: tirx.Expr) -> tirx.Expr:
        variables = [var for var in collect(condition, tirx.Var) if isinstance(var.ty, ir.PrimType)]
        if all(any(variable.same_as(var) for var in (*hinted_vars, *lane_vars)) for variable in variables):
            return condition
        calls = {var: ir.Call(ir.Op.get(_HIDDEN), [var], ret_ty=var.ty) for var in variables}
        return with_values(condition, calls)

    def select(node: tirx.Select) -> tirx.Select:
        return tirx.Select(hide(node.condition), node.true_value, node.false_value)

    def call(node: ir.Call) -> ir.Call:
        if getattr(node.op, "name", None) != "prim.if_then_else":
            return node
        return ir.Call(node.op, [hide(node.args[0]), *node.args[1:]], ret_ty=node.ty)

    return map_nodes(map_nodes(func, tirx.Select, select), ir.Call, call)


def _reveal_conditions(func: tirx.PrimFunc, *_: Any) -> tirx.PrimFunc:
    return map_nodes(func, ir.Call, lambda call: call.args[0] if call.op.same_as(ir.Op.get(_HIDDEN)) else call)


def _apply_remainders_first(func: tirx.PrimFunc, *_: Any) -> tirx.PrimFunc:
    """Turn remainders of quotients, which TVM would misread when it flattens again, into quotients of remainders.

    It would replace ``(i + 3) // 2 % 4`` by ``(i + 2) // 2`` if i is below 4.
    """
    return map_nodes(func, tirx.FloorMod, _quotient_of_remainder)


def _quotient_of_remainder(remainder: tirx.FloorMod) -> tirx.Expr:
    terms = [remainder.a]
    while additions := [term for term in terms if isinstance(term, tirx.Add)]:
        terms = [term for term in terms if term is not additions[0]] + [additions[0].a, additions[0].b]
    quotients = [term for term in terms if isinstance(term, tirx.FloorDiv) and isinstance(term.b, tirx.IntImm)]
    if len(quotients) != 1:
        return remainder
    (quotient,), rest = quotients, [term for term in terms if term is not quotients[0]]
    dividend = sum((term * quotient.b for term in rest), quotient.a)
    return tirx.floordiv(tirx.floormod(dividend, quotient.b * remainder.b), quotient.b)


_FLATTEN = tvm.transform.Sequential(
    [
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
        tirx.transform.prim_func_pass(_apply_remainders_first, opt_level=0),
    ]
)
_FLATTEN_AND_PARTITION = tvm.transform.Sequential(
    [
        _FLATTEN,
        tirx.transform.prim_func_pass(_hide_conditions, opt_level=0),
        s_tir.transform.LoopPartition(),
        tirx.transform.prim_func_pass(_reveal_conditions, opt_level=0),
    ]
)


def _keep_on_stack(func: tirx.PrimFunc, *_: Any) -> tirx.PrimFunc:
    """Mark all small local buffers to keep TVM from allocating them on the heap."""
    return map_nodes(func, tirx.AllocBuffer, _mark_for_stack)


def _mark_for_stack(allocation: tirx.AllocBuffer) -> tirx.AllocBuffer:
    buffer = allocation.buffer
    is_known = all_static(buffer.shape)
    if buffer.scope() != "local" or not is_known:
        return allocation
    if buffer.dtype.itemsize * prod(map(int, buffer.shape)) > _MAX_STACK_BYTES:
        return allocation
    annotations = dict(allocation.annotations or {})
    return tirx.AllocBuffer(buffer, {**annotations, "disable_lower_builtin": tirx.IntImm("bool", 1)})


def _share_evenly(func: tirx.PrimFunc, *_: Any) -> tirx.PrimFunc:
    """Split parallel loops into as many chunks as threads claim, with lengths that differ by at most one."""
    target = func.attrs.get("target") if func.attrs else None
    threads = int(target.attrs.get("num-cores", 0)) if target is not None else 0
    return map_nodes(func, tirx.For, partial(_split_evenly, chunks=threads * CHUNKS_PER_THREAD)) if threads else func


def _split_evenly(loop: tirx.For, chunks: int) -> tirx.For:
    extent = loop.extent
    if loop.kind != tirx.ForKind.PARALLEL or not isinstance(extent, tirx.IntImm) or int(extent) <= chunks:
        return loop
    if int(extent) % chunks == 0:
        return loop
    chunk = tirx.Var("chunk", loop.loop_var.ty.dtype)
    begin, end = (at * int(extent) // chunks for at in (chunk, chunk + 1))
    inner = tirx.For(loop.loop_var, loop.min + begin, end - begin, tirx.ForKind.SERIAL, loop.body)
    return tirx.For(chunk, 0, chunks, tirx.ForKind.PARALLEL, inner, annotations=loop.annotations)
