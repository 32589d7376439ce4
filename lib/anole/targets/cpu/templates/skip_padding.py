"""Skipping of direct convolution steps that would multiply only padding: their share, and the code that skips them.

A step is the multiplications of one register tile of outputs with one group of kernel taps.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anole.record import Config
from anole.space.space import Columns
from anole.task import Conv2d

if TYPE_CHECKING:
    from tvm import tirx

_MIN_PADDING_SHARE = 0.25
"""Minimum share of multiplications with padding for which steps are skipped."""


class _Axis(NamedTuple):
    """A convolution along its rows or columns."""

    size: int
    outputs: int
    taps: int
    stride: int
    dilation: int
    before: int


def skips(w: Conv2d) -> bool:
    """Whether enough multiplications are with padding to make skipping steps worthwhile."""
    return data_share(w) <= 1 - _MIN_PADDING_SHARE


def data_share(w: Conv2d) -> float:
    """Return the share of multiplications with data rather than padding."""
    rows, columns = _axes(w)
    return _share(rows, 1, 1) * _share(columns, 1, 1)


def active_share(w: Conv2d, columns: Columns) -> NDArray[np.float64]:
    """Return the share of steps that are not skipped, shape (n,) for n configs of a convolution that `skips`."""
    rows, row_columns = _axes(w)
    return _shares(rows, columns["tile_y"][:, 2], columns["tile_ry"][:, 1]) * _shares(
        row_columns, columns["tile_x"][:, 1], columns["tile_rx"][:, 1]
    )


def has_skipped_steps(w: Conv2d, config: Config) -> bool:
    """Whether a config of a convolution has steps that are skipped."""
    columns = {name: np.array([config[name]]) for name in ("tile_y", "tile_x", "tile_ry", "tile_rx")}
    return skips(w) and bool(active_share(w, columns)[0] < 1)


def skip_padding_steps(func: tirx.PrimFunc, loop: tirx.For, w: Conv2d) -> tirx.PrimFunc:
    """Run a loop only where its multiplications include data.

    The loop must be inside the loops over tiles and groups of taps, and contain exactly one step. Its only block must
    have the iteration variables (n, y, x, f, rc, ry, rx).
    """
    from tvm import s_tir, tirx

    from anole.ir.nodes import collect, with_loop, with_values

    (realize,) = collect(loop, s_tir.SBlockRealize)
    inner_loops = collect(loop, tirx.For)
    first = {inner.loop_var: tirx.IntImm(inner.loop_var.ty.dtype, 0) for inner in inner_loops}
    last = {inner.loop_var: tirx.IntImm(inner.loop_var.ty.dtype, int(inner.extent) - 1) for inner in inner_loops}

    conditions = []
    for axis, output, tap in zip(_axes(w), (1, 2), (5, 6), strict=True):
        position = realize.iter_values[output] * axis.stride + realize.iter_values[tap] * axis.dilation
        conditions += [
            with_values(position, last) >= axis.before,
            with_values(position, first) < axis.before + axis.size,
        ]
    return with_loop(func, loop, lambda step: tirx.IfThenElse(tirx.all(*conditions), step, None))


def _axes(w: Conv2d) -> tuple[_Axis, _Axis]:
    return (
        _Axis(w.height, w.out_height, w.kernel[0], w.strides[0], w.dilation[0], w.padding[0]),
        _Axis(w.width, w.out_width, w.kernel[1], w.strides[1], w.dilation[1], w.padding[1]),
    )


def _shares(axis: _Axis, outputs: NDArray[np.int64], taps: NDArray[np.int64]) -> NDArray[np.float64]:
    pairs, indices = np.unique(np.column_stack([outputs, taps]), axis=0, return_inverse=True)
    return np.array([_share(axis, int(tile), int(group)) for tile, group in pairs])[indices.ravel()]


@cache
def _share(axis: _Axis, outputs: int, taps: int) -> float:
    """Return the share of steps that include data, for tiles of `outputs` outputs and groups of `taps` taps."""
    first = np.arange(0, axis.outputs, outputs)[:, None] * axis.stride
    first = first + np.arange(0, axis.taps, taps) * axis.dilation - axis.before
    last = first + (outputs - 1) * axis.stride + (taps - 1) * axis.dilation
    return float(((last >= 0) & (first < axis.size)).mean())
