"""Scheduling steps shared by the CPU templates: the tiled loop nest with its copy and epilogue, and prefetching."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx

from anole.ir.nodes import collect, make_prefetch, map_nodes, with_loop, with_nests, with_new_definition, with_values
from anole.ir.symbols import simplify
from anole.targets.base import ANCHOR
from anole.targets.cpu.device.vector_unit import FLOAT_BYTES
from anole.targets.cpu.templates.register_tiles import CACHE_LINE_BYTES
from anole.targets.shared.anchor import find_block, scheduled

LoopRV = Any
SBlockRV = Any


@dataclass(frozen=True)
class TiledNest:
    """The loops of an anchor, split by a config, and the steps that arrange them.

    Attributes:
        chunks: the parallel loops.
        tiles: the loops over tiles inside a chunk.
        reduction: the loops of the reduction, outermost first, and maybe some loops of the register tile.
        registers: the loops of the register tile, outermost first.
        vector: the loop over lanes.
        steps: number of vector operations of the register tile.
    """

    sch: s_tir.Schedule
    block: SBlockRV
    epilogue: SBlockRV
    chunks: Sequence[LoopRV]
    tiles: Sequence[LoopRV]
    reduction: Sequence[LoopRV]
    registers: Sequence[LoopRV]
    vector: LoopRV
    steps: int

    def arrange(self, copy: str, place: str, copy_lanes: int, lanes: int, unrolled: bool = True) -> None:
        """Order and annotate the loops, and place the copy and the epilogue.

        The block `copy`, such as padding, copies an operand of the anchor: inlined (``inline``), inside the parallel
        loop (``parallel``) or the outermost tile loop (``tile``), or before everything (``root``). It uses vectors of
        about `copy_lanes`; with 0, they are left to LLVM. The epilogue uses vectors of at most `lanes`, unrolled over a
        register tile unless the tile is larger than the registers.
        """
        sch = self.sch
        sch.reorder(*self.chunks, *self.tiles, *self.reduction, *self.registers, self.vector)
        # Fuse the chunks first: afterwards, the copy is between the chunks and the tiles.
        parallel = sch.fuse(*self.chunks)
        sch.reverse_compute_at(self.epilogue, self.tiles[-1], preserve_unit_loops=True)
        block = find_block(sch, copy)
        if block is not None and place == "inline":
            sch.compute_inline(block)
        elif block is not None:
            _place_copy(sch, block, {"parallel": parallel, "tile": self.tiles[0]}.get(place), copy_lanes)
        sch.parallel(parallel)
        _vectorize_epilogue(sch, self.epilogue, len(self.tiles) + 1, lanes, unrolled)
        sch.vectorize(self.vector)
        for loop in self.registers:
            sch.unroll(loop)

    def finish(self, loops: Sequence[LoopRV], max_step: int) -> tirx.PrimFunc:
        """Unroll loops, innermost first, up to `max_step` vector operations in the body; return the function."""
        steps = self.steps
        for loop in reversed(loops):
            steps *= int(self.sch.get(loop).extent)
            if steps > max_step:
                break
            self.sch.unroll(loop)
        self.sch.decompose_reduction(self.block, self.reduction[0])
        return with_full_vectors(scheduled(self.sch))


def with_full_vectors(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Vectorize wherever no lane is beyond the last filter or column.

    TVM serializes a vector if its block, or its value, has a condition on lanes, even one that is true for all lanes.
    Conditions that hold for the first and the last lane hold for all lanes between them.
    """
    return map_nodes(func, tirx.For, _vector_or_serial)


def _vector_or_serial(loop: tirx.For) -> tirx.Stmt:
    if loop.kind != tirx.ForKind.VECTORIZED:
        return loop
    (realize,) = collect(loop, s_tir.SBlockRealize)
    block, values = realize.block, {}
    bindings = {axis.var: value for axis, value in zip(block.iter_vars, realize.iter_values, strict=True)}
    conditions = [realize.predicate] if _depends_on(realize.predicate, loop) else []
    for call in collect(block.body, ir.Call):
        if _is_condition(call) and _depends_on(condition := with_values(call.args[0], bindings), loop):
            conditions.append(condition)
            values[call] = call.args[1]
    if not conditions:
        return loop
    ends = (tirx.IntImm(loop.loop_var.ty.dtype, 0), loop.extent - 1)
    at_ends = [with_values(tirx.all(*conditions), {loop.loop_var: lane}) for lane in ends]
    unconditional = tvm_ffi.structural_map(block, (ir.Call, lambda call: values.get(call, call))) if values else block
    vectorized = tirx.For(
        loop.loop_var, 0, loop.extent, loop.kind, s_tir.SBlockRealize(realize.iter_values, True, unconditional)
    )
    renamed = with_new_definition(loop)
    serial = tirx.For(renamed.loop_var, 0, renamed.extent, tirx.ForKind.SERIAL, renamed.body)
    return tirx.IfThenElse(tirx.all(*at_ends) if values else at_ends[1], vectorized, serial)


def _is_condition(call: ir.Call) -> bool:
    return isinstance(call.op, ir.Op) and str(call.op.name).endswith(".if_then_else")


def _depends_on(condition: Any, loop: tirx.For) -> bool:
    return any(variable.same_as(loop.loop_var) for variable in collect(condition, tirx.Var))


def end_after_rows(func: tirx.PrimFunc, loop: tirx.For, rows: Any, register: int) -> tirx.PrimFunc:
    """End a loop around the anchor, over tiles of `register` rows, after the last row.

    Results beyond the rows would be discarded. If the number of rows is static, the loop is not changed.
    """
    if isinstance(rows, tirx.IntImm):
        return func

    def end_early(tiles: tirx.For) -> tirx.Stmt:
        anchors = [realize for realize in collect(tiles, s_tir.SBlockRealize) if ANCHOR in realize.block.annotations]
        at_start = {inner.loop_var: tirx.IntImm(inner.loop_var.ty.dtype, 0) for inner in collect(tiles, tirx.For)}
        spatial = [
            value
            for axis, value in zip(anchors[0].block.iter_vars, anchors[0].iter_values, strict=True)
            if axis.iter_type == tirx.IterVar.DataPar
        ]
        n_tiles = (rows - with_values(spatial[-2], at_start) + (register - 1)) // register
        return tirx.For(tiles.loop_var, tiles.min, simplify(tirx.min(tiles.extent, n_tiles)), tiles.kind, tiles.body)

    return with_loop(func, loop, end_early)


def skip_surplus(
    func: tirx.PrimFunc, outer: tirx.For, left: Callable[[Any], Any], steps: Mapping[tirx.For, int]
) -> tirx.PrimFunc:
    """Skip the surplus iterations of some loops inside another loop.

    The remaining amount is read from memory, which hides it from TVM: as an extent or a known condition, it would give
    inner buffers a symbolic size and move them to the heap.

    Args:
        func: the function.
        outer: the loop around the other loops.
        left: maps the outer loop's variable to the remaining amount.
        steps: the inner loops, with the amount that an iteration processes.
    """
    root = func.body.block
    left_buffer = tirx.decl_buffer((1,), outer.loop_var.ty.dtype, "left", scope="local")
    new_func = with_nests(func, [root.body], [*root.alloc_buffers, left_buffer])
    for loop, step in steps.items():
        new_func = with_loop(new_func, loop, partial(_guard_iteration, left_buffer, step))

    def store_left(loop: tirx.For) -> tirx.For:
        body = tirx.SeqStmt([tirx.BufferStore(left_buffer, left(loop.loop_var), [0]), loop.body])
        return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body)

    return with_loop(new_func, outer, store_left)


def _guard_iteration(left_buffer: Any, step: int, loop: tirx.For) -> tirx.For:
    body = tirx.IfThenElse(loop.loop_var * step < tirx.BufferLoad(left_buffer, [0]), loop.body, None)
    return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body)


def _vectorize_epilogue(sch: s_tir.Schedule, epilogue: SBlockRV, depth: int, lanes: int, unrolled: bool) -> None:
    """Vectorize the innermost of the epilogue's loops below a depth, which form a register tile.

    The vectors of a row are unrolled, and so are the other loops if `unrolled`.
    """
    *tile, last = sch.get_loops(epilogue)[depth:]
    extent = int(sch.get(last).extent)
    width = next(width for width in range(min(lanes, extent), 0, -1) if extent % width == 0)
    outer, inner = sch.split(last, [None, width])
    sch.vectorize(inner)
    for loop in (*(tile if unrolled else ()), outer):
        sch.unroll(loop)


def _place_copy(sch: s_tir.Schedule, block: SBlockRV, loop: LoopRV | None, lanes: int) -> None:
    """Place a copy block, vectorized if its last axis is long, in a loop or, in parallel, before everything else."""
    if loop is not None:
        sch.compute_at(block, loop)
    last = sch.get_loops(block)[-1]
    if loop is not None and sch.get(last).same_as(sch.get(loop)):
        return  # it copies a single element
    extent = sch.get(last).extent
    widths = (2 * lanes, lanes, lanes // 2) if lanes and isinstance(extent, tirx.IntImm) else ()
    if width := next((width for width in widths if int(extent) % width == 0), None):
        sch.vectorize(sch.split(last, [None, width])[1])
    if loop is None:
        batch, row = sch.get_loops(block)[:2]
        sch.parallel(sch.fuse(batch, row))


def prefetch(func: tirx.PrimFunc, loop: tirx.For, later: Callable[..., Sequence[Any]], lines: int) -> tirx.PrimFunc:
    """Begin each iteration of a loop with prefetches of `lines` cache lines of weights.

    The loop must contain only one block, whose last load from a parameter is the packed weight. `later` maps the
    indices of the first weight that an iteration reads to the indices of the first weight to prefetch.
    """
    (realize,) = collect(loop.body, s_tir.SBlockRealize)
    at_start = {inner.loop_var: tirx.IntImm(inner.loop_var.ty.dtype, 0) for inner in collect(loop.body, tirx.For)}
    loads = collect(realize.block.body, ir.TensorLoad)
    weight = next(load for load in reversed(loads) if any(load.source.same_as(param) for param in func.params))
    bindings = {axis.var: value for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)}
    *outer, last = later(*(with_values(with_values(index, bindings), at_start) for index in weight.indices))
    line = tirx.Var("line", "int32")
    load = tirx.BufferLoad(weight.source, [*outer, last + line * (CACHE_LINE_BYTES // FLOAT_BYTES)])
    prefetches = tirx.For(line, 0, lines, tirx.ForKind.SERIAL, tirx.Evaluate(make_prefetch(load, level=2)))

    def prepend_prefetches(loop: tirx.For) -> tirx.For:
        return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, tirx.SeqStmt([prefetches, loop.body]))

    return with_loop(func, loop, prepend_prefetches)
