"""Splitting of reductions with several results, such as a sum and a sum of squares, into one block for each.

Analysis and schedules support only blocks with a single store. Reading the data twice costs less than scalar code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from tvm import ir, s_tir, tirx

from anole.ir.nodes import blocks_of, collect, nest_around, with_nests, with_values


def separate_results(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return an equivalent function in which independent results are computed by separate blocks."""
    if func.body.block.name_hint != "root":
        return func
    schedule = s_tir.Schedule(func)
    nests: list[tirx.Stmt] = []
    any_separated = False
    for rv in blocks_of(schedule):
        block = schedule.get(rv)
        apart = _separated(block) if len(block.iter_vars) == len(schedule.get_loops(rv)) else []
        any_separated = any_separated or len(apart) > 1
        nests.extend(map(nest_around, apart or [block]))
    return with_nests(func, nests, func.body.block.alloc_buffers) if any_separated else func


def _separated(block: s_tir.SBlock) -> list[s_tir.SBlock]:
    """Return a block for each result of a block; none if it has one result, or its results are interdependent."""
    if not isinstance(block.body, tirx.SeqStmt) or not isinstance(block.init, tirx.SeqStmt):
        return []
    bound: dict[Any, Any] = {}
    stores = []
    for statement in block.body.seq:
        if isinstance(statement, tirx.Bind):
            bound[statement.var] = with_values(statement.value, bound)
        elif isinstance(statement, tirx.BufferStore):
            stores.append(statement)
        else:
            return []
    values = [with_values(store.value, bound) for store in stores]
    initial = {store.buffer: store.value for store in block.init.seq if isinstance(store, tirx.BufferStore)}
    for store, value in zip(stores, values, strict=True):
        read = [load.source for load in collect(value, ir.TensorLoad)]
        others = [other.buffer for other in stores if not other.buffer.same_as(store.buffer)]
        if store.buffer not in initial or any(source.same_as(other) for source in read for other in others):
            return []
    return [_block_of(block, store, value, initial) for store, value in zip(stores, values, strict=True)]


def _block_of(block: s_tir.SBlock, store: Any, value: Any, initial: Mapping[Any, Any]) -> s_tir.SBlock:
    """Return the block of one result, with new iteration variables."""
    made = s_tir.SBlock(
        block.iter_vars,
        block.reads,
        [region for region in block.writes if region.source.same_as(store.buffer)],
        f"{block.name_hint}_{store.buffer.name}",
        tirx.BufferStore(store.buffer, value, store.indices),
        init=tirx.BufferStore(store.buffer, initial[store.buffer], store.indices),
    )
    own = {each.var: tirx.Var(each.var.name, each.dom.extent.ty.dtype) for each in block.iter_vars}
    return cast(s_tir.SBlock, with_values(made, own))
