"""Vectorized estimates for many configs without lowering: tiles that fit the buffers, and a roofline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from anole.space.knob import divisors
from anole.space.space import Columns
from anole.task import Conv2d
from anole_vta.geometry import Geometry, Memory
from anole_vta.templates.conv2d import MAX_BORDER, MAX_SIZE, MAX_STEPS, Bias, EpilogueStep, Residual

Ints = NDArray[np.int64]
"""One integer per config, shape (n,)."""


@dataclass(frozen=True, eq=False)
class MappedConfigs:
    """The accelerators, threads and tiles of n configs, each of shape (n,).

    Attributes:
        batch, block_in, block_out: the GEMM block.
        inp, wgt, acc: buffer depths in elements.
        h_threads, oc_threads, tile_h, tile_w: as in `Schedule`.
    """

    batch: Ints
    block_in: Ints
    block_out: Ints
    inp: Ints
    wgt: Ints
    acc: Ints
    h_threads: Ints
    oc_threads: Ints
    tile_h: Ints
    tile_w: Ints

    def __getitem__(self, rows: NDArray[np.bool_]) -> MappedConfigs:
        return MappedConfigs(*(getattr(self, field.name)[rows] for field in fields(self)))


def resource_limits(geometries: Sequence[Geometry | None]) -> Ints:
    """Return the first six fields of `MappedConfigs` of n accelerators, shape (n, 6); zeros for None."""
    buffers = (Memory.INP, Memory.WGT, Memory.ACC)
    rows = [(0,) * 6 if g is None else (*g.block, *(g.depth(memory) for memory in buffers)) for g in geometries]
    return np.array(rows, dtype=np.int64).reshape(-1, 6)


def blocks_that_fit(w: Conv2d, mapped: MappedConfigs, epilogue: Sequence[EpilogueStep]) -> tuple[Ints, Ints]:
    """Return the blocks of input and of output channels of a tile, 0 where the accelerator cannot run the config.

    A tile has as many blocks of output channels, then of input channels, as `check_schedule` accepts. Channels are
    padded to full blocks, and the epilogue also needs accumulators.
    """
    blocks_ci, blocks_co = np.zeros((2, len(mapped.batch)), dtype=np.int64)
    if w.groups != 1 or w.dilation != (1, 1) or max(w.padding) > MAX_BORDER or w.height * w.width > MAX_SIZE:
        return blocks_ci, blocks_co
    # Invalid accelerators have a batch of 0.
    rows = (mapped.batch > 0) & (w.batch % np.maximum(mapped.batch, 1) == 0)
    rows &= (w.out_height % mapped.tile_h == 0) & (w.out_width % mapped.tile_w == 0)
    rows &= w.out_height // mapped.tile_h % mapped.h_threads == 0
    fit = _Fit(w, mapped[rows], epilogue)
    ones = np.ones(np.count_nonzero(rows), dtype=np.int64)
    blocks_co[rows] = tile_co = _largest(fit.all_co, lambda n: fit(ones, n * ones))
    blocks_ci[rows] = _largest(fit.all_ci, lambda n: fit(n * ones, tile_co)) * (tile_co > 0)
    return blocks_ci, blocks_co


class _Fit:
    """A predicate of the numbers of blocks per tile that fit; everything else about its configs is valid."""

    def __init__(self, w: Conv2d, mapped: MappedConfigs, epilogue: Sequence[EpilogueStep]) -> None:
        self.w, self.m = w, mapped
        self.all_ci, self.all_co = -(-w.in_channels // mapped.block_in), -(-w.out_channels // mapped.block_out)
        rows_in = (mapped.tile_h - 1) * w.strides[0] + w.kernel[0]
        columns_in = (mapped.tile_w - 1) * w.strides[1] + w.kernel[1]
        contexts = mapped.h_threads * mapped.oc_threads
        n_bias, n_residual = (sum(isinstance(step, kind) for step in epilogue) for kind in (Bias, Residual))
        self.taps, self.pixels = w.kernel[0] * w.kernel[1], mapped.tile_h * mapped.tile_w
        # Each context has its own part of every buffer.
        self.max_inp = mapped.inp // (contexts * rows_in * columns_in)
        self.max_wgt = np.minimum(mapped.wgt // contexts, MAX_SIZE) // self.taps
        max_acc = mapped.acc // (contexts * (self.pixels * (1 + n_residual) + n_bias))
        # DMA has two dimensions: a store, or a load of several input blocks, must fold into them.
        folds = (mapped.tile_w == w.out_width) | (mapped.tile_h == w.out_height)
        self.max_co = np.where(folds, np.minimum(max_acc, MAX_STEPS // self.pixels), np.minimum(max_acc, 1))
        self.max_co[self.pixels > MAX_STEPS] = 0
        folds_in = (rows_in == 1) | (rows_in == w.height) | (columns_in == w.width)
        self.max_ci = np.where(folds_in & (not any(w.padding)), self.max_inp, np.minimum(self.max_inp, 1))

    def __call__(self, tile_ci: Ints, tile_co: Ints) -> NDArray[np.bool_]:
        fits = (tile_ci <= self.max_ci) & (tile_co <= self.max_co) & (tile_ci * tile_co <= self.max_wgt)
        return np.asarray(fits & (self.all_co // np.maximum(tile_co, 1) % self.m.oc_threads == 0))


def _largest(extents: Ints, fits: Callable[[int], NDArray[np.bool_]]) -> Ints:
    """Return the largest divisor of each extent that fits, or 0."""
    largest = np.zeros(len(extents), dtype=np.int64)
    for size in sorted({size for extent in np.unique(extents).tolist() for size in divisors(extent)}):
        largest[(extents % size == 0) & fits(size)] = size
    return largest


Traffic = dict[str, NDArray[np.float64]]
"""The cycles of the GEMM core, ``gemm``, and of the bus for each tensor: ``inp``, ``wgt`` and ``out``."""


def traffic(w: Conv2d, columns: Columns, tile_co: NDArray[np.int64], bus_bytes: int) -> Traffic:
    """Return the cycles for computing and moving data of n configs, each of shape (n,).

    For each group of `tile_co` blocks of output channels, a tile loads its input pixels, including the halo, and its
    weights.
    """
    sizes = {name: np.asarray(values, dtype=np.float64) for name, values in columns.items()}
    pixels, taps = sizes["tile_h"] * sizes["tile_w"], w.kernel[0] * w.kernel[1]
    inputs = ((sizes["tile_h"] - 1) * w.strides[0] + w.kernel[0]) * ((sizes["tile_w"] - 1) * w.strides[1] + w.kernel[1])
    blocks_ci, blocks_co = np.ceil(w.in_channels / sizes["tile_ci"]), np.ceil(w.out_channels / sizes["tile_co"])
    n_tiles = w.batch / sizes["tile_b"] * w.out_height * w.out_width / pixels
    loads = n_tiles * np.ceil(blocks_co / np.maximum(1, tile_co))
    return {
        "gemm": n_tiles * blocks_ci * blocks_co * pixels * taps,
        "inp": loads * blocks_ci * sizes["tile_b"] * sizes["tile_ci"] * inputs / bus_bytes,
        "wgt": n_tiles * blocks_ci * blocks_co * sizes["tile_ci"] * sizes["tile_co"] * taps / bus_bytes,
        "out": n_tiles * pixels * blocks_co * sizes["tile_b"] * sizes["tile_co"] / bus_bytes,
    }


@dataclass(frozen=True, eq=False)
class TileDescription:
    """The work of n configs and the shares of the buffers that they fill, as features of a surrogate.

    As AutoTVM's features of a GPU's memory do, the shares may show that a config cannot run.

    Attributes:
        values: the features by name, each of shape (n,).
    """

    values: Mapping[str, NDArray[np.float64]]

    @property
    def feature_names(self) -> list[str]:
        """The name of every column of `features`."""
        return list(self.values)

    def features(self) -> NDArray[np.float32]:
        """Return the features as log2(x + 1), shape (n, n_features)."""
        return np.log2(1 + np.stack(list(self.values.values()), axis=1)).astype(np.float32)


def describe_tiles(w: Conv2d, bus_bytes: int, columns: Columns) -> TileDescription:
    """Return the description of n configs.

    It is evaluated for each scored config, so only two buffers limit the blocks of a tile; `blocks_that_fit` has all
    limits.
    """
    sizes = {name: np.asarray(values, dtype=np.float64) for name, values in columns.items()}
    contexts, pixels = sizes["h_threading"] * sizes["oc_threading"], sizes["tile_h"] * sizes["tile_w"]
    inputs = ((sizes["tile_h"] - 1) * w.strides[0] + w.kernel[0]) * ((sizes["tile_w"] - 1) * w.strides[1] + w.kernel[1])
    block = sizes["tile_ci"] * sizes["tile_co"]
    # Bytes of one block of channels in all contexts; accumulators have four bytes.
    needed = {
        "inp": inputs * sizes["tile_b"] * sizes["tile_ci"],
        "wgt": w.kernel[0] * w.kernel[1] * block,
        "acc": 4 * pixels * sizes["tile_b"] * sizes["tile_co"],
    }
    shares = {f"{name}.share": contexts * each / 2 ** sizes[f"log_{name}_buff_size"] for name, each in needed.items()}
    tile_co = np.floor(1 / np.maximum(shares["wgt.share"], shares["acc.share"])).astype(np.int64)
    moved = {f"{name}.cycles": cycles for name, cycles in traffic(w, columns, tile_co, bus_bytes).items()}
    tiles = {"pixels": pixels, "inputs": inputs, "contexts": contexts, "block": block}
    return TileDescription({**moved, **tiles, **shares})


def min_cycles(w: Conv2d, columns: Columns, tile_co: NDArray[np.int64], bus_bytes: int) -> NDArray[np.float64]:
    """Return a lower bound on the cycles of n configs, shape (n,); the arguments are as for `traffic`.

    Two threads overlap computing and moving data; one thread alternates.
    """
    cycles = traffic(w, columns, tile_co, bus_bytes)
    loading = cycles["inp"] + cycles["wgt"] + cycles["out"]
    is_parallel = columns["h_threading"] * columns["oc_threading"] > 1
    return np.asarray(np.where(is_parallel, np.maximum(cycles["gemm"], loading), cycles["gemm"] + loading))
