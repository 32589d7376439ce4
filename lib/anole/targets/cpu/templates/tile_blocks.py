"""Loops over blocks of tiles for the outputs of a Winograd convolution with a dynamic batch; the last may be partial.

TVM splits loops over a dynamic number of tiles only into parts that it cannot reorder. Loops over blocks, the tiles
of a block and the outputs of a tile therefore replace the loops over images, rows and columns. A condition excludes
outputs beyond the last tile or outside the image.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, s_tir, sym, tirx

from anole.ir.nodes import collect, map_nodes, nest_around, with_values
from anole.targets.shared.output_tiles import OutputTiles

COLUMNS = "winograd_output_columns"


def split_into_blocks(func: tirx.PrimFunc, name: str, tiles: OutputTiles) -> tirx.PrimFunc:
    """Replace a block's loops (n, y, x, f) by (block of tiles, tile, y and x in the tile, f).

    The nest around the block must be perfect.
    """

    def rewrite(outer: tirx.For) -> tirx.Stmt:
        blocks = collect(outer, s_tir.SBlockRealize)
        is_match = [realize.block.name_hint for realize in blocks] == [name] and len(collect(outer, tirx.For)) == 4
        return _rewrite_over_blocks(blocks[0].block, tiles) if is_match else outer

    return map_nodes(func, tirx.For, rewrite)


def _rewrite_over_blocks(block: s_tir.SBlock, tiles: OutputTiles) -> tirx.Stmt:
    n, y, x, f = block.iter_vars
    extents = {"block": tiles.blocks, "tile": tiles.in_block, "y_in_tile": tiles.size, "x_in_tile": tiles.size}
    axes = [_axis(axis, extent, n) for axis, extent in extents.items()]
    analyzer = sym.Analyzer()
    for axis in (*axes, f):
        analyzer.bind(axis.var, axis.dom)
    at_block, at_tile, y_in_tile, x_in_tile = (axis.var for axis in axes)
    tile = tiles.index_at(at_block, at_tile)
    image, y_first, x_first = tiles.first(tile)
    d_y, d_x = tiles.dilation
    values = {n.var: image, y.var: y_first + y_in_tile * d_y, x.var: x_first + x_in_tile * d_x}

    def rewrite_indices(source: Any, indices: Any) -> list[Any]:
        """Return the indices of an access; TVM could not derive that columns belong to the same tile."""
        if str(source.name) == COLUMNS:
            return [y_in_tile, indices[1], at_block, at_tile, f.var]
        return [analyzer.simplify(with_values(index, values)) for index in indices]

    def load(access: Any) -> Any:
        return tirx.BufferLoad(access.source, rewrite_indices(access.source, access.indices))

    def rewrite_region(access: Any) -> Any:
        firsts = rewrite_indices(access.source, [side.min for side in access.region])
        sides = zip(firsts, access.region, strict=True)
        return tirx.BufferRegion(access.source, [ir.Range.from_min_extent(first, side.extent) for first, side in sides])

    value = tvm_ffi.structural_map(block.body.value, (ir.TensorLoad, load), order="post")
    value = tvm_ffi.structural_map(with_values(value, values), (tirx.EQ, analyzer.simplify), order="post")
    store = tirx.BufferStore(block.body.buffer, value, rewrite_indices(block.body.buffer, block.body.indices))
    conditions = (values[axis.var] < axis.dom.extent for axis in (y, x))
    body = tirx.IfThenElse(analyzer.simplify(tirx.all(tile < tiles.count, *conditions)), store, None)
    reads, writes = ([rewrite_region(region) for region in regions] for regions in (block.reads, block.writes))
    return nest_around(s_tir.SBlock([*axes, f], reads, writes, block.name_hint, body))


def _axis(name: str, extent: Any, like: tirx.IterVar) -> tirx.IterVar:
    dtype = like.var.ty.dtype
    extent = tirx.const(extent, dtype) if isinstance(extent, int) else extent
    return tirx.IterVar(ir.Range(tirx.const(0, dtype), extent), tirx.Var(name, dtype), like.iter_type)
