"""Convolutions and dense layers of packed words whose register tiles are calls of AMX tile products."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from tvm import ir, s_tir, sym, tirx

from anole.ir.nodes import collect, with_loop, with_values
from anole.record import Config
from anole.targets.base import DIRECT, TILES
from anole.targets.cpu.device import tiles
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates import nest
from anole.targets.cpu.templates.conv2d import Conv2dTemplate
from anole.targets.cpu.templates.products import DenseTemplate
from anole.targets.cpu.templates.tiles_space import SIDE, in_groups, runs, strips
from anole.targets.shared import anchor
from anole.targets.shared.packed_words import first_element, is_dot
from anole.targets.shared.templates import ChoiceTemplate
from anole.task import BatchMatmul, Conv2d, Dense


class TiledConvolution(Conv2dTemplate):
    """Direct convolution in AMX tiles; see `conv2d_tiles_space` for its knobs."""

    def schedule(self, func: tirx.PrimFunc, workload: Conv2d, config: Config) -> tirx.PrimFunc:
        """Schedule the function with the config's loop nest."""
        w, tiled = workload, self.tile(func, config, self.unit.lanes_of(config["tile_f"][2]))
        tiled.arrange("pad", config["pad_at"], self.unit.lanes, self.unit.lanes, unrolled=False)
        rows, row_columns = config["tile_y"][2], config["tile_x"][1]
        n_strips, row = map(int, strips(w, rows, row_columns))
        length, extent, axis = (rows, w.out_height, 1) if w.out_width == 1 else (row_columns, w.out_width, 2)
        down, across = w.padded_width * w.in_channels, w.in_channels
        step = w.strides[0] * down if w.out_width == 1 else w.strides[1] * across
        strip = row * step if length > SIDE or w.out_width == 1 else w.strides[0] * down
        (taps_y, taps_x), n_words = runs(w)

        def sizes(at: Sequence[Any]) -> list[Any]:
            n_left = tirx.min(extent - at[axis], length)
            row_counts = [row, n_left] if length > SIDE else [n_left, n_left * n_strips]
            taps = [taps_y, w.dilation[0] * down, taps_x, w.dilation[1] * across]
            return [*row_counts, row, step, strip, *taps, *in_groups(n_words), config["tile_f"][2]]

        return _with_calls(tiled, sizes, 2)


class TiledDense(DenseTemplate):
    """A dense layer in AMX tiles; see `dense_tiles_space` for its knobs."""

    def schedule(self, func: tirx.PrimFunc, workload: Dense | BatchMatmul, config: Config) -> tirx.PrimFunc:
        """Schedule the function with the config's loop nest."""
        assert isinstance(workload, Dense)
        sch = s_tir.Schedule(func)
        block = anchor.find_anchor(sch)
        epilogue = anchor.join_epilogue(sch, block)
        y, x, k = sch.get_loops(block)
        lanes = self.unit.lanes_of(config["tile_x"][2])
        y_parallel, *rows = sch.split(y, [None, *config["tile_y"][1:]])
        x_parallel, x_tile, x_register, vector = sch.split(
            x, [*config["tile_x"][:2], config["tile_x"][2] // lanes, lanes]
        )
        chunks, registers = [x_parallel, y_parallel], [*rows, x_register]
        tiled = nest.TiledNest(sch, block, epilogue, chunks, [x_tile], [k], registers, vector, steps=0)
        tiled.arrange("", "inline", lanes, self.unit.lanes, unrolled=False)
        row, batch, n_words = config["tile_y"][2], sch.get(epilogue).iter_vars[0].dom.extent, workload.in_features

        def sizes(at: Sequence[Any]) -> list[Any]:
            n_left = tirx.min(batch - at[0], prod(config["tile_y"][1:]))
            return [row, n_left, row, n_words, row * n_words, 1, 0, 1, 0, *in_groups(n_words), config["tile_x"][2]]

        return _with_calls(tiled, sizes, 1)


def direct_or_tiles(unit: VectorUnit) -> ChoiceTemplate:
    """Return the template of convolutions whose configs choose between vectors and tiles."""
    return ChoiceTemplate({DIRECT: Conv2dTemplate(unit), TILES: TiledConvolution(unit)})


def dense_or_tiles(unit: VectorUnit) -> ChoiceTemplate:
    """Return the template of dense layers whose configs choose between vectors and tiles."""
    return ChoiceTemplate({DIRECT: DenseTemplate(unit), TILES: TiledDense(unit)})


def _with_calls(tiled: nest.TiledNest, sizes: Callable[[Sequence[Any]], Sequence[Any]], outer: int) -> tirx.PrimFunc:
    """Replace the reduction and the register tile inside it by a call.

    Args:
        tiled: an arranged nest.
        sizes: maps the block's iteration variables at the first accumulator to the call's arguments, in packed words.
        outer: number of dimensions of the data that tiles extend along; the other dimensions are read entirely.
    """
    func, reduction = anchor.scheduled(tiled.sch), tiled.sch.get(tiled.reduction[0])
    chunk = tiled.sch.get(tiled.sch.get_loops(tiled.epilogue)[0])

    def with_release(loop: tirx.For) -> tirx.For:
        body = tirx.SeqStmt([loop.body, tiles.release()])
        return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, annotations=loop.annotations)

    func = with_loop(func, reduction, lambda loop: _call(loop, sizes, outer))
    return nest.with_full_vectors(with_loop(func, chunk, with_release))


def _call(loop: tirx.For, sizes: Callable[[Sequence[Any]], Sequence[Any]], outer: int) -> tirx.Stmt:
    """Return the block with the call that replaces a loop; the loop's only block must sum products of packed words."""
    (realize,) = collect(loop, s_tir.SBlockRealize)
    block, analyzer, inner = realize.block, sym.Analyzer(), collect(loop, tirx.For)
    (dot,) = (call for call in collect(block.body, ir.Call) if is_dot(call))
    store, data, weight = block.body, first_element(dot.args[0]), dot.args[1]
    bindings = {axis.var: value for axis, value in zip(block.iter_vars, realize.iter_values, strict=True)}
    first = {nested.loop_var: tirx.IntImm(nested.loop_var.ty.dtype, 0) for nested in inner}
    last = {nested.loop_var: nested.extent - 1 for nested in inner}

    def at(values: Mapping[Any, Any], index: Any) -> Any:
        return analyzer.simplify(with_values(with_values(index, bindings), values))

    def region(buffer: Any, indices: Sequence[Any], rank: int | None) -> Any:
        ends = [(at(first, index), at(last, index)) for index in indices[:rank]]
        ranges = [ir.Range.from_min_extent(begin, analyzer.simplify(end - begin + 1)) for begin, end in ends]
        return tirx.BufferRegion(buffer, [*ranges, *(ir.Range(0, extent) for extent in buffer.shape[len(ends) :])])

    accesses = [(store.buffer, store.indices), (data.source, data.indices), (weight.source, weight.indices)]
    out, inputs, panel = (region(*access, rank) for access, rank in zip(accesses, (None, outer, None), strict=True))
    firsts = [(buffer, [at(first, index) for index in indices]) for buffer, indices in accesses]
    ends = [(part.source, [side.min + side.extent - 1 for side in part.region]) for part in (out, inputs)]
    call = tiles.multiply(firsts, ends, sizes([at(first, axis.var) for axis in block.iter_vars]))
    call_block = s_tir.SBlock([], [inputs, panel], [out], block.name_hint, call, annotations=block.annotations)
    return s_tir.SBlockRealize([], True, call_block)
