"""Splitting of reductions with several results, such as a sum and a sum of squares, into one block per result.

Schedules vectorize only single-store blocks; other blocks stay scalar, which costs more than reading the data twice.
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
        blocks = _blocks_per_result(block) if len(block.iter_vars) == len(schedule.get_loops(rv)) else []
        any_separated = any_separated or len(blocks) > 1
        nests.extend(map(nest_around, blocks or [block]))
    return with_nests(func, nests, func.body.block.alloc_buffers) if any_separated else func


def _blocks_per_result(block: s_tir.SBlock) -> list[s_tir.SBlock]:
    """Return one block per result; an empty list if there is a single result, or results depend on each other."""
    if not isinstance(block.body, tirx.SeqStmt) or not isinstance(block.init, tirx.SeqStmt):
        return []
    bindings: dict[Any, Any] = {}
    stores = []
    for statement in block.body.seq:
        if isinstance(statement, tirx.Bind):
            bindings[statement.var] = with_values(statement.value, bindings)
        elif isinstance(statement, tirx.BufferStore):
            stores.append(statement)
        else:
            return []
    values = [with_values(store.value, bindings) for store in stores]
    initial_values = {store.buffer: store.value for store in block.init.seq if isinstance(store, tirx.BufferStore)}
    for store, value in zip(stores, values, strict=True):
        sources = [load.source for load in collect(value, ir.TensorLoad)]
        buffers = [other.buffer for other in stores if not other.buffer.same_as(store.buffer)]
        if store.buffer not in initial_values or any(source.same_as(other) for source in sources for other in buffers):
            return []
    return [_block_for_result(block, store, value, initial_values) for store, value in zip(stores, values, strict=True)]


def _block_for_result(block: s_tir.SBlock, store: Any, value: Any, initial_values: Mapping[Any, Any]) -> s_tir.SBlock:
    """Return a block that computes one result, with new iteration variables."""
    separate = s_tir.SBlock(
        block.iter_vars,
        block.reads,
        [region for region in block.writes if region.source.same_as(store.buffer)],
        f"{block.name_hint}_{store.buffer.name}",
        tirx.BufferStore(store.buffer, value, store.indices),
        init=tirx.BufferStore(store.buffer, initial_values[store.buffer], store.indices),
    )
    variables = {axis.var: tirx.Var(axis.var.name, axis.dom.extent.ty.dtype) for axis in block.iter_vars}
    return cast(s_tir.SBlock, with_values(separate, variables))
