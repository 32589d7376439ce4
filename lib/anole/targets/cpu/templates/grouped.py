"""Grouped convolution on the CPU: NHWC data, vectors over the filters of adjacent groups."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from tvm import s_tir, te, tirx

from anole.ir.nodes import chosen, with_loop, with_values
from anole.record import Config
from anole.targets.cpu.templates.convolution import ConvolutionTemplate
from anole.targets.cpu.templates.grouped_space import Bundle, n_bundles
from anole.targets.shared import anchor
from anole.task import Conv2d


class GroupedTemplate(ConvolutionTemplate):
    """Grouped convolution with few filters per group; see `grouped_space` for its knobs."""

    def compute(self, workload: Conv2d, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Convolve NHWC data with packed weights, as NHWC."""
        w, bundle = workload, Bundle.of(self.unit, workload)
        channels, filters = (n_bundles(self.unit, w) * number for number in (bundle.channels, bundle.filters))

        def first_channel(f: Any) -> Any:
            group = tirx.min(f % bundle.filters // bundle.group_filters, bundle.groups - 1)
            return f // bundle.filters * bundle.channels + group * bundle.group_channels

        size = (prod(config["tile_y"]), prod(config["tile_x"]), filters)
        conv = anchor.convolve(w, anchor.pad(w, data, channels), packed, size, "grouped", first_channel)
        return anchor.crop(conv, w.batch, w.out_height, w.out_width, w.out_channels)

    def schedule(self, func: tirx.PrimFunc, workload: Conv2d, config: Config) -> tirx.PrimFunc:
        """Schedule the function with the config's loop nest."""
        bundle, tiled = Bundle.of(self.unit, workload), self.tile(func, config, self.unit.lanes)
        rc, ry, rx = tiled.reduction
        rows, columns, vectors = tiled.registers
        register = {"f": [vectors], "p": [rows, columns], "r": [rx]}
        tiled = replace(
            tiled,
            reduction=[ry, rc] if bundle.is_shuffled else [rc, ry],
            registers=[loop for name in config["register_order"] for loop in register[name]],
            steps=tiled.steps * workload.kernel[1],
        )
        tiled.arrange("pad", config["pad_at"], self.unit.lanes, self.unit.lanes)
        if bundle.is_shuffled:
            tiled.sch.unroll(rc)
        func = tiled.finish(tiled.reduction, config["auto_unroll_max_step"])
        vector = tiled.sch.get(tiled.sch.get_loops(tiled.block)[-1])
        return join_groups(func, vector, bundle)


def join_groups(func: tirx.PrimFunc, loop: tirx.For, bundle: Bundle) -> tirx.PrimFunc:
    """Replace the vectorized loop over filters by one vector step across a bundle's groups.

    The compiler would gather the lanes' inputs one by one. This step loads and blends one value per group or, if that
    takes fewer steps, shuffles the lanes from the channels of all groups. The loop's block must add a product of
    data and weight; the reduction over channels must be unrolled if the bundle is shuffled.
    """
    return with_loop(func, loop, lambda filters: _vector_step(filters, bundle))


def _vector_step(loop: tirx.For, bundle: Bundle) -> tirx.Stmt:
    realize = loop.body
    block = realize.block
    total, product = block.body.value.a, block.body.value.b
    data, weight, rc = product.a, product.b, block.iter_vars[4].var
    filters = block.body.indices[-1]
    value = _lane_inputs(data, filters, rc, bundle) * _vector_from(weight, weight.indices[-1], bundle.lanes)
    new_total = _vector_from(total, filters, bundle.lanes) + value
    indices = [*block.body.indices[:-1], tirx.Ramp(filters, 1, bundle.lanes)]
    body = tirx.BufferStore(block.body.buffer, new_total, indices)
    parts = (block.reads, block.writes, block.name_hint, body, None, block.alloc_buffers, block.match_buffers)
    step = s_tir.SBlock(block.iter_vars, *parts, block.annotations)
    first_lane = {loop.loop_var: tirx.IntImm(loop.loop_var.ty.dtype, 0)}
    values = [with_values(value, first_lane) for value in realize.iter_values]
    return s_tir.SBlockRealize(values, realize.predicate, step)


def _lane_inputs(data: tirx.BufferLoad, filters: Any, rc: tirx.Var, bundle: Bundle) -> Any:
    """Return the lanes' inputs, selected by the bundle's vector; loops over vectors are unrolled."""
    first = tirx.floordiv(filters, bundle.filters) * bundle.channels
    select = _shuffle if bundle.is_shuffled else _blend
    vectors = [select(data, first, bundle.groups_of(vector), rc, bundle) for vector in range(bundle.vectors)]
    return chosen(tirx.floordiv(tirx.floormod(filters, bundle.filters), bundle.lanes), vectors)


def _blend(data: tirx.BufferLoad, first: Any, groups: list[int], rc: tirx.Var, bundle: Bundle) -> Any:
    """Blend one channel of each group into all lanes of the group."""
    lanes = bundle.lanes
    blended = None
    for group in sorted(set(groups), reverse=True):
        channel = _load(data, first + group * bundle.group_channels + rc)
        value = tirx.Broadcast(channel, lanes)
        before_next = tirx.Ramp(0, 1, lanes) < tirx.Broadcast(lanes - groups[::-1].index(group), lanes)
        blended = value if blended is None else tirx.Select(before_next, value, blended)
    return blended


def _shuffle(data: tirx.BufferLoad, first: Any, groups: list[int], rc: tirx.Var, bundle: Bundle) -> Any:
    """Shuffle the lanes' inputs from all channels of all groups."""
    channels = bundle.group_channels
    extent = (groups[-1] - groups[0] + 1) * channels
    source = _vector_from(data, first + groups[0] * channels, extent)
    # A TVM shuffle has no more result lanes than source lanes.
    sources = [source] * -(-bundle.lanes // extent)

    def shuffle_step(channel: int) -> Any:
        return tirx.Shuffle(
            sources, [tirx.IntImm("int32", (group - groups[0]) * channels + channel) for group in groups]
        )

    return chosen(rc, [shuffle_step(channel) for channel in range(channels)])


def _load(load: tirx.BufferLoad, last: Any) -> tirx.BufferLoad:
    return tirx.BufferLoad(load.source, [*load.indices[:-1], last])


def _vector_from(load: tirx.BufferLoad, last: Any, lanes: int) -> tirx.BufferLoad:
    return _load(load, tirx.Ramp(last, 1, lanes) if lanes > 1 else last)
