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
class Window:
    """The window of a convolution's taps along rows or columns.

    Attributes:
        first: input pixel that the first tap of output 0 reads; -first is the padding before the first pixel.
        n_taps: number of taps.
        dilation: distance of adjacent taps in pixels. Tap k of output i reads pixel i * stride + first + k * dilation.
        pad_after: padding after the last pixel.
    """

    first: int
    n_taps: int
    dilation: int
    pad_after: int

    def index_of(self, inner: Window) -> int:
        """Return the index of the tap at which a window inside this one starts."""
        return (inner.first - self.first) // self.dilation

    def union(self, other: Window) -> Window | None:
        """Return the smallest window with all taps of both windows, or None if the taps are not on a common grid."""
        dilation = max(self._effective_dilation, other._effective_dilation)
        # A single tap fits any dilation.
        is_on_grid = all(window.n_taps == 1 or window.dilation == dilation for window in (self, other))
        if not is_on_grid or (self.first - other.first) % dilation:
            return None
        first = min(self.first, other.first)
        last = max(window.first + (window.n_taps - 1) * dilation for window in (self, other))
        return Window(first, (last - first) // dilation + 1, dilation, max(self.pad_after, other.pad_after))

    @property
    def _effective_dilation(self) -> int:
        return self.dilation if self.n_taps > 1 else 1

    def without_idle_taps(self, size: int, outputs: int, stride: int) -> Window:
        """Drop outer taps that read only padding, as far as no padding becomes negative.

        `size` and `outputs` are the extents of the data and the result. If no tap meets data, all are kept.
        """

        def meets_data(tap: int) -> bool:
            offset = self.first + tap * self.dilation
            output = max(0, -(offset // stride))
            return output < outputs and output * stride + offset < size

        useful = [tap for tap in range(self.n_taps) if meets_data(tap)] or [0, self.n_taps - 1]
        first = min(useful[0], -self.first // self.dilation)
        last = max(useful[-1], self.n_taps - 1 - self.pad_after // self.dilation)
        pad_after = self.pad_after - (self.n_taps - 1 - last) * self.dilation
        dilation = self.dilation if last > first else 1
        return Window(self.first + first * self.dilation, last - first + 1, dilation, pad_after)


def windows_of(convolution: ir.Call, weight: NDArray[Any]) -> tuple[Window, Window]:
    """Return the windows of a convolution along rows and columns, given its weight."""
    attrs, pads = convolution.attrs, [int(pad) for pad in convolution.attrs.padding]
    rows, columns = (
        Window(-before, n_taps, int(dilation), after)
        for before, after, n_taps, dilation in zip(pads[:2], pads[2:], weight.shape[:2], attrs.dilation, strict=True)
    )
    return rows, columns


def window_attributes(windows: Sequence[Window]) -> dict[str, list[int]]:
    """Return the padding and dilation attributes for windows along rows and columns."""
    padding = [*(-window.first for window in windows), *(window.pad_after for window in windows)]
    return {"padding": padding, "dilation": [window.dilation for window in windows]}
