"""The knobs of a direct convolution on CUDA and the loop nest of a config; needs no compiler.

The nest, outermost first: blocks; virtual threads; threads; the outer reduction, each step of which stages a tile of
data and a tile of weights in shared memory; the inner reduction; the inner tile, whose accumulators stay in registers.
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

VERSION = 1


@cache
def conv2d_space(limits: BlockLimits, w: Conv2d) -> Space:
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
        lambda columns: _usage(w, columns),
        lambda columns: _nest(w, columns),
        lambda columns: _merit(w, columns),
    )


def _merit(w: Conv2d, columns: Columns) -> NDArray[np.float64]:
    f, y, x = (columns[name] for name in ("tile_f", "tile_y", "tile_x"))
    filters, pixels = f[:, 1:].prod(axis=1), y[:, 1:].prod(axis=1) * x[:, 1:].prod(axis=1)
    merit = tiling.merit(_usage(w, columns), f[:, 2], filters, pixels)
    steps = columns["tile_rc"][:, 1] * columns["tile_ry"][:, 1] * columns["tile_rx"][:, 1]
    merit += tiling.merit_of_stage(steps, columns["tile_rc"][:, 1])
    return np.asarray(merit + tiling.merit_of_unrolling(columns))


def _usage(w: Conv2d, columns: Columns) -> Usage:
    f, y, x = columns["tile_f"], columns["tile_y"], columns["tile_x"]
    rc, ry, rx = (columns[f"tile_{name}"][:, 1] for name in ("rc", "ry", "rx"))
    rows = tiling.window(y[:, 1:].prod(axis=1), w.strides[0], ry, w.dilation[0])
    row_columns = tiling.window(x[:, 1:].prod(axis=1), w.strides[1], rx, w.dilation[1])
    data, weight = rows * row_columns * rc, f[:, 1:].prod(axis=1) * ry * rx * rc
    return tiling.usage((y, x, f), w.batch * w.groups, shared_bytes(data, weight))


def _nest(w: Conv2d, columns: Columns) -> LoopNest:
    spatial = [("y", columns["tile_y"]), ("x", columns["tile_x"]), ("f", columns["tile_f"])]
    reduction = [(name, columns[f"tile_{name}"]) for name in ("rc", "ry", "rx")]
    leading = [("n", w.batch), ("g", w.groups)]
    loops = tiling.loops(leading, spatial, reduction, columns["auto_unroll_max_step"])
    channels, filters = w.in_channels // w.groups, w.out_channels // w.groups
    rows, row_columns = {"y": w.strides[0], "ry": w.dilation[0]}, {"x": w.strides[1], "rx": w.dilation[1]}
    height, width = w.height + w.padding[0] + w.padding[2], w.width + w.padding[1] + w.padding[3]
    data = Buffer(
        "data", (w.batch, height, width, w.in_channels), ({"n": 1}, rows, row_columns, {"g": channels, "rc": 1})
    )
    weight = Buffer(
        "weight", (*w.kernel, channels, w.out_channels), ({"ry": 1}, {"rx": 1}, {"rc": 1}, {"g": filters, "f": 1})
    )
    shape = (w.batch, w.out_height, w.out_width, w.out_channels)
    out = Buffer("out", shape, ({"n": 1}, {"y": 1}, {"x": 1}, {"g": filters, "f": 1}))
    return LoopNest(loops, (data, weight, out))
