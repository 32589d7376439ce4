"""The knobs of a depthwise convolution on CUDA and the loop nest of a config; needs no compiler.

The nest, outermost first: blocks, each of which stages its data and weights once; virtual threads; threads; the kernel;
the inner tile, whose accumulators stay in registers.
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
from anole.targets.cuda.templates.usage import Counts, Usage, limited_space, shared_bytes
from anole.targets.cuda.templates.windows import PADDING, convolution_bytes, window_reads, windows
from anole.task import Conv2d


def is_depthwise(w: Conv2d) -> bool:
    """Returns whether every channel is convolved with its own kernel."""
    return w.groups == w.in_channels == w.out_channels


@cache
def depthwise_space(limits: BlockLimits, gpu: Multiprocessor, w: Conv2d) -> Space:
    """Returns the space of a depthwise convolution.

    Knobs, as in AutoTVM's ``depthwise_conv2d_nchw.cuda``: ``tile_f``, ``tile_y``, ``tile_x`` split into (block, virtual
    thread, thread, inner), where f counts the channels; ``auto_unroll_max_step`` and ``unroll_explicit``.
    """
    knobs = [
        split_knob("tile_f", w.out_channels, 4, agent="spatial"),
        split_knob("tile_y", w.out_height, 4, agent="spatial"),
        split_knob("tile_x", w.out_width, 4, agent="spatial"),
        option_knob("auto_unroll_max_step", (0, 256, 1500)),
        option_knob("unroll_explicit", (0, 1)),
    ]
    return limited_space(
        limits,
        knobs,
        lambda columns: _usage(w, columns),
        lambda columns: _nest(w, columns),
        lambda columns: speed(gpu, depthwise_kernel(gpu, w, columns)),
    )


def depthwise_kernel(gpu: Multiprocessor, w: Conv2d, columns: Columns) -> Kernel:
    """Returns what the kernels of n configs do."""
    f, y, x = columns["tile_f"], columns["tile_y"], columns["tile_x"]
    ry, rx = _taps(w, len(f))
    panel, filters, steps = f[:, 1:].prod(axis=1), f[:, 1] * f[:, 3], ry * rx
    unrolled = steps * f[:, 3] * y[:, 3] * x[:, 3] <= columns["auto_unroll_max_step"]
    rows, row_columns = windows(w, y, x, ry, rx)
    pixels, none, width = y[:, 1] * y[:, 3] * x[:, 1] * x[:, 3], np.zeros_like(steps), widths(f[:, 3])
    data = Operand(
        rows * row_columns * panel,
        np.where(f[:, 0] == 1, row_columns * panel, panel),
        widths(panel),
        filters * np.where(unrolled, window_reads(w, y, x, ry, rx), pixels * steps),
        width,
        (f[:, 3], x[:, 3] * w.strides[1] * panel, y[:, 3] * w.strides[0] * row_columns * panel),
        checks=PADDING if any(w.padding) else 0,
    )
    weight = Operand(panel * steps, panel, widths(panel), filters * steps, width, (f[:, 3], none, none))
    threads = (f[:, 2], x[:, 2], y[:, 2])
    reduction = Reduction(np.ones_like(steps), steps, unrolled)
    run = f[:, 2] * f[:, 3]
    fresh = convolution_bytes(w) * np.ones(len(steps))
    return staged_kernel(gpu, _usage(w, columns), threads, pixels * filters, (data, weight), reduction, run, fresh)


def _taps(w: Conv2d, n: int) -> list[Counts]:
    """Returns the rows and columns of the kernel, shape (n,) each."""
    return [np.full(n, length) for length in w.kernel]


def _usage(w: Conv2d, columns: Columns) -> Usage:
    f, y, x = columns["tile_f"], columns["tile_y"], columns["tile_x"]
    ry, rx = _taps(w, len(f))
    rows, row_columns = windows(w, y, x, ry, rx)
    channels = f[:, 1:].prod(axis=1)
    staged = shared_bytes(rows * row_columns * channels, ry * rx * channels)
    return tiling.usage((y, x, f), w.batch, staged)


def _nest(w: Conv2d, columns: Columns) -> LoopNest:
    spatial = [("y", columns["tile_y"]), ("x", columns["tile_x"]), ("f", columns["tile_f"])]
    kernel = [(name, np.array([[1, length]])) for name, length in zip(("ry", "rx"), w.kernel, strict=True)]
    loops = tiling.loops([("n", w.batch)], spatial, kernel, columns["auto_unroll_max_step"])
    rows, row_columns = {"y": w.strides[0], "ry": w.dilation[0]}, {"x": w.strides[1], "rx": w.dilation[1]}
    shape = (w.batch, w.padded_height, w.padded_width, w.in_channels)
    data = Buffer("data", shape, ({"n": 1}, rows, row_columns, {"f": 1}))
    weight = Buffer("weight", (*w.kernel, w.out_channels), ({"ry": 1}, {"rx": 1}, {"f": 1}))
    shape = (w.batch, w.out_height, w.out_width, w.out_channels)
    return LoopNest(loops, (data, weight, Buffer("out", shape, ({"n": 1}, {"y": 1}, {"x": 1}, {"f": 1}))))
