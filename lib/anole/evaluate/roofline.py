"""Each kernel of a build beside the machine's roofline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anole.documents.build import BuiltKernel
from anole.evaluate.kernel_times import KernelTimes
from anole.evaluate.kernel_words import kernel_words
from anole.targets.base import Observable
from anole.words import significant


@dataclass(frozen=True)
class Roofline:
    """The machine's peak rates, measured in the same process as the kernels.

    Attributes:
        flop_per_s: peak rate of multiply-adds from registers, two operations each.
        bytes_per_s: memory bandwidth of a copy, counting bytes read and bytes written.
    """

    flop_per_s: float
    bytes_per_s: float

    def least_s(self, flop: int, size_bytes: int) -> float:
        """Returns a lower bound of the seconds that a number of operations on an amount of memory take."""
        return max(flop / self.flop_per_s, size_bytes / self.bytes_per_s)


@dataclass(frozen=True)
class Row:
    """One kernel, with all of its calls added up.

    Attributes:
        layers: the layers whose anchor operators it contains; empty if it contains none.
        share: its share of the whole network's time.
        roofline: its speed as a share of the roofline; above 1 if its data comes from a cache.
    """

    kernel: str
    layers: tuple[str, ...]
    calls: int
    seconds: float
    share: float
    flop: int
    size_bytes: int
    roofline: float

    @property
    def words(self) -> str:
        """What people call it."""
        return kernel_words(self.kernel, self.layers)

    @property
    def rate(self) -> str:
        """Its rate as text: arithmetic if it contains an anchor, memory otherwise."""
        if self.flop:
            return f"{significant(self.flop / self.seconds / 1e9)} GFLOP/s"
        return f"{significant(self.size_bytes / self.seconds / 1e9)} GB/s"


def measure_roofline(target: Observable) -> Roofline:
    """Measures the peak rates in this process; hold the device meanwhile."""
    return Roofline(1e9 * target.peak_gflops(), target.copy_bytes_per_s())


def rows_of(kernels: Iterable[BuiltKernel], times: KernelTimes, peak: Roofline) -> tuple[Row, ...]:
    """Returns a row for each kernel that was called; TVM may have compiled a listed reshape to a view, which is not."""
    return tuple(_row(kernel, times, peak) for kernel in kernels if kernel.name in times.kernels_s)


def _row(kernel: BuiltKernel, times: KernelTimes, peak: Roofline) -> Row:
    seconds, calls = times.kernels_s[kernel.name], kernel.calls
    flop, size_bytes = calls * kernel.flop, calls * kernel.size_bytes
    share, roofline = seconds / times.whole_s, peak.least_s(flop, size_bytes) / seconds
    return Row(kernel.name, kernel.layers, calls, seconds, share, flop, size_bytes, roofline)
