"""Lower scheduled convolutions to accelerator programs, or reject a schedule with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from anole.errors import ConfigError
from anole.task import Conv2d
from anole_vta.geometry import Geometry, Memory
from anole_vta.isa import Alu, AluOpcode, Gemm, Load, Store, Uop, alu_uop
from anole_vta.simulator.activity import Module
from anole_vta.templates.program import Program, ProgramWriter

MAX_BORDER = 15
MAX_STEPS = (1 << 14) - 1
MAX_SIZE = (1 << 16) - 1

_LOAD, _COMPUTE, _STORE = Module.LOAD, Module.COMPUTE, Module.STORE


@dataclass(frozen=True)
class Schedule:
    """The tiling of a convolution, with the sizes of one tile.

    Attributes:
        tile_h, tile_w: rows and columns of outputs.
        tile_ci, tile_co: blocks of input and output channels.
        h_threads, oc_threads: virtual threads over tiles of rows and of output channels; each has its own part of every
        buffer, and can load while another computes.
    """

    tile_h: int
    tile_w: int
    tile_ci: int = 1
    tile_co: int = 1
    h_threads: int = 1
    oc_threads: int = 1


@dataclass(frozen=True)
class Immediate:
    """An epilogue step with an immediate, on every output."""

    opcode: AluOpcode
    imm: int


@dataclass(frozen=True)
class Bias:
    """An epilogue step that adds one value per channel, from the buffer ``bias``."""


@dataclass(frozen=True)
class Residual:
    """An epilogue step that adds a tensor of the output's shape, from the buffer ``residual``."""


EpilogueStep = Immediate | Bias | Residual

SHIFT_AND_CLIP: tuple[EpilogueStep, ...] = (
    Immediate(AluOpcode.SHR, 8),
    Immediate(AluOpcode.MIN, 127),
    Immediate(AluOpcode.MAX, 0),
)
"""The epilogue of VTA's own tuning tasks."""


@dataclass(frozen=True)
class _Loop:
    """A loop of a GEMM, with the index increments per iteration."""

    extent: int
    dst: int = 0
    src: int = 0
    wgt: int = 0


class _Tile(NamedTuple):
    """The indices of an output tile along each axis, or arrays of indices."""

    batch: Any
    row: Any
    channel: Any
    column: Any


class _Offsets(NamedTuple):
    """The DRAM offsets of a tile, in elements from the beginning of each buffer, or arrays of offsets.

    Attributes:
        data: the offset of the first input, as if the padding were stored.
        weight, bias: the offset of the first output channel.
        out: the offset of the first output; also for the residual.
    """

    data: Any
    weight: Any
    bias: Any
    out: Any


_DATA, _WEIGHT, _BIAS, _OUT = range(4)
"""The base addresses of instructions: indices of the fields of `_Offsets`."""


def lower_conv2d(
    workload: Conv2d, schedule: Schedule, geometry: Geometry, epilogue: Sequence[EpilogueStep] = SHIFT_AND_CLIP
) -> Program:
    """Lower a convolution to a program with the buffers ``data``, ``weight``, [``bias``, ``residual``,] ``out``.

    Layouts: data [N/B][C/BI][H][W][B][BI], weight [CO/BO][CI/BI][KH][KW][BO][BI], out [N/B][CO/BO][OH][OW][B][BO], and
    in int32, bias [CO/BO][B][BO] and residual like out.

    Raises:
        ConfigError: the accelerator cannot run the schedule; the message gives the reason.
    """
    return _Lowering(workload, schedule, geometry, epilogue).run()


def check_schedule(
    workload: Conv2d, schedule: Schedule, geometry: Geometry, epilogue: Sequence[EpilogueStep] = SHIFT_AND_CLIP
) -> None:
    """Raise ConfigError if the accelerator cannot run a schedule; the length of the program is not checked."""
    _Lowering(workload, schedule, geometry, epilogue)


class _Lowering:
    def __init__(self, w: Conv2d, schedule: Schedule, geometry: Geometry, epilogue: Sequence[EpilogueStep]) -> None:
        self.w, self.s, self.g, self.epilogue = w, schedule, geometry, epilogue
        self.blocks_n = _n_blocks("batch", w.batch, geometry.batch)
        self.blocks_ci = _n_blocks("input channels", w.in_channels, geometry.block_in)
        self.blocks_co = _n_blocks("output channels", w.out_channels, geometry.block_out)
        if w.groups != 1 or w.dilation != (1, 1):
            raise ConfigError("convolutions with groups or dilation are not supported")
        self.rows_in = (schedule.tile_h - 1) * w.strides[0] + w.kernel[0]
        self.columns_in = (schedule.tile_w - 1) * w.strides[1] + w.kernel[1]
        self.tile_inp = schedule.tile_ci * self.rows_in * self.columns_in
        self.tile_wgt = schedule.tile_co * schedule.tile_ci * w.kernel[0] * w.kernel[1]
        self.tile_out = schedule.tile_co * schedule.tile_h * schedule.tile_w
        self.contexts = schedule.h_threads * schedule.oc_threads
        self.n_bias, self.n_residual = (sum(isinstance(step, kind) for step in epilogue) for kind in (Bias, Residual))
        self._check()

    def _check(self) -> None:
        w, s, g = self.w, self.s, self.g
        for name, extent, size in (
            ("tile_h", w.out_height, s.tile_h),
            ("tile_w", w.out_width, s.tile_w),
            ("tile_ci", self.blocks_ci, s.tile_ci),
            ("tile_co", self.blocks_co, s.tile_co),
        ):
            if not 1 <= size <= extent or extent % size:
                raise ConfigError(f"{name} {size} does not divide {extent}")
        self.tiles_h, self.tiles_w = w.out_height // s.tile_h, w.out_width // s.tile_w
        self.tiles_ci, self.tiles_co = self.blocks_ci // s.tile_ci, self.blocks_co // s.tile_co
        if self.tiles_h % s.h_threads or self.tiles_co % s.oc_threads:
            raise ConfigError("thread split")
        self.border_rows = [
            n_outside(y * s.tile_h * w.strides[0] - w.padding[0], self.rows_in, w.height) for y in range(self.tiles_h)
        ]
        self.border_columns = [
            n_outside(column * s.tile_w * w.strides[1] - w.padding[1], self.columns_in, w.width)
            for column in range(self.tiles_w)
        ]
        self.out_rows, self.inp_rows = self._rows_of_outputs(), self._rows_of_inputs()
        if max(w.padding) > MAX_BORDER:
            raise ConfigError(f"a border of {max(w.padding)}; at most {MAX_BORDER} fit a load")
        if self.tile_out > MAX_STEPS or max(self.tile_wgt, w.height * w.width) > MAX_SIZE:
            raise ConfigError("a tile or a row is too large for the fields of an instruction")
        acc = self.tile_out * (1 + self.n_residual) + s.tile_co * self.n_bias
        inp, wgt, acc = (self.contexts * size for size in (self.tile_inp, self.tile_wgt, acc))
        if inp > g.depth(Memory.INP) or wgt > g.depth(Memory.WGT) or acc > g.depth(Memory.ACC):
            raise ConfigError(f"scratchpad overflow inp {inp} wgt {wgt} acc {acc}")

    def _rows_of_outputs(self) -> tuple[int, int, int]:
        """Return rows, columns and stride of an output tile; channels are separate rows."""
        w, s = self.w, self.s
        if s.tile_w == w.out_width:
            return s.tile_co, s.tile_h * s.tile_w, w.out_height * w.out_width
        if s.tile_co > 1 and s.tile_h < w.out_height:
            raise ConfigError("3D store DMA")
        return s.tile_co * s.tile_h, s.tile_w, w.out_width

    def _rows_of_inputs(self) -> tuple[int, int, int]:
        """Return rows, columns and stride of an input tile without padding."""
        w, s = self.w, self.s
        if any(w.padding) and s.tile_ci > 1:
            raise ConfigError("3D load DMA")
        return _fold((s.tile_ci, w.height * w.width), (self.rows_in, w.width), (self.columns_in, 1))

    def run(self) -> Program:
        w, s, g = self.w, self.s, self.g
        out_elements = self.blocks_n * self.blocks_co * w.out_height * w.out_width
        sizes = {
            "data": self.blocks_n * self.blocks_ci * w.height * w.width * g.element_bytes(Memory.INP),
            "weight": self.blocks_co * self.blocks_ci * w.kernel[0] * w.kernel[1] * g.element_bytes(Memory.WGT),
            "bias": self.blocks_co * g.element_bytes(Memory.ACC),
            "residual": out_elements * g.element_bytes(Memory.ACC),
            "out": out_elements * g.element_bytes(Memory.OUT),
        }
        for name, n_steps in (("bias", self.n_bias), ("residual", self.n_residual)):
            if not n_steps:
                del sizes[name]
        self.writer = writer = ProgramWriter(g, sizes)
        self._kernels: dict[tuple[int, bool], tuple[tuple[Uop, ...], Gemm]] = {}
        threads = [(h, co) for h in range(s.h_threads) for co in range(s.oc_threads)]
        for _ in threads:
            writer.signal(_STORE, _COMPUTE)
        self._write_tiles(threads)
        for _ in threads:
            writer.wait(_COMPUTE, _STORE)
        return writer.finish()

    def _write_tiles(self, threads: Sequence[tuple[int, int]]) -> None:
        """Write the code for all tiles, one in every context at a time."""
        s = self.s
        tiles = (self.blocks_n, self.tiles_h // s.h_threads, self.tiles_co // s.oc_threads, self.tiles_w)
        b, i0, co0, j = np.indices(tiles).reshape(4, -1)
        first = _Tile(b, i0 * s.h_threads, co0 * s.oc_threads, j)
        # Apart from addresses, the instructions of tiles can differ only in their borders.
        rows = [tuple(self.border_rows[row : row + s.h_threads]) for row in range(0, self.tiles_h, s.h_threads)]
        names = [("tile", rows[i], self.border_columns[k]) for i, k in zip(i0.tolist(), j.tolist(), strict=True)]

        def write(number: int) -> None:
            batch, row, channel, column = (int(axis[number]) for axis in first)
            self._tiles([_Tile(batch, row + h, channel + co, column) for h, co in threads], names[number][1:])

        self.writer.passages(names, np.stack(self._offsets(first), axis=-1), write)

    def _tiles(self, tiles: Sequence[_Tile], borders: tuple[object, ...]) -> None:
        """Write the code for one tile in every context."""
        writer = self.writer
        at = np.array([self._offsets(tiles[0])])
        writer.passages(["begin"], at, lambda _: self._reset(tiles))
        taps = self.w.kernel[0] * self.w.kernel[1]
        step = np.array([self.w.height * self.w.width, taps, 0, 0]) * self.s.tile_ci
        steps = at + np.arange(self.tiles_ci)[:, None] * step
        writer.passages([("step", *borders)] * self.tiles_ci, steps, partial(self._reduce, tiles))
        writer.passages(["end"], at, lambda _: self._finish_tiles(tiles))

    def _reset(self, tiles: Sequence[_Tile]) -> None:
        """Zero the outputs of a tile in every context."""
        for context in range(len(tiles)):
            self.writer.wait(_COMPUTE, _STORE)
            self._gemm(context, reset=True)
            self.writer.signal(_COMPUTE, _LOAD)

    def _reduce(self, tiles: Sequence[_Tile], k: int) -> None:
        """Compute one step of the reduction in every context."""
        for context, tile in enumerate(tiles):
            self.writer.wait(_LOAD, _COMPUTE)
            self._load(context, tile, k)
            self.writer.signal(_LOAD, _COMPUTE)
        for context in range(len(tiles)):
            self.writer.wait(_COMPUTE, _LOAD)
            self._gemm(context, reset=False)
            self.writer.signal(_COMPUTE, _LOAD)

    def _finish_tiles(self, tiles: Sequence[_Tile]) -> None:
        """Compute the epilogue of a tile in every context, and store the results."""
        writer = self.writer
        for _ in tiles:
            writer.wait(_LOAD, _COMPUTE)
        for context, tile in enumerate(tiles):
            self._epilogue(context, tile)
            writer.signal(_COMPUTE, _STORE)
        for context, tile in enumerate(tiles):
            writer.wait(_STORE, _COMPUTE)
            base = writer.base("out", Memory.OUT) + self._offsets(tile).out
            writer.add(Store(context * self.tile_out, base, *self.out_rows), _OUT)
            writer.signal(_STORE, _COMPUTE)

    def _offsets(self, tile: _Tile) -> _Offsets:
        w, s = self.w, self.s
        row = tile.row * s.tile_h * w.strides[0] - w.padding[0]
        column = tile.column * s.tile_w * w.strides[1] - w.padding[1]
        block = tile.batch * self.blocks_co + tile.channel * s.tile_co
        return _Offsets(
            data=(tile.batch * self.blocks_ci * w.height + row) * w.width + column,
            weight=tile.channel * s.tile_co * self.blocks_ci * w.kernel[0] * w.kernel[1],
            bias=tile.channel * s.tile_co,
            out=(block * w.out_height + tile.row * s.tile_h) * w.out_width + tile.column * s.tile_w,
        )

    def _gemm(self, context: int, reset: bool) -> None:
        uops, gemm = self._kernels.get((context, reset)) or self._kernels.setdefault(
            (context, reset), self._gemm_kernel(context, reset)
        )
        begin, end = self.writer.kernel(("gemm", reset, context), uops)
        self.writer.add(gemm._replace(uop_begin=begin, uop_end=end))

    def _gemm_kernel(self, context: int, reset: bool) -> tuple[tuple[Uop, ...], Gemm]:
        """Return the micro-operations of a context's GEMM, and the loops around them."""
        w, s = self.w, self.s
        (kernel_h, kernel_w), (stride_h, stride_w) = w.kernel, w.strides
        columns = self.columns_in
        tw = _Loop(s.tile_w, 1, stride_w)
        tco = _Loop(s.tile_co, s.tile_h * s.tile_w, 0, s.tile_ci * kernel_h * kernel_w)
        th = _Loop(s.tile_h, s.tile_w, stride_h * columns)
        if reset:
            loops = [_Loop(loop.extent, loop.dst) for loop in (tw, tco, th)]
            start = Uop(context * self.tile_out)
        else:
            tci = _Loop(s.tile_ci, 0, self.rows_in * columns, kernel_h * kernel_w)
            loops = [tci, tw, _Loop(kernel_w, 0, 1, 1), _Loop(kernel_h, 0, columns, kernel_w), tco, th]
            start = Uop(context * self.tile_out, context * self.tile_inp, context * self.tile_wgt)
        loops = [loop for loop in loops if loop.extent > 1]
        outer, inner = (*loops[:2], _Loop(1), _Loop(1))[:2]
        factors = (outer.dst, inner.dst, outer.src, inner.src, outer.wgt, inner.wgt)
        return tuple(_unroll(start, loops[2:])), Gemm(reset, 0, 0, outer.extent, inner.extent, *factors)

    def _load(self, context: int, tile: _Tile, k: int) -> None:
        """Load the inputs and weights of one step of the reduction."""
        w, s = self.w, self.s
        (above, below), (before, after) = self.border_rows[tile.row], self.border_columns[tile.column]
        at, pixels = self._offsets(tile), w.height * w.width
        base = self.writer.base("data", Memory.INP) + at.data + k * s.tile_ci * pixels + above * w.width + before
        if any(w.padding):
            y, x, stride = self.rows_in - above - below, self.columns_in - before - after, w.width
        else:
            y, x, stride = self.inp_rows
        first = context * self.tile_inp
        if x and y:
            self.writer.add(Load(Memory.INP, first, base, y, x, stride, above, below, before, after), _DATA)
        else:
            # A load of width 0 would load nothing, not even a border.
            half = self.rows_in // 2
            self.writer.add(Load(Memory.INP, first, 0, 0, self.columns_in, 0, half, self.rows_in - half))
        taps = w.kernel[0] * w.kernel[1]
        base = self.writer.base("weight", Memory.WGT) + at.weight + k * s.tile_ci * taps
        y, x, stride = _fold((s.tile_co, self.blocks_ci * taps), (s.tile_ci * taps, 1))
        self.writer.add(Load(Memory.WGT, context * self.tile_wgt, base, y, x, stride), _WEIGHT)

    def _epilogue(self, context: int, tile: _Tile) -> None:
        """Compute the epilogue of a tile."""
        s, writer = self.s, self.writer
        first, pixels = context * self.tile_out, s.tile_h * s.tile_w
        free = self.contexts * self.tile_out
        for number, step in enumerate(self.epilogue):
            if isinstance(step, Immediate):
                begin, end = writer.kernel((number, context), [alu_uop(first, first, self.g)])
                steps = (1, self.tile_out, 0, 1, 0, 1)
                writer.add(Alu(step.opcode, begin, end, *steps, use_imm=True, imm=step.imm))
            elif isinstance(step, Bias):
                base = writer.base("bias", Memory.ACC) + self._offsets(tile).bias
                at, free = free + context * s.tile_co, free + self.contexts * s.tile_co
                writer.add(Load(Memory.ACC, at, base, 1, s.tile_co, s.tile_co), _BIAS)
                begin, end = writer.kernel((number, context), [alu_uop(first, at, self.g)])
                writer.add(Alu(AluOpcode.ADD, begin, end, s.tile_co, pixels, pixels, 1, 1, 0))
            else:
                at, free = free + context * self.tile_out, free + self.contexts * self.tile_out
                base = writer.base("residual", Memory.ACC) + self._offsets(tile).out
                writer.add(Load(Memory.ACC, at, base, *self.out_rows), _OUT)
                begin, end = writer.kernel((number, context), [alu_uop(first, at, self.g)])
                writer.add(Alu(AluOpcode.ADD, begin, end, 1, self.tile_out, 0, 1, 0, 1))


def _unroll(start: Uop, loops: Sequence[_Loop]) -> Iterator[Uop]:
    """Unroll the loops that do not fit an instruction, given outermost first, into micro-operations."""
    indices = np.array([start], np.int64)
    for loop in loops:
        steps = np.arange(loop.extent)[:, None] * (loop.dst, loop.src, loop.wgt)
        indices = (indices[:, None] + steps).reshape(-1, 3)
    return map(Uop._make, indices.tolist())


def _fold(*dims: tuple[int, int]) -> tuple[int, int, int]:
    """Fold the dimensions of a load, given as (extent, stride) outermost first, into rows, columns and stride."""
    folded: list[tuple[int, int]] = []
    for extent, stride in reversed(dims):
        if extent == 1 and folded:
            continue
        if folded and stride == folded[-1][0] * folded[-1][1]:
            folded[-1] = (folded[-1][0] * extent, folded[-1][1])
        else:
            folded.append((extent, stride))
    if len(folded) > 2:
        raise ConfigError("3D load DMA")
    columns = folded[0][0]
    return (folded[1][0], columns, folded[1][1]) if len(folded) == 2 else (1, columns, columns)


def n_outside(first: int, size: int, extent: int) -> tuple[int, int]:
    """Return how many of `size` positions, starting at `first`, are before 0, and how many at or after `extent`."""
    before = min(size, max(0, -first))
    return before, min(size - before, max(0, first + size - extent))


def _n_blocks(name: str, extent: int, block: int) -> int:
    if extent % block:
        raise ConfigError(f"{extent} {name} are not a multiple of the block's {block}")
    return extent // block
