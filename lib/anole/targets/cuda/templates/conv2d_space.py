"""The knobs of a direct convolution on CUDA and the loop nest of a config; needs no compiler.

The nest, outermost first: blocks; virtual threads; threads; the outer reduction, each step of which stages a tile of
data and a tile of weights in shared memory; the inner reduction; the inner tile, whose accumulators stay in registers.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from anole.space import Space, option_knob, split_knob
from anole.space.loops import Buffer, LoopNest
from anole.space.space import Columns
from anole.targets.cuda.device.architecture import BlockLimits
from anole.targets.cuda.device.multiprocessor import Multiprocessor
from anole.targets.cuda.templates import tiling
from anole.targets.cuda.templates.memory import widths
from anole.targets.cuda.templates.roofline import Kernel, speed
from anole.targets.cuda.templates.staged import Operand, Reduction, staged_kernel
from anole.targets.cuda.templates.usage import Usage, limited_space, shared_bytes
from anole.targets.cuda.templates.windows import PADDING, convolution_bytes, window_reads, windows
from anole.task import Conv2d

VERSION = 1


@cache
def conv2d_space(limits: BlockLimits, gpu: Multiprocessor, w: Conv2d) -> Space:
    """Returns the space of a convolution.

    Knobs, with the papers' names (Chameleon, Table 1) and AutoTVM's values: ``tile_f``, ``tile_y``, ``tile_x`` split
    into (block, virtual thread, thread, inner), where f counts the filters of one group; ``tile_rc``, ``tile_ry``,
    ``tile_rx`` split into (outer, inner); ``auto_unroll_max_step`` is the most steps of an unrolled body, and
    ``unroll_explicit`` says whether TVM unrolls it or the CUDA compiler is asked to.
    """
    knobs = [
        split_knob("tile_f", w.out_channels // w.groups, 4, agent="spatial"),
        split_knob("tile_y", w.out_height, 4, agent="spatial"),
        split_knob("tile_x", w.out_width, 4, agent="spatial"),
        split_knob("tile_rc", w.in_channels // w.groups, 2, agent="reduction"),
        split_knob("tile_ry", w.kernel[0], 2, agent="reduction"),
        split_knob("tile_rx", w.kernel[1], 2, agent="reduction"),
        option_knob("auto_unroll_max_step", (0, 512, 1500)),
        option_knob("unroll_explicit", (0, 1)),
    ]
    return limited_space(
        limits,
        knobs,
        lambda columns: conv2d_usage(w, columns),
        lambda columns: _nest(w, columns),
        lambda columns: speed(gpu, conv2d_kernel(gpu, w, columns)),
    )


def conv2d_kernel(gpu: Multiprocessor, w: Conv2d, columns: Columns) -> Kernel:
    """Returns what the kernels of n configs do."""
    f, y, x = columns["tile_f"], columns["tile_y"], columns["tile_x"]
    rc, ry, rx = (columns[f"tile_{name}"] for name in ("rc", "ry", "rx"))
    steps, panel = rc[:, 1] * ry[:, 1] * rx[:, 1], f[:, 1:].prod(axis=1)
    unrolled = steps * f[:, 3] * y[:, 3] * x[:, 3] <= columns["auto_unroll_max_step"]
    rows, row_columns = windows(w, y, x, ry[:, 1], rx[:, 1])
    pixels, filters = y[:, 1] * y[:, 3] * x[:, 1] * x[:, 3], f[:, 1] * f[:, 3]
    none, channels = np.zeros_like(steps), rc[:, 1]
    data = Operand(
        rows * row_columns * channels,
        np.where(rc[:, 0] * w.groups == 1, row_columns * channels, channels),
        widths(channels),
        np.where(unrolled, window_reads(w, y, x, ry[:, 1], rx[:, 1]) * channels, pixels * steps),
        np.where(unrolled, widths(channels), 1),
        (none, x[:, 3] * w.strides[1] * channels, y[:, 3] * w.strides[0] * row_columns * channels),
        checks=PADDING if any(w.padding) else 0,
    )
    weight = Operand(
        panel * steps, channels * panel, widths(panel), filters * steps, widths(f[:, 3]), (f[:, 3], none, none)
    )
    reduction = Reduction(rc[:, 0] * ry[:, 0] * rx[:, 0], steps, unrolled)
    threads = (f[:, 2], x[:, 2], y[:, 2])
    run = f[:, 2] * f[:, 3]
    fresh = convolution_bytes(w) * np.ones(len(steps))
    return staged_kernel(
        gpu, conv2d_usage(w, columns), threads, pixels * filters, (data, weight), reduction, run, fresh
    )


def conv2d_usage(w: Conv2d, columns: Columns) -> Usage:
    """Returns the usage of n configs."""
    f, y, x = columns["tile_f"], columns["tile_y"], columns["tile_x"]
    rc, ry, rx = (columns[f"tile_{name}"][:, 1] for name in ("rc", "ry", "rx"))
    rows, row_columns = windows(w, y, x, ry, rx)
    data, weight = rows * row_columns * rc, f[:, 1:].prod(axis=1) * ry * rx * rc
    return tiling.usage((y, x, f), w.batch * w.groups, shared_bytes(data, weight))


def _nest(w: Conv2d, columns: Columns) -> LoopNest:
    spatial = [("y", columns["tile_y"]), ("x", columns["tile_x"]), ("f", columns["tile_f"])]
    reduction = [(name, columns[f"tile_{name}"]) for name in ("rc", "ry", "rx")]
    leading = [("n", w.batch), ("g", w.groups)]
    loops = tiling.loops(leading, spatial, reduction, columns["auto_unroll_max_step"])
    channels, filters = w.in_channels // w.groups, w.out_channels // w.groups
    rows, row_columns = {"y": w.strides[0], "ry": w.dilation[0]}, {"x": w.strides[1], "rx": w.dilation[1]}
    shape = (w.batch, w.padded_height, w.padded_width, w.in_channels)
    data = Buffer("data", shape, ({"n": 1}, rows, row_columns, {"g": channels, "rc": 1}))
    weight = Buffer(
        "weight", (*w.kernel, channels, w.out_channels), ({"ry": 1}, {"rx": 1}, {"rc": 1}, {"g": filters, "f": 1})
    )
    shape = (w.batch, w.out_height, w.out_width, w.out_channels)
    out = Buffer("out", shape, ({"n": 1}, {"y": 1}, {"x": 1}, {"g": filters, "f": 1}))
    return LoopNest(loops, (data, weight, out))
