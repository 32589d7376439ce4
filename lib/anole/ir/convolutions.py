"""Two-dimensional convolutions with channels last: their layout, and where their taps read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from tvm import ir

CHANNELS_LAST = {"data_layout": "NHWC", "kernel_layout": "HWIO", "out_layout": "NHWC"}
"""The attributes of a convolution whose data has the channels last."""


def is_channels_last(convolution: ir.Call) -> bool:
    """Whether a convolution's data, weight and result have their channels last."""
    return all(getattr(convolution.attrs, name) == layout for name, layout in CHANNELS_LAST.items())


@dataclass(frozen=True)
class Taps:
    """The taps of a convolution along rows or columns.

    Attributes:
        first: where the first tap reads, in pixels before (negative) or behind an output's own pixel.
        taps: their number.
        dilation: pixels from one to the next.
        after: the padding behind the last pixel.
    """

    first: int
    taps: int
    dilation: int
    after: int

    def place_of(self, inner: Taps) -> int:
        """Return which of the taps is the first one of a window within this one."""
        return (inner.first - self.first) // self.dilation

    def union(self, other: Taps) -> Taps | None:
        """Return the smallest window with all taps of both; None where these are not on one grid."""
        dilation = max(self._min_dilation, other._min_dilation)
        # A single tap has any dilation.
        is_on_grid = all(each.taps == 1 or each.dilation == dilation for each in (self, other))
        if not is_on_grid or (self.first - other.first) % dilation:
            return None
        first = min(self.first, other.first)
        last = max(each.first + (each.taps - 1) * dilation for each in (self, other))
        return Taps(first, (last - first) // dilation + 1, dilation, max(self.after, other.after))

    @property
    def _min_dilation(self) -> int:
        return self.dilation if self.taps > 1 else 1

    def of_useful_taps(self, size: int, outputs: int, stride: int) -> Taps:
        """Return the window without outer taps that read no data; with those whose padding would become negative."""

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
    """Return the windows of a convolution with this weight along rows and columns."""
    attrs, pads = convolution.attrs, [int(pad) for pad in convolution.attrs.padding]
    rows, columns = (
        Taps(-before, taps, int(dilation), after)
        for before, after, taps, dilation in zip(pads[:2], pads[2:], weight.shape[:2], attrs.dilation, strict=True)
    )
    return rows, columns


def attrs_of(windows: Sequence[Taps]) -> dict[str, list[int]]:
    """Return the attributes of a convolution with these windows along rows and columns."""
    padding = [*(-window.first for window in windows), *(window.after for window in windows)]
    return {"padding": padding, "dilation": [window.dilation for window in windows]}
