"""The spaces of direct and depthwise convolutions on CUDA: knobs, loop nests and speed models; needs no compiler.

The nest, outermost first: blocks; virtual threads; threads; the outer reduction, which stages a tile of data and a tile
of weights in shared memory in each step; the inner reduction; the inner tile, whose accumulators stay in registers. A
depthwise convolution has no outer reduction: each block stages its data and weights once.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from anole.space import Space
from anole.space.loops import Buffer, LoopNest
from anole.space.space import Columns
from anole.task import Conv2d
from anole_cuda.device.architecture import BlockLimits
from anole_cuda.device.gpu_specs import GpuSpecs
from anole_cuda.templates import tiling
from anole_cuda.templates.roofline import Kernel, speed, widths
from anole_cuda.templates.staged import Reduction, Staged, staged_kernel
from anole_cuda.templates.usage import FLOAT_BYTES, Counts, Usage, limited_space, shared_bytes

PADDING = 8
"""Instructions that check whether a copied value is padding."""


def is_depthwise(w: Conv2d) -> bool:
    """Whether every channel is convolved with its own filter."""
    return w.groups == w.in_channels == w.out_channels


@cache
def conv2d_space(limits: BlockLimits, gpu: GpuSpecs, w: Conv2d) -> Space:
    """Return the space of a convolution.

    Knobs, with the papers' names (Chameleon, Table 1) and AutoTVM's values: ``tile_f``, ``tile_y``, ``tile_x`` split
    into (block, virtual thread, thread, inner), where f counts the filters of one group; ``tile_rc``, ``tile_ry``,
    ``tile_rx`` split into (outer, inner); ``auto_unroll_max_step`` is the maximum number of steps of an unrolled body,
    and ``unroll_explicit`` whether TVM or the CUDA compiler unrolls it.

    A depthwise convolution has no splits of the reduction, as in AutoTVM's ``depthwise_conv2d_nchw.cuda``; its f counts
    the channels.
    """
    spatial = {"tile_f": w.out_channels, "tile_y": w.out_height, "tile_x": w.out_width}
    if is_depthwise(w):
        knobs = tiling.tile_knobs(spatial, {}, unrolled_steps=256)
    else:
        reduction = {"tile_rc": w.in_channels // w.groups, "tile_ry": w.kernel[0], "tile_rx": w.kernel[1]}
        knobs = tiling.tile_knobs({**spatial, "tile_f": w.out_channels // w.groups}, reduction)
    return limited_space(
        limits,
        knobs,
        lambda columns: conv2d_usage(w, columns),
        lambda columns: _nest(w, columns),
        lambda columns: speed(gpu, conv2d_kernel(gpu, w, columns)),
    )


def conv2d_kernel(gpu: GpuSpecs, w: Conv2d, columns: Columns) -> Kernel:
    """Return the modeled kernels of n configs."""
    f, y, x = columns["tile_f"], columns["tile_y"], columns["tile_x"]
    rc, ry, rx = _reduction(w, columns)
    steps, panel = rc[:, 1] * ry[:, 1] * rx[:, 1], f[:, 1:].prod(axis=1)
    is_unrolled = steps * f[:, 3] * y[:, 3] * x[:, 3] <= columns["auto_unroll_max_step"]
    rows, row_columns = windows(w, y, x, ry[:, 1], rx[:, 1])
    pixels, filters = y[:, 1] * y[:, 3] * x[:, 1] * x[:, 3], f[:, 1] * f[:, 3]
    reads = np.where(is_unrolled, window_reads(w, y, x, ry[:, 1], rx[:, 1]) * rc[:, 1], pixels * steps)
    zeros, width = np.zeros_like(steps), widths(f[:, 3])
    channels = _staged_channels(w, columns)
    if is_depthwise(w):
        has_all_channels, reads, data_width, between_filters = f[:, 0] == 1, filters * reads, width, f[:, 3]
    else:
        has_all_channels, between_filters = rc[:, 0] * w.groups == 1, zeros
        data_width = np.where(is_unrolled, widths(channels), 1)
    data = Staged(
        rows * row_columns * channels,
        np.where(has_all_channels, row_columns * channels, channels),
        widths(channels),
        reads,
        data_width,
        (between_filters, x[:, 3] * w.strides[1] * channels, y[:, 3] * w.strides[0] * row_columns * channels),
        checks=PADDING if any(w.padding) else 0,
    )
    weight = Staged(panel * steps, rc[:, 1] * panel, widths(panel), filters * steps, width, (f[:, 3], zeros, zeros))
    reduction = Reduction(rc[:, 0] * ry[:, 0] * rx[:, 0], steps, is_unrolled)
    threads = (f[:, 2], x[:, 2], y[:, 2])
    run = f[:, 2] * f[:, 3]
    usage, fresh = conv2d_usage(w, columns), convolution_bytes(w) * np.ones(len(steps))
    return staged_kernel(gpu, usage, threads, pixels * filters, (data, weight), reduction, run, fresh)


def conv2d_usage(w: Conv2d, columns: Columns) -> Usage:
    """Return the resource usage of n configs."""
    f, y, x = columns["tile_f"], columns["tile_y"], columns["tile_x"]
    rc, ry, rx = (split[:, 1] for split in _reduction(w, columns))
    rows, row_columns = windows(w, y, x, ry, rx)
    data, weight = rows * row_columns * _staged_channels(w, columns), f[:, 1:].prod(axis=1) * ry * rx * rc
    return tiling.usage((y, x, f), w.batch * (1 if is_depthwise(w) else w.groups), shared_bytes(data, weight))


def _reduction(w: Conv2d, columns: Columns) -> list[NDArray[np.int64]]:
    """Return the splits of channels, kernel rows and kernel columns into (outer, inner), shape (n, 2) each."""
    if is_depthwise(w):
        return [np.tile([1, length], (len(columns["tile_f"]), 1)) for length in (1, *w.kernel)]
    return [columns[f"tile_{name}"] for name in ("rc", "ry", "rx")]


def _staged_channels(w: Conv2d, columns: Columns) -> Counts:
    """Return the number of data channels that a block stages together, shape (n,)."""
    return columns["tile_f"][:, 1:].prod(axis=1) if is_depthwise(w) else columns["tile_rc"][:, 1]


def windows(w: Conv2d, y: NDArray[np.int64], x: NDArray[np.int64], ry: Counts, rx: Counts) -> tuple[Counts, Counts]:
    """Return the numbers of data rows and columns that a block stages together, shape (n,) each.

    `y` and `x` are four-way splits, shape (n, 4); `ry` and `rx` are the kernel's rows and columns in a stage.
    """
    rows = _window(y[:, 1:].prod(axis=1), w.strides[0], ry, w.dilation[0])
    return rows, _window(x[:, 1:].prod(axis=1), w.strides[1], rx, w.dilation[1])


def window_reads(w: Conv2d, y: NDArray[np.int64], x: NDArray[np.int64], ry: Counts, rx: Counts) -> Counts:
    """Return the number of pixels that a thread reads in an unrolled stage; overlapping windows share pixels."""
    rows = np.minimum(_window(y[:, 3], w.strides[0], ry, w.dilation[0]), y[:, 3] * ry)
    row_columns = np.minimum(_window(x[:, 3], w.strides[1], rx, w.dilation[1]), x[:, 3] * rx)
    return np.asarray(y[:, 1] * rows * x[:, 1] * row_columns)


def _window(outputs: Counts, stride: int, taps: Counts, dilation: int) -> Counts:
    """Return the number of inputs along an axis that adjacent outputs read through adjacent kernel taps."""
    return (outputs - 1) * stride + (taps - 1) * dilation + 1


def convolution_bytes(w: Conv2d) -> int:
    """Return the bytes of the data, the weights and the outputs."""
    data = w.batch * w.height * w.width * w.in_channels
    weights = w.kernel[0] * w.kernel[1] * w.in_channels // w.groups * w.out_channels
    return FLOAT_BYTES * (data + weights + w.batch * w.out_height * w.out_width * w.out_channels)


def _nest(w: Conv2d, columns: Columns) -> LoopNest:
    spatial = [(name, columns[f"tile_{name}"]) for name in ("y", "x", "f")]
    reduction = list(zip(("rc", "ry", "rx"), _reduction(w, columns), strict=True))
    channels, filters = w.in_channels // w.groups, w.out_channels // w.groups
    leading, data_c = [("n", w.batch), ("g", w.groups)], {"g": channels, "rc": 1}
    weight_c, out_c = {"rc": 1}, {"g": filters, "f": 1}
    if is_depthwise(w):
        leading, reduction, data_c, weight_c, out_c = leading[:1], reduction[1:], {"f": 1}, {}, {"f": 1}
    loops = tiling.loops(leading, spatial, reduction, columns["auto_unroll_max_step"])
    rows, row_columns = {"y": w.strides[0], "ry": w.dilation[0]}, {"x": w.strides[1], "rx": w.dilation[1]}
    shape = (w.batch, w.padded_height, w.padded_width, w.in_channels)
    data = Buffer("data", shape, ({"n": 1}, rows, row_columns, data_c))
    weight = Buffer("weight", (*w.kernel, channels, w.out_channels), ({"ry": 1}, {"rx": 1}, weight_c, out_c))
    shape = (w.batch, w.out_height, w.out_width, w.out_channels)
    return LoopNest(loops, (data, weight, Buffer("out", shape, ({"n": 1}, {"y": 1}, {"x": 1}, out_c))))
