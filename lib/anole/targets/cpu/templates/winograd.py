"""Winograd convolution on the CPU: NHWC data, processed in blocks of tiles that stay in the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import tvm_ffi
from numpy.typing import NDArray
from tvm import ir, s_tir, sym, te, tirx

from anole.ir.nodes import collect, map_nodes, nest_around, with_values
from anole.record import Config
from anole.targets.base import DIRECT, WINOGRAD
from anole.targets.cpu.device.vector_unit import FLOAT_BYTES, VectorUnit
from anole.targets.cpu.templates import nest
from anole.targets.cpu.templates.conv2d import Conv2dTemplate
from anole.targets.cpu.templates.conv2d_space import padded_filters
from anole.targets.cpu.templates.register_tiles import CACHE_LINE_BYTES
from anole.targets.cpu.templates.tile_blocks import COLUMNS, split_into_blocks
from anole.targets.cpu.templates.winograd_space import output_tiles
from anole.targets.shared import anchor
from anole.targets.shared.output_tiles import OutputTiles
from anole.targets.shared.templates import ChoiceTemplate, pack_panels
from anole.targets.shared.winograd import Filtering, minimal_filtering, transform_data, transform_product
from anole.task import Conv2d

SBlockRV = Any

_LINE = CACHE_LINE_BYTES // FLOAT_BYTES

_MAX_UNROLLED_POINTS = 6
"""Maximum side of a transformed tile for which both dimensions of a transform are unrolled. Larger tiles do not fit the
registers, and unrolling them increases compile time by a third without benefit."""


@dataclass(frozen=True)
class WinogradTemplate:
    """Convolution by minimal filtering of square tiles; see `winograd_space` for its knobs."""

    unit: VectorUnit

    def packed_shape(self, workload: Conv2d, config: Config) -> tuple[int, ...]:
        """Return (panels, points, points, in, panel width)."""
        panel, points = config["tile_f"][2], output_tiles(workload, config).points
        return (padded_filters(self.unit, workload) // panel, points, points, workload.in_channels, panel)

    def pack_weight(self, workload: Conv2d, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Transform HWIO weights in float64 and pack them into panels, zero-padded."""
        transformed = _filtering(workload, config).transform_weight(weight).astype(weight.dtype)
        return pack_panels(transformed, config["tile_f"][2], padded_filters(self.unit, workload))

    def compute(self, workload: Conv2d, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Convolve NHWC data with packed weights, as NHWC."""
        tiles, filtering = output_tiles(workload, config), _filtering(workload, config)
        values = transform_data(workload, tiles, filtering, data)
        return transform_product(workload, tiles, filtering, _multiply(values, packed))

    def schedule(self, func: tirx.PrimFunc, workload: Conv2d, config: Config) -> tirx.PrimFunc:
        """Schedule the function with the config's loop nest."""
        panel = config["tile_f"][2]
        lanes = self.unit.lanes_of(panel)
        points = output_tiles(workload, config).points
        batch = func.params[0].ty.shape[0]
        in_blocks = not isinstance(batch, tirx.IntImm)
        tiles = output_tiles(replace(workload, batch=batch), config) if in_blocks else None
        sch, epilogue = _join_outputs(func, tiles or workload.dilation)
        parallel, panel_loop, tile = _schedule_output(sch, epilogue, config, lanes, points, in_blocks)
        p_tile, rc_outer = _schedule_product(sch, config, panel_loop, lanes)
        channel_lanes, at_parallel = self.unit.lanes_of(workload.in_channels), config["data_at"] == "parallel"
        data_tile = _schedule_data(sch, parallel if at_parallel else None, channel_lanes, points)
        func = nest.with_full_vectors(anchor.scheduled(sch))
        if tiles is not None:
            steps = {p_tile: config["tile_p"][1], tile: 1, **({data_tile: 1} if data_tile else {})}
            func = _without_surplus(func, sch, parallel, steps, tiles, config)
        if not config["prefetch_rc"]:
            return func
        return _prefetch_weights(func, sch.get(p_tile), sch.get(rc_outer), workload, config["prefetch_rc"] * panel)


def direct_or_winograd(unit: VectorUnit) -> ChoiceTemplate:
    """Return the template of convolutions whose configs choose the algorithm."""
    return ChoiceTemplate({DIRECT: Conv2dTemplate(unit), WINOGRAD: WinogradTemplate(unit)})


def _filtering(w: Conv2d, config: Config) -> Filtering:
    return minimal_filtering(config["tile_size"], w.kernel[0])


def _multiply(data: te.Tensor, packed: te.Tensor) -> te.Tensor:
    """Return the products of all points, (points, points, *axes of tiles, filters of all panels)."""
    points, _, *tiles, channels = data.shape
    panels, panel = int(packed.shape[0]), int(packed.shape[4])
    rc = te.reduce_axis((0, channels), "rc")

    def point(a: Any, b: Any, *at: Any) -> Any:
        *tile, f = at
        return te.sum(data[(a, b, *tile, rc)] * packed[f // panel, a, b, rc, f % panel], axis=rc)

    return te.compute((points, points, *tiles, panels * panel), point, name="winograd_product")


def _join_outputs(func: tirx.PrimFunc, parts: tuple[int, int] | OutputTiles) -> tuple[s_tir.Schedule, SBlockRV]:
    """Join the output transform and the epilogue in one block; return the schedule and the block.

    The loops are (n, y, x, f); with a dilation, of `_split_into_subimages`; with tiles, of `split_into_blocks`.
    """
    sch = s_tir.Schedule(func)
    block = anchor.find_anchor(sch)
    epilogue = anchor.join_epilogue(sch, block)
    # Move the anchor mark to the block that does most of the work.
    for name, value in sch.get(block).annotations.items():
        sch.annotate(sch.get_sblock("winograd_product"), name, value)
    sch.compute_inline(block)
    if parts == (1, 1):
        return sch, epilogue
    name = sch.get(epilogue).name_hint
    func = anchor.scheduled(sch)
    sch = s_tir.Schedule(
        split_into_blocks(func, name, parts)
        if isinstance(parts, OutputTiles)
        else _split_into_subimages(func, name, parts)
    )
    return sch, sch.get_sblock(name)


def _schedule_output(
    sch: s_tir.Schedule, epilogue: SBlockRV, config: Config, lanes: int, points: int, in_blocks: bool
) -> tuple[Any, Any, Any]:
    """Schedule the output transform in registers; return the loops over chunks, their panels, and tiles.

    The loops of the epilogue are over images, or over blocks and their tiles, see `split_into_blocks`.
    """
    *outputs, y_inner, x_inner, f = sch.get_loops(epilogue)
    if not in_blocks:
        row, y_inner = sch.split(y_inner, [None, config["tile_size"]])
        column, x_inner = sch.split(x_inner, [None, config["tile_size"]])
        outputs += [row, column]
    f_parallel, f_tile, panel = config["tile_f"]
    f_chunk, panel_loop, register, vector = sch.split(f, [f_parallel, f_tile, panel // lanes, lanes])
    sch.reorder(*outputs, f_chunk, panel_loop, register, y_inner, x_inner, vector)
    if not in_blocks:
        outputs = [sch.fuse(*outputs)]
    columns = sch.get_sblock(COLUMNS)
    # TVM can simplify a tile's position in NHWC to its index only before the tiles are split.
    sch.compute_at(columns, register, preserve_unit_loops=True)
    if not in_blocks:
        outputs = sch.split(outputs[0], [None, config["tile_p"][0] * config["tile_p"][1]])
    chunk, tile = outputs
    outer = [f_chunk, chunk] if config["parallel_order"] == "fy" else [chunk, f_chunk]
    sch.reorder(*outer, panel_loop, tile, register)
    parallel = sch.fuse(*outer)
    sch.parallel(parallel)
    _transform_columns(sch, columns, points)
    _unroll(sch, y_inner, x_inner, points)
    sch.vectorize(vector)
    return parallel, panel_loop, tile


def _schedule_product(sch: s_tir.Schedule, config: Config, panel_loop: Any, lanes: int) -> tuple[Any, Any]:
    """Multiply the matrices of all points for one panel of filters; return the loops over tiles and channels."""
    block = sch.get_sblock("winograd_product")
    sch.compute_at(block, panel_loop, preserve_unit_loops=True)
    out = sch.cache_write(block, 0, "local")
    *_, a, b, tile, f, rc = _with_one_tile_loop(sch, block, 2)
    p_tile, p_register = sch.split(tile, [None, config["tile_p"][1]])
    f_register, f_vector = sch.split(f, [None, lanes])
    channels, unrolled = int(sch.get(rc).extent), config["unroll_rc"]
    rc_outer, rc_tile, rc_inner = sch.split(rc, [None, (config["prefetch_rc"] or channels) // unrolled, unrolled])
    sch.reorder(a, b, p_tile, rc_outer, rc_tile, rc_inner, p_register, f_register, f_vector)
    sch.reverse_compute_at(out, p_tile, preserve_unit_loops=True)
    *_, tile, f = sch.get_loops(out)
    f_out, f_out_vector = sch.split(f, [None, lanes])
    for loop in (rc_inner, p_register, f_register, tile, f_out):
        sch.unroll(loop)
    for loop in (f_vector, f_out_vector):
        sch.vectorize(loop)
    sch.decompose_reduction(block, rc_outer)
    return p_tile, rc_outer


def _prefetch_weights(func: tirx.PrimFunc, p_tile: tirx.For, rc_outer: tirx.For, w: Conv2d, n: int) -> tirx.PrimFunc:
    """Prefetch the next point's `n` weights while this point's weights are used; each tile prefetches its share."""
    lines = -(-n * FLOAT_BYTES // (CACHE_LINE_BYTES * int(p_tile.extent)))
    share = p_tile.loop_var * (lines * CACHE_LINE_BYTES // FLOAT_BYTES)

    # The points' weights are contiguous, so the next point's weights are `w.in_channels` rows further.
    def next_weight(panel: Any, a: Any, b: Any, rc: Any, f: Any) -> tuple[Any, ...]:
        return panel, a, b, rc + w.in_channels, f + share

    return nest.prefetch(func, rc_outer, next_weight, lines)


def _schedule_data(sch: s_tir.Schedule, parallel: Any, lanes: int, points: int) -> Any:
    """Schedule the data transform inside a parallel chunk, or of all data before the chunks if `parallel` is None.

    Return the loop over a chunk's tiles; None if all data is transformed before the chunks.
    """
    block = sch.get_sblock("winograd_data")
    if parallel is not None:
        sch.compute_at(block, parallel, preserve_unit_loops=True)
    *_, a, b, tile, channel = _with_one_tile_loop(sch, block, 1)
    channel, vector = sch.split(channel, [None, lanes])
    sch.reorder(tile, channel, a, b, vector)
    # The points of a tile are written together. At a distance of a power of two they would evict each other from the
    # cache; at an odd number of lines they use all of its sets.
    sch.storage_align(block, 0, axis=1, factor=2 * _LINE, offset=_LINE)
    if parallel is None:
        channel = sch.fuse(tile, channel)
        sch.parallel(channel)
    columns, patch = sch.get_sblock("winograd_data_columns"), sch.get_sblock("winograd_patch")
    sch.compute_at(columns, channel, preserve_unit_loops=True)
    column = _transform_columns(sch, columns, points)
    sch.compute_at(patch, column, preserve_unit_loops=True)
    *_, row, _, _, patch_vector = _with_one_tile_loop(sch, patch, 1)
    sch.set_scope(patch, 0, "local")
    _unroll(sch, a, b, points)
    sch.unroll(row)
    for loop in (vector, patch_vector):
        sch.vectorize(loop)
    return None if parallel is None else tile


def _without_surplus(
    func: tirx.PrimFunc,
    sch: s_tir.Schedule,
    parallel: Any,
    steps: Mapping[Any, int],
    tiles: OutputTiles,
    config: Config,
) -> tirx.PrimFunc:
    """Skip the last block's padding beyond the last tile.

    `parallel` is the loop over chunks, each with a block's tiles; `steps` has the loops over a block's tiles, with the
    number of tiles per iteration.
    """
    chunk = sch.get(parallel)

    def left(at: Any) -> Any:
        block = at % tiles.blocks if config["parallel_order"] == "fy" else at // config["tile_f"][0]
        return tiles.count - block * tiles.in_block

    return nest.skip_surplus(func, chunk, left, {sch.get(loop): step for loop, step in steps.items()})


def _with_one_tile_loop(sch: s_tir.Schedule, block: SBlockRV, inside: int) -> list[Any]:
    """Return a block's loops, `inside` of them after the tile loop; a loop over blocks is fused with the tile loop."""
    loops = list(sch.get_loops(block))
    if len(sch.get(block).iter_vars) == inside + 3:
        return loops
    *outer, at_block, at_tile = loops[:-inside]
    return [*outer, sch.fuse(at_block, at_tile), *loops[-inside:]]


def _transform_columns(sch: s_tir.Schedule, columns: SBlockRV, points: int) -> Any:
    """Transform a tile along its first axis, column by column; return the loop over columns."""
    *_, row, column, _, vector = _with_one_tile_loop(sch, columns, 1)
    sch.reorder(column, row, vector)
    sch.set_scope(columns, 0, "local")
    _unroll(sch, column, row, points)
    sch.vectorize(vector)
    return column


def _unroll(sch: s_tir.Schedule, outer: Any, inner: Any, points: int) -> None:
    """Unroll a one-dimensional transform; also unroll its repetitions if an entire tile may fit the registers."""
    if points <= _MAX_UNROLLED_POINTS:
        sch.unroll(outer)
    sch.unroll(inner)


def _split_into_subimages(func: tirx.PrimFunc, name: str, dilation: tuple[int, int]) -> tirx.PrimFunc:
    """Replace a block's loops (n, y, x, f) by (n, y first, x first, y, x, f).

    Row ``y first`` and the rows at multiples of the dilation after it form a subimage, whose rows are ``y``. TVM can
    simplify accesses to such rows only if both are axes of the block itself. The nest around the block must be perfect.
    """

    def rewrite(outer: tirx.For) -> tirx.Stmt:
        blocks = collect(outer, s_tir.SBlockRealize)
        is_match = [realize.block.name_hint for realize in blocks] == [name] and len(collect(outer, tirx.For)) == 4
        return _rewrite_over_subimages(blocks[0], dilation) if is_match else outer

    return map_nodes(func, tirx.For, rewrite)


def _rewrite_over_subimages(realize: s_tir.SBlockRealize, dilation: tuple[int, int]) -> tirx.Stmt:
    block = realize.block
    n, y, x, f = block.iter_vars
    (row, first_row), (column, first_column) = map(_subimage_axes, (y, x), dilation)
    iter_vars = [n, first_row, first_column, row, column, f]
    analyzer = sym.Analyzer()
    for axis in iter_vars:
        analyzer.bind(axis.var, axis.dom)
    values = {y.var: row.var * dilation[0] + first_row.var, x.var: column.var * dilation[1] + first_column.var}

    def index(node: Any) -> Any:
        return analyzer.simplify(with_values(node, values))

    def load(access: Any) -> Any:
        return tirx.BufferLoad(access.source, [analyzer.simplify(at) for at in access.indices])

    def rewrite_region(access: Any) -> Any:
        ranges = [ir.Range.from_min_extent(index(side.min), index(side.extent)) for side in access.region]
        return tirx.BufferRegion(access.source, ranges)

    store = block.body
    value = tvm_ffi.structural_map(with_values(store.value, values), (ir.TensorLoad, load), order="post")
    body: tirx.Stmt = tirx.BufferStore(store.buffer, value, [index(at) for at in store.indices])
    inside = analyzer.simplify(tirx.all(*(values[axis.var] < axis.dom.extent for axis in (y, x))))
    if not (isinstance(inside, tirx.IntImm) and inside.value):
        # As a predicate of the block, TVM would not recognize it as affine.
        body = tirx.IfThenElse(inside, body, None)
    reads, writes = ([rewrite_region(region) for region in regions] for regions in (block.reads, block.writes))
    return nest_around(s_tir.SBlock(iter_vars, reads, writes, block.name_hint, body))


def _subimage_axes(axis: tirx.IterVar, step: int) -> tuple[tirx.IterVar, tirx.IterVar]:
    """Return the axis of rows or columns within a subimage, and the axis of subimages."""

    def part(suffix: str, extent: int) -> tirx.IterVar:
        variable = tirx.Var(axis.var.name + suffix, axis.var.ty.dtype)
        return tirx.IterVar(ir.Range(0, tirx.const(extent, axis.var.ty.dtype)), variable, axis.iter_type)

    return part("", -(-int(axis.dom.extent) // step)), part("_first", step)
