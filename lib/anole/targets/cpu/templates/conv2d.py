"""Direct convolution on the CPU: NHWC data, weights packed into register-wide panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import accumulate
from math import prod
from operator import mul

from tvm import te, tirx

from anole.record import Config
from anole.targets.cpu.device.vector_unit import FLOAT_BYTES
from anole.targets.cpu.templates import nest
from anole.targets.cpu.templates.convolution import ConvolutionTemplate, separate_pixels
from anole.targets.cpu.templates.convolution_tiles import tile_order
from anole.targets.cpu.templates.register_tiles import CACHE_LINE_BYTES
from anole.targets.cpu.templates.skip_padding import has_skipped_steps, skip_padding_steps
from anole.targets.shared import anchor
from anole.task import Conv2d

_LINE = CACHE_LINE_BYTES // FLOAT_BYTES

_LINES_AT_ONCE = 64
"""Number of cache lines that may be prefetched without waiting, to amortize the cost of an iteration's prefetches."""


class Conv2dTemplate(ConvolutionTemplate):
    """Direct convolution; see `conv2d_space` for its knobs.

    The splits of a config may cover more filters, rows and columns than there are. The surplus is computed from zeros
    or from the last row or column, and discarded.
    """

    def compute(self, workload: Conv2d, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Convolve NHWC data with packed weights, as NHWC."""
        w, (rows, columns, filters) = workload, (prod(config[f"tile_{axis}"]) for axis in "yxf")
        conv = anchor.convolve(w, anchor.pad(w, data), packed, (rows, columns, filters))
        return anchor.crop(conv, w.batch, w.out_height, w.out_width, w.out_channels)

    def schedule(self, func: tirx.PrimFunc, workload: Conv2d, config: Config) -> tirx.PrimFunc:
        """Schedule the function with the config's loop nest."""
        tiled = self.tile(func, config, self.unit.lanes_of(config["tile_f"][2]))
        sch, names = tiled.sch, ("rc", "ry", "rx")
        splits = [sch.split(axis, config[f"tile_{name}"]) for axis, name in zip(tiled.reduction, names, strict=True)]
        outer, inner = zip(*splits, strict=True)
        separate_pixels(sch, workload, config)
        tiled = replace(tiled, reduction=[*outer, *inner])
        tiled.arrange("pad", config["pad_at"], self.unit.lanes, self.unit.lanes)
        func = tiled.finish(inner, config["unroll_explicit"] * config["auto_unroll_max_step"])
        if config.get("prefetch"):
            tiles = tiled.tiles[tile_order(config["tile_order"]).index(0) + 1 :]
            loops = [sch.get(loop) for loop in (*tiles, *outer, inner[0])]
            func = _prefetch_next(func, loops, len(tiles), prod(self.packed_shape(workload, config)[1:]))
        return skip_padding_steps(func, sch.get(inner[0]), workload) if has_skipped_steps(workload, config) else func


def _prefetch_next(func: tirx.PrimFunc, loops: Sequence[tirx.For], n_tiles: int, weights: int) -> tirx.PrimFunc:
    """Prefetch the next panel of weights while the nest reads the current one, a share per iteration.

    The share is prefetched in the outermost loop inside the first `n_tiles` loops in which it is small.
    """
    lines, counts = -(-weights // _LINE), list(accumulate((int(loop.extent) for loop in loops), mul))
    depth = next((at for at in range(n_tiles, len(loops)) if counts[at] * _LINES_AT_ONCE >= lines), len(loops) - 1)
    loops, iterations = loops[: depth + 1], counts[depth]
    iteration = reduce(lambda outer, loop: outer * loop.extent + loop.loop_var, loops, tirx.IntImm("int64", 0))
    begin, zero = iteration * lines // iterations * _LINE, tirx.IntImm("int64", 0)
    return nest.prefetch(
        func, loops[-1], lambda panel, *_: (panel + 1, zero, zero, zero, begin), -(-lines // iterations)
    )
