"""The transforms of a Winograd convolution, as definitions that each target schedules in its own way.

Their blocks are named ``winograd_patch``, ``winograd_data_columns`` and ``winograd_data``; ``winograd_output_columns``
and ``winograd``, which is the anchor. Each target defines the products in between, as its kernel decides the weights'
layout.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from anole.targets.base import ANCHOR
from anole.targets.shared.output_tiles import OutputTiles
from anole.targets.shared.winograd_matrices import Filtering, transformed
from anole.task import Conv2d


def transform_data(w: Conv2d, tiles: OutputTiles, filtering: Filtering, data: te.Tensor) -> te.Tensor:
    """Returns B^T d B of every tile, (points, points, tiles, in); tiles that fill up the last block are zero."""
    top, left, _, _ = w.padding
    shape = (tiles.points, tiles.points, tiles.padded_count, w.in_channels)

    def point(i: Any, j: Any, tile: Any, c: Any) -> Any:
        n, y_first, x_first = tiles.first(tile)
        y, x = y_first + i * w.dilation[0] - top, x_first + j * w.dilation[1] - left
        inside = tirx.all(tile < tiles.count, y >= 0, y < w.height, x >= 0, x < w.width)
        return tirx.if_then_else(inside, data[n, y, x, c], tirx.const(0, w.dtype))

    def column(a: Any, j: Any, tile: Any, c: Any) -> Any:
        return transformed(filtering.data, a, [patch[i, j, tile, c] for i in range(tiles.points)])

    def both(a: Any, b: Any, tile: Any, c: Any) -> Any:
        return transformed(filtering.data, b, [columns[a, j, tile, c] for j in range(tiles.points)])

    patch = te.compute(shape, point, name="winograd_patch")
    columns = te.compute(shape, column, name="winograd_data_columns")
    return te.compute(shape, both, name="winograd_data")


def transform_product(w: Conv2d, tiles: OutputTiles, filtering: Filtering, product: te.Tensor) -> te.Tensor:
    """Returns A^T M A of every tile, placed in NHWC.

    This drops the surplus rows and columns of border tiles and the filters that fill up the last panel.
    """
    size, points = tiles.size, range(tiles.points)

    def half(y: Any, b: Any, tile: Any, f: Any) -> Any:
        return transformed(filtering.output, y, [product[a, b, tile, f] for a in points])

    def both(n: Any, y: Any, x: Any, f: Any) -> Any:
        tile, (row, column) = tiles.number(n, y, x), tiles.within(y, x)
        return transformed(filtering.output, column, [columns[row, b, tile, f] for b in points])

    columns = te.compute((size, *product.shape[1:]), half, name="winograd_output_columns")
    shape = (w.batch, w.out_height, w.out_width, w.out_channels)
    return te.compute(shape, both, name="winograd", attrs={ANCHOR: w.operator})
