"""The knobs of a depthwise convolution on CUDA and the loop nest of a config; needs no compiler.

The nest, outermost first: blocks, each of which stages its data and weights once; virtual threads; threads; the kernel;
the inner tile, whose accumulators stay in registers.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from anole.space import Space, option_knob, split_knob
from anole.space.loops import Buffer, LoopNest
from anole.space.space import Columns
from anole.targets.cuda.device.architecture import BlockLimits
from anole.targets.cuda.templates import tiling
from anole.targets.cuda.templates.usage import Usage, limited_space, shared_bytes
from anole.task import Conv2d


def is_depthwise(w: Conv2d) -> bool:
    """Returns whether every channel is convolved with its own kernel."""
    return w.groups == w.in_channels == w.out_channels


@cache
def depthwise_space(limits: BlockLimits, w: Conv2d) -> Space:
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
        lambda columns: _merit(w, columns),
    )


def _merit(w: Conv2d, columns: Columns) -> NDArray[np.float64]:
    f, y, x = (columns[name] for name in ("tile_f", "tile_y", "tile_x"))
    filters, pixels = f[:, 1:].prod(axis=1), y[:, 1:].prod(axis=1) * x[:, 1:].prod(axis=1)
    merit = tiling.merit(_usage(w, columns), f[:, 2], filters, pixels) + np.log2(np.gcd(filters, 8))
    return np.asarray(merit + tiling.merit_of_unrolling(columns))


def _usage(w: Conv2d, columns: Columns) -> Usage:
    f, y, x = columns["tile_f"], columns["tile_y"], columns["tile_x"]
    taps = [np.full(len(f), length) for length in w.kernel]
    rows = tiling.window(y[:, 1:].prod(axis=1), w.strides[0], taps[0], w.dilation[0])
    row_columns = tiling.window(x[:, 1:].prod(axis=1), w.strides[1], taps[1], w.dilation[1])
    channels = f[:, 1:].prod(axis=1)
    staged = shared_bytes(rows * row_columns * channels, taps[0] * taps[1] * channels)
    return tiling.usage((y, x, f), w.batch, staged)


def _nest(w: Conv2d, columns: Columns) -> LoopNest:
    spatial = [("y", columns["tile_y"]), ("x", columns["tile_x"]), ("f", columns["tile_f"])]
    kernel = [(name, np.array([[1, length]])) for name, length in zip(("ry", "rx"), w.kernel, strict=True)]
    loops = tiling.loops([("n", w.batch)], spatial, kernel, columns["auto_unroll_max_step"])
    rows, row_columns = {"y": w.strides[0], "ry": w.dilation[0]}, {"x": w.strides[1], "rx": w.dilation[1]}
    height, width = w.height + w.padding[0] + w.padding[2], w.width + w.padding[1] + w.padding[3]
    data = Buffer("data", (w.batch, height, width, w.in_channels), ({"n": 1}, rows, row_columns, {"f": 1}))
    weight = Buffer("weight", (*w.kernel, w.out_channels), ({"ry": 1}, {"rx": 1}, {"f": 1}))
    shape = (w.batch, w.out_height, w.out_width, w.out_channels)
    return LoopNest(loops, (data, weight, Buffer("out", shape, ({"n": 1}, {"y": 1}, {"x": 1}, {"f": 1}))))
