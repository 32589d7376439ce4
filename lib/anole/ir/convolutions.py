"""NHWC 2-d convolutions: layout attributes, and the window of kernel taps along each axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from tvm import ir

CHANNELS_LAST = {"data_layout": "NHWC", "kernel_layout": "HWIO", "out_layout": "NHWC"}
"""The layout attributes of an NHWC convolution."""


def is_channels_last(convolution: ir.Call) -> bool:
    """Whether a convolution's data, weight and result have channels last."""
    return all(getattr(convolution.attrs, name) == layout for name, layout in CHANNELS_LAST.items())


@dataclass(frozen=True)
class Taps:
    """The window of a convolution's taps along rows or columns.

    Attributes:
        first: offset of the first tap from the output's pixel; negative offsets are before it.
        taps: number of taps.
        dilation: distance of adjacent taps in pixels.
        after: padding after the last pixel.
    """

    first: int
    taps: int
    dilation: int
    after: int

    def index_of(self, inner: Taps) -> int:
        """Return the index of the tap at which a window inside this one starts."""
        return (inner.first - self.first) // self.dilation

    def union(self, other: Taps) -> Taps | None:
        """Return the smallest window with all taps of both windows, or None if the taps are not on a common grid."""
        dilation = max(self._min_dilation, other._min_dilation)
        # A single tap fits any dilation.
        is_on_grid = all(window.taps == 1 or window.dilation == dilation for window in (self, other))
        if not is_on_grid or (self.first - other.first) % dilation:
            return None
        first = min(self.first, other.first)
        last = max(window.first + (window.taps - 1) * dilation for window in (self, other))
        return Taps(first, (last - first) // dilation + 1, dilation, max(self.after, other.after))

    @property
    def _min_dilation(self) -> int:
        return self.dilation if self.taps > 1 else 1

    def without_idle_taps(self, size: int, outputs: int, stride: int) -> Taps:
        """Drop outer taps that read only padding, unless padding would become negative."""

        def meets_data(tap: int) -> bool:
            offset = self.first + tap * self.dilation
            output = max(0, -(offset // stride))
            return output < outputs and output * stride + offset < size

        useful = [tap for tap in range(self.taps) if meets_data(tap)] or [0, self.taps - 1]
        first = min(useful[0], -self.first // self.dilation)
        last = max(useful[-1], self.taps - 1 - self.after // self.dilation)
        after = self.after - (self.taps - 1 - last) * self.dilation
        dilation = self.dilation if last > first else 1
        return Taps(self.first + first * self.dilation, last - first + 1, dilation, after)


def taps_of(convolution: ir.Call, weight: NDArray[Any]) -> tuple[Taps, Taps]:
    """Return the windows of a convolution along rows and columns, given its weight."""
    attrs, pads = convolution.attrs, [int(pad) for pad in convolution.attrs.padding]
    rows, columns = (
        Taps(-before, taps, int(dilation), after)
        for before, after, taps, dilation in zip(pads[:2], pads[2:], weight.shape[:2], attrs.dilation, strict=True)
    )
    return rows, columns


def window_attributes(windows: Sequence[Taps]) -> dict[str, list[int]]:
    """Return the padding and dilation attributes for windows along rows and columns."""
    padding = [*(-window.first for window in windows), *(window.after for window in windows)]
    return {"padding": padding, "dilation": [window.dilation for window in windows]}
