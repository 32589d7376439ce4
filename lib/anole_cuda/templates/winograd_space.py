"""The space of a Winograd convolution on CUDA: knobs, loop nest and speed model; needs no compiler.

There are three kernels: the first transforms tiles of data, the second multiplies them with the transformed weights,
the third transforms the products to outputs. All knobs except the tile size belong to the second: for each point of a
tile it multiplies matrices of (tiles, in channels) and (in channels, filters), in the loop nest of a dense layer.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from anole.record import Config
from anole.space import Constraint, Knob, Space, option_knob, split_knob
from anole.space.space import Columns
from anole.targets.shared.output_tiles import OutputTiles, tile_count
from anole.task import Conv2d
from anole_cuda.device.architecture import BlockLimits
from anole_cuda.device.gpu_specs import GpuSpecs
from anole_cuda.templates import tiling
from anole_cuda.templates.product_space import Products
from anole_cuda.templates.roofline import Kernel, Numbers, sectors, speed, uncached_share
from anole_cuda.templates.usage import FLOAT_BYTES, Counts, Usage, limit_constraints, limited_space

TAPS = 3
"""Rows and columns of the convolution's filters."""

THREADS = 64
"""Threads in a block of the transforms: few, to have many blocks even in small layers. Transforms are memory-bound."""

_TILE_SIZES = (2, 4)
_MAX_TILES = 256


def can_winograd(w: Conv2d) -> bool:
    """Whether a convolution has a 3x3 kernel, stride 1, no dilation and one group."""
    return w.kernel == (TAPS, TAPS) and w.strides == w.dilation == (1, 1) and w.groups == 1


def output_tiles(w: Conv2d, config: Config) -> OutputTiles:
    """Return the output tiles of a config."""
    return OutputTiles.of(w, config["tile_size"], prod(config["tile_p"]))


def winograd_knobs(w: Conv2d) -> list[Knob]:
    """Return the knobs.

    ``tile_size``: outputs along a side of a tile, for F(2x2, 3x3) or F(4x4, 3x3). ``tile_f`` splits the filters into
    (block, virtual thread, thread, inner) and ``tile_rc`` the reduction into (outer, inner). ``tile_p`` is (virtual
    thread, thread, inner) of the tiles, which determines the number of blocks. ``auto_unroll_max_step`` and
    ``unroll_explicit`` are as for direct convolution.
    """
    return [
        option_knob("tile_size", _TILE_SIZES, agent="spatial", balanced=True),
        split_knob("tile_f", w.out_channels, 4, agent="spatial"),
        _tile_knob(w),
        split_knob("tile_rc", w.in_channels, 2, agent="reduction"),
        *tiling.unroll_knobs(),
    ]


@cache
def winograd_space(limits: BlockLimits, gpu: GpuSpecs, w: Conv2d) -> Space:
    """Return the space of a convolution for which `can_winograd` holds; `winograd_knobs` describes its knobs."""
    space = limited_space(
        limits,
        winograd_knobs(w),
        lambda columns: _products(w, columns).usage(),
        lambda columns: _products(w, columns).nest(),
        lambda columns: speed(gpu, *winograd_kernels(gpu, w, columns)),
    )
    transforms = [
        replace(constraint, reason=f"the transforms: {constraint.reason}")
        for constraint in limit_constraints(limits, lambda columns: _transforms_usage(w, columns))
    ]
    not_oversized = Constraint(
        "a block has room for twice as many tiles as there are, or more",
        lambda columns: np.asarray(columns["tile_p"].prod(axis=1) < 2 * tile_count(w, columns["tile_size"])),
    )
    constraints = [*space.constraints, *transforms, not_oversized]
    return Space(space.knobs, constraints, space.describe, merit=space.merit, core=space.core, merit_is_speed=True)


def _tile_knob(w: Conv2d) -> Knob:
    """Return the knob of all splits of useful numbers of tiles per block.

    These numbers are powers of two, where the last block may be partial, and divisors of the number of tiles. An image
    of 28x28, for example, has 7 * 7 tiles of 4x4.
    """
    counts = [tile_count(w, size) for size in _TILE_SIZES]
    limit = min(_MAX_TILES, 1 << (max(counts) - 1).bit_length())
    useful = [n for n in range(1, limit + 1) if n.bit_count() == 1 or any(count % n == 0 for count in counts)]
    splits = [split_knob("tile_p", n, 3, agent="spatial") for n in useful]
    values = tuple(value for knob in splits for value in knob.values)
    return replace(splits[0], values=values, features=np.concatenate([knob.features for knob in splits]))


def _split(w: Conv2d, columns: Columns) -> NDArray[np.int64]:
    """Return the splits of the tiles into (block, virtual thread, thread, inner), shape (n, 4)."""
    blocks = -(-tile_count(w, columns["tile_size"]) // columns["tile_p"].prod(axis=1))
    return np.column_stack([blocks, columns["tile_p"]])


def winograd_kernels(gpu: GpuSpecs, w: Conv2d, columns: Columns) -> tuple[Kernel, Kernel, Kernel]:
    """Return the three modeled kernels of n configs, in the order in which they run."""
    points, products = _points(columns), _products(w, columns)
    tiles, panel = products.splits["p"].prod(axis=1), columns["tile_f"][:, 1:].prod(axis=1)
    transformed, product = (FLOAT_BYTES * points**2 * tiles * n for n in (w.in_channels, w.out_channels))
    weights = FLOAT_BYTES * points**2 * w.in_channels * w.out_channels
    # Values that one kernel writes and the next reads are in memory only if the L2 cache has no room for them.
    between = (transformed + product) * uncached_share(gpu, transformed + product)
    second = products.kernel(gpu, panel * columns["tile_rc"][:, 1], weights + between)
    data = FLOAT_BYTES * w.batch * w.height * w.width * w.in_channels
    outputs = FLOAT_BYTES * w.batch * w.out_height * w.out_width * w.out_channels
    missed_bytes = [values * uncached_share(gpu, values) for values in (transformed, product)]
    first = _transform_kernel(points, tiles, w.in_channels, points**2, data + missed_bytes[0])
    last = _transform_kernel(points, tiles, w.out_channels, columns["tile_size"] ** 2, outputs + missed_bytes[1])
    return first, second, last


def _transform_kernel(points: Counts, tiles: Counts, channels: int, plain: Counts, fresh_bytes: Numbers) -> Kernel:
    """Return the modeled kernel of a transform, whose threads have one tile of one channel each.

    Args:
        points: points along a side of a tile.
        tiles: tiles of all images.
        channels: channels, or filters.
        plain: untransformed values of a tile: read by the data transform, written by the output transform.
        fresh_bytes: bytes read from memory and written to it.
    """
    ones = np.ones_like(points)
    n_moved = points**2 + plain
    return Kernel(
        blocks=-(-tiles * channels // THREADS),
        threads=THREADS * ones,
        registers=points**2 + 2 * tiling.ADDRESSING,
        shared_bytes=0 * ones,
        # Two products with a matrix that has few values other than 0 and 1.
        multiply_adds=2.0 * points**2,
        independent=points,
        instructions=4.0 * n_moved,
        shared_cycles=0.0 * ones,
        shared_waits=0.0 * ones,
        sectors=sectors(n_moved * THREADS, np.minimum(channels, THREADS) * ones),
        stages=2.0 * ones,
        fresh_bytes=fresh_bytes,
        reused_bytes=fresh_bytes,
    )


def _points(columns: Columns) -> NDArray[np.int64]:
    return np.asarray(columns["tile_size"] + TAPS - 1)


def _products(w: Conv2d, columns: Columns) -> Products:
    """Return the products of n configs, one for each point of a tile."""
    splits = {"p": _split(w, columns), "f": columns["tile_f"], "rc": columns["tile_rc"]}
    return Products(splits, columns["auto_unroll_max_step"], dict.fromkeys("ab", _points(columns)))


def _transforms_usage(w: Conv2d, columns: Columns) -> Usage:
    """Return an upper bound of the transforms' usage; the data transform needs more registers, for a tile's points."""
    points, data = _points(columns), _split(w, columns).prod(axis=1) * w.in_channels
    outputs = tile_count(w, columns["tile_size"]) * w.out_channels
    ones = np.ones_like(points)
    return Usage(
        threads=THREADS * ones,
        threads_z=ones,
        virtual_threads=ones,
        shared_bytes=0 * ones,
        registers=points**2 + tiling.ADDRESSING,
        grid_x=-(-np.maximum(data, outputs) // THREADS),
        grid_y=ones,
    )
