"""Direct convolution on the CPU: NHWC data, weights packed into register-wide panels.

The nest, outermost first: a parallel loop over (batch, channels, rows); the tile loops inside a chunk; the
reduction; the register tile, whose accumulators never leave the vector registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from anole.record import Config
from anole.space import Constraint, Knob, Space, option_knob, split_knob
from anole.space.space import Columns
from anole.targets.base import ANCHOR
from anole.targets.cpu import nest
from anole.targets.cpu.vector_unit import VectorUnit
from anole.task import Conv2d

_FMA_LATENCY_HIDDEN = 8
"""Independent multiply-adds in flight that keep two pipes of latency four busy."""

_TILE_ORDERS = {"fyx": (0, 1, 2), "yfx": (1, 0, 2), "yxf": (1, 2, 0)}


@dataclass(frozen=True)
class Conv2dTemplate:
    """Direct convolution for a vector unit and a number of threads.

    Knobs, with the papers' names (Chameleon, Table 1): ``tile_f`` into (parallel, tile, register), ``tile_y`` into
    (parallel, tile, register), ``tile_x`` into (tile, register); ``tile_rc``, ``tile_ry``, ``tile_rx`` into (outer,
    inner): all outer parts are outside of all inner ones; ``auto_unroll_max_step``, how many vector operations an
    unrolled reduction body may have, and ``unroll_explicit``, whether TVM unrolls it or LLVM may. And the CPU's own:
    ``parallel_order``, ``tile_order``, and ``pad_at``, where the zero border is written.
    """

    unit: VectorUnit
    threads: int
    version: int = 1

    def space(self, workload: Conv2d) -> Space:
        """Returns the knobs of a convolution."""
        return _space(self.unit, self.threads, workload)

    def default_config(self, workload: Conv2d) -> Config:
        """Returns the config of many drawn ones that fills the registers best and reduces longest in one go."""
        space = self.space(workload)
        vectors = space.sample(2048, np.random.default_rng(0))
        columns = space.columns(vectors)
        accumulators = _accumulators(self.unit, columns)
        merit = accumulators + np.log2(columns["tile_rc"][:, 1]) + 4 * (columns["auto_unroll_max_step"] == 0)
        merit += 4 * (columns["pad_at"] == "parallel") + (columns["tile_rx"][:, 1] == 1)
        return space.config(vectors[int(np.argmax(merit))])

    def pack_weight(self, workload: Conv2d, config: Config, weight: te.Tensor) -> te.Tensor:
        """Returns HWIO weights as (panels, kernel height, kernel width, in, width of a panel), zero-padded."""
        width = config["tile_f"][2]
        kernel_height, kernel_width, in_channels, out_channels = (int(extent) for extent in weight.shape)
        shape = (_filters(self.unit, workload) // width, kernel_height, kernel_width, in_channels, width)

        def panel(fo: Any, ry: Any, rx: Any, rc: Any, fi: Any) -> Any:
            f = fo * width + fi
            value = weight[ry, rx, rc, f]
            if shape[0] * width == out_channels:
                return value
            return tirx.if_then_else(f < out_channels, value, tirx.const(0, workload.dtype))

        return te.compute(shape, panel, name="packed_weight")

    def compute(self, workload: Conv2d, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Returns the convolution of NHWC data with packed weights, as NHWC."""
        w, width = workload, config["tile_f"][2]
        filters = _filters(self.unit, w)
        padded = _pad(w, data) if any(w.padding) else data
        channels = w.in_channels // w.groups
        rc = te.reduce_axis((0, channels), "rc")
        ry = te.reduce_axis((0, w.kernel[0]), "ry")
        rx = te.reduce_axis((0, w.kernel[1]), "rx")

        def point(n: Any, y: Any, x: Any, f: Any) -> Any:
            channel = rc if w.groups == 1 else f // (w.out_channels // w.groups) * channels + rc
            row, column = y * w.strides[0] + ry * w.dilation[0], x * w.strides[1] + rx * w.dilation[1]
            value = padded[n, row, column, channel] * packed[f // width, ry, rx, rc, f % width]
            return te.sum(value, axis=[rc, ry, rx])

        shape = (w.batch, w.out_height, w.out_width)
        conv = te.compute((*shape, filters), point, name="conv2d", attrs={ANCHOR: w.operator})
        if filters == w.out_channels:
            return conv
        return te.compute((*shape, w.out_channels), lambda n, y, x, f: conv[n, y, x, f], name="crop")

    def schedule(self, func: tirx.PrimFunc, workload: Conv2d, config: Config) -> tirx.PrimFunc:
        """Returns the function with the nest that the config says."""
        sch = s_tir.Schedule(func)
        anchor = nest.find_anchor(sch)
        epilogue = nest.join_epilogue(sch, anchor)
        n, y, x, f, rc, ry, rx = sch.get_loops(anchor)
        width = config["tile_f"][2]
        lanes = _vector_width(self.unit, width)

        f_parallel, f_tile, f_register, f_vector = sch.split(f, [*config["tile_f"][:2], width // lanes, lanes])
        y_parallel, y_tile, y_register = sch.split(y, config["tile_y"])
        x_tile, x_register = sch.split(x, config["tile_x"])
        outer, inner = zip(
            *(sch.split(axis, config[f"tile_{name}"]) for axis, name in ((rc, "rc"), (ry, "ry"), (rx, "rx"))),
            strict=True,
        )
        chunks = [f_parallel, y_parallel] if config["parallel_order"] == "fy" else [y_parallel, f_parallel]
        tiles = [(f_tile, y_tile, x_tile)[axis] for axis in _TILE_ORDERS[config["tile_order"]]]
        reduction, registers = [*outer, *inner], [y_register, x_register, f_register]
        sch.reorder(n, *chunks, *tiles, *reduction, *registers, f_vector)

        parallel = sch.fuse(n, *chunks)
        sch.reverse_compute_at(epilogue, tiles[-1], preserve_unit_loops=True)
        self._place_padding(sch, config["pad_at"], parallel)
        sch.parallel(parallel)
        nest.vectorize_epilogue(sch, epilogue, 4, self.unit.lanes)
        sch.vectorize(f_vector)
        for loop in registers:
            sch.unroll(loop)
        if config["unroll_explicit"]:
            steps = config["tile_y"][2] * config["tile_x"][1] * (width // lanes)
            nest.unroll_reduction(sch, inner, steps, config["auto_unroll_max_step"])
        sch.decompose_reduction(anchor, reduction[0])
        return nest.scheduled(sch)

    def _place_padding(self, sch: s_tir.Schedule, pad_at: str, parallel: Any) -> None:
        pad = nest.find_block(sch, "pad")
        if pad is None:
            return
        if pad_at == "inline":
            sch.compute_inline(pad)
        elif pad_at == "parallel":
            sch.compute_at(pad, parallel)
            nest.vectorize_copy(sch, pad, self.unit.lanes)
        else:
            nest.vectorize_copy(sch, pad, self.unit.lanes)
            batch, row = sch.get_loops(pad)[:2]
            sch.parallel(sch.fuse(batch, row))


def _pad(w: Conv2d, data: te.Tensor) -> te.Tensor:
    top, left, bottom, right = w.padding
    shape = (w.batch, w.height + top + bottom, w.width + left + right, w.in_channels)

    def point(n: Any, y: Any, x: Any, c: Any) -> Any:
        inside = tirx.all(y >= top, y < w.height + top, x >= left, x < w.width + left)
        return tirx.if_then_else(inside, data[n, y - top, x - left, c], tirx.const(0, w.dtype))

    return te.compute(shape, point, name="pad")


def _filters(unit: VectorUnit, w: Conv2d) -> int:
    """The output channels that are computed: whole registers of them, unless groups forbid it."""
    return unit.padded(w.out_channels) if w.groups == 1 else w.out_channels


def _vector_width(unit: VectorUnit, width: int) -> int:
    return next(lanes for lanes in range(min(unit.lanes, width), 0, -1) if width % lanes == 0)


def _accumulators(unit: VectorUnit, columns: Columns) -> NDArray[np.int64]:
    """How many vector registers hold accumulators, shape (n,)."""
    vectors = -(-columns["tile_f"][:, 2] // unit.lanes)
    return np.asarray(columns["tile_y"][:, 2] * columns["tile_x"][:, 1] * vectors)


def _most_accumulators(knobs: list[Knob], unit: VectorUnit) -> int:
    """The most accumulators that any register tile of the knobs can have within the registers."""
    f, y, x = (sorted({split[-1] for split in knob.values}) for knob in knobs[:3])
    vectors = (-(-width // unit.lanes) for width in f)
    tiles = [(v, v * rows * columns) for v in vectors for rows in y for columns in x]
    return max(accumulators for v, accumulators in tiles if accumulators + v + 1 <= unit.registers)


@cache
def _space(unit: VectorUnit, threads: int, w: Conv2d) -> Space:
    filters = _filters(unit, w)
    depthwise = w.groups == w.in_channels == w.out_channels
    # A register must not mix channels of two groups, which read different inputs.
    alike = filters if w.groups == 1 or depthwise else w.out_channels // w.groups
    widest = unit.lanes * unit.registers // 4

    def whole_registers(split: tuple[int, ...]) -> bool:
        return split[2] <= widest and alike % split[2] == 0 and (w.groups > 1 or split[2] % unit.lanes == 0)

    knobs = [
        split_knob("tile_f", filters, 3, whole_registers),
        split_knob("tile_y", w.out_height, 3, lambda split: split[2] <= 8),
        split_knob("tile_x", w.out_width, 2, lambda split: split[1] <= unit.registers),
        split_knob("tile_rc", w.in_channels // w.groups, 2),
        split_knob("tile_ry", w.kernel[0], 2),
        split_knob("tile_rx", w.kernel[1], 2),
        option_knob("auto_unroll_max_step", (0, 64, 512)),
        option_knob("unroll_explicit", (0, 1)),
        option_knob("parallel_order", ("fy", "yf")),
        option_knob("tile_order", tuple(_TILE_ORDERS)),
        option_knob("pad_at", ("inline", "parallel", "root") if any(w.padding) else ("none",)),
    ]

    def registers_suffice(columns: Columns) -> NDArray[np.bool_]:
        vectors = -(-columns["tile_f"][:, 2] // unit.lanes)
        return np.asarray(_accumulators(unit, columns) + vectors + 1 <= unit.registers)

    def threads_are_fed(columns: Columns) -> NDArray[np.bool_]:
        chunks = w.batch * columns["tile_f"][:, 0] * columns["tile_y"][:, 0]
        return np.asarray(chunks >= min(threads, w.batch * w.out_height * (filters // unit.lanes or 1)))

    enough = min(_FMA_LATENCY_HIDDEN, _most_accumulators(knobs, unit))

    def latency_is_hidden(columns: Columns) -> NDArray[np.bool_]:
        return np.asarray(_accumulators(unit, columns) >= enough)

    return Space(
        knobs,
        [
            Constraint("the accumulators do not fit the vector registers", registers_suffice),
            Constraint("too few accumulators to hide the latency of a multiply-add", latency_is_hidden),
            Constraint("fewer parallel chunks than threads", threads_are_fed),
        ],
    )
