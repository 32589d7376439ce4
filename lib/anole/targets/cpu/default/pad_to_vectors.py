"""Padding of a function's intermediate rows to a multiple of the vector length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import ir, s_tir, tirx

from anole.ir.nodes import blocks_of, collect, nest_around, with_nests, with_values
from anole.ir.symbols import simplify, typical_shape
from anole.targets.shared.anchor import is_same_extent

_ROW = "local"
"""Storage of a padded row, which one thread writes and reads."""

_REDUCTION_OPERATIONS = (tirx.Add, tirx.Max, tirx.Min)


def pad_rows(func: tirx.PrimFunc, lanes: int, sizes: Mapping[str, int]) -> tirx.PrimFunc:
    """Return an equivalent function whose intermediate and reduced rows are padded to full vectors.

    Rows are first copied to a padded intermediate buffer. Padding is computed like other elements but never affects
    the result: reductions replace it by their initial value, and the last block does not read it. The function must
    consist of single-store blocks, each in a separate loop nest; the last one writes the result.

    Raises:
        ValueError: no rows are reduced, or rows differ in length or are not accessed element by element.
    """
    schedule = s_tir.Schedule(func)
    *earlier, _ = blocks_of(schedule)
    rows = _Rows.of([schedule.get(rv) for rv in earlier], lanes, sizes)
    readers: dict[Any, list[Any]] = {}
    for rv in earlier:
        block = schedule.get(rv)
        for buffer in rows.buffers_read(block, func.params) if rows.covers(block) else ():
            readers.setdefault(buffer, []).append(rv)
    copies = {
        str(schedule.get(schedule.cache_read(rvs[0], buffer, _ROW, rvs)).name_hint) for buffer, rvs in readers.items()
    }
    return _pad(schedule.mod["main"], rows, copies)


@dataclass(frozen=True)
class _Rows:
    """A function's rows: their count at the given sizes of its symbols, their length, and their padded length."""

    count: int
    extent: Any
    padded: Any
    sizes: Mapping[str, int]

    @classmethod
    def of(cls, blocks: Sequence[s_tir.SBlock], lanes: int, sizes: Mapping[str, int]) -> _Rows:
        """Return the rows that all reductions among the blocks share."""
        reductions = [block for block in blocks if block.init is not None]
        shapes = [_extents(block, sizes) for block in reductions]
        if len({(prod(shape[:-1]), shape[-1]) for shape in shapes}) != 1:
            raise ValueError("the reductions have no rows, or different rows")
        extent = reductions[0].iter_vars[-1].dom.extent
        return cls(prod(shapes[0][:-1]), extent, simplify((extent + (lanes - 1)) // lanes * lanes), sizes)

    def covers(self, block: s_tir.SBlock) -> bool:
        """Whether a block, other than a copy, visits every element of every row."""
        *outer, _ = _extents(block, self.sizes)
        return is_same_extent(block.iter_vars[-1].dom.extent, self.extent) and prod(outer) == self.count

    def buffers_read(self, block: s_tir.SBlock, buffers: Sequence[Any]) -> list[Any]:
        """Return the given buffers whose rows a block reads."""
        column = block.iter_vars[-1].var
        row_buffers: list[Any] = []
        for load in collect(block.body.value, ir.TensorLoad):
            indices = [index for index in load.indices if any(var.same_as(column) for var in collect(index, ir.Var))]
            if not indices:
                continue
            if (
                len(indices) > 1
                or not load.indices[-1].same_as(column)
                or not is_same_extent(load.source.ty.shape[-1], self.extent)
            ):
                raise ValueError("rows are not read element by element")
            if any(load.source.same_as(b) for b in buffers) and not any(load.source.same_as(b) for b in row_buffers):
                row_buffers.append(load.source)
        return row_buffers


def _pad(func: tirx.PrimFunc, rows: _Rows, copies: set[str]) -> tirx.PrimFunc:
    """Pad the results of copies and of all blocks that visit entire rows, except the last block."""
    schedule = s_tir.Schedule(func)
    *earlier, last = [schedule.get(rv) for rv in blocks_of(schedule)]
    padded_buffers: dict[Any, Any] = {}
    for block in earlier:
        if block.init is None and (block.name_hint in copies or rows.covers(block)):
            padded_buffers[block.body.buffer] = _padded_buffer(block.body.buffer, rows.padded)
    nests = [
        *(_nest(block, padded_buffers, rows, is_copy=block.name_hint in copies) for block in earlier),
        _nest(last, padded_buffers, None, is_copy=False),
    ]
    return with_nests(func, nests, [padded_buffers.get(buffer, buffer) for buffer in func.body.block.alloc_buffers])


def _nest(block: s_tir.SBlock, padded_buffers: Mapping[Any, Any], rows: _Rows | None, is_copy: bool) -> tirx.Stmt:
    """Return a block's loop nest on the padded buffers; if rows are given, the nest also visits their padding."""
    visits_padding = rows is not None and (is_copy or rows.covers(block))
    block = with_values(block, padded_buffers)
    iter_vars, store = list(block.iter_vars), block.body
    value = store.value
    if rows is not None and visits_padding:
        *outer, column = iter_vars
        iter_vars = [*outer, tirx.IterVar(ir.Range(column.dom.min, rows.padded), column.var, column.iter_type)]
        inside = column.var < rows.extent
        if is_copy:
            value = tirx.if_then_else(inside, value, tirx.const(0, value.ty.dtype))
        elif block.init is not None:
            value = _without_padding(value, inside, block.init.value)
    body = tirx.BufferStore(store.buffer, value, store.indices)
    return nest_around(s_tir.SBlock(iter_vars, block.reads, block.writes, block.name_hint, body, init=block.init))


def _without_padding(value: Any, inside: Any, initial: Any) -> Any:
    """Return a reduction step that replaces padding by the initial value."""
    if not isinstance(value, _REDUCTION_OPERATIONS):
        raise ValueError(f"{type(value).__name__} is not an operation of a reduction over padded rows")
    return type(value)(value.a, tirx.Select(inside, value.b, initial))


def _padded_buffer(buffer: Any, extent: Any) -> Any:
    *outer, _ = buffer.ty.shape
    return tirx.decl_buffer([*outer, extent], buffer.ty.dtype, buffer.name, scope=_ROW)


def _extents(block: s_tir.SBlock, sizes: Mapping[str, int]) -> list[int]:
    """Return the extents of a block at the given sizes of its symbols."""
    extents = typical_shape((iter_var.dom.extent for iter_var in block.iter_vars), sizes)
    if extents is None:
        raise ValueError("the extent of a loop is unknown")
    return list(extents)
