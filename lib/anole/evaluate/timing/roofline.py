"""The speed of each kernel of a build relative to the machine's roofline, with warnings for slow kernels."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from anole.documents.build import BuiltKernel, read_build
from anole.documents.evaluation import KernelLatency, KernelProfile
from anole.evaluate.comparison import timing_inputs
from anole.evaluate.timing.kernel_times import KernelTimes, time_kernels
from anole.measure.device_access import device_access
from anole.targets import get_profilable
from anole.targets.base import ProfilableDevice
from anole.text_format import describe_kernel, significant

_log = logging.getLogger(__name__)

_MIN_TIME_SHARE = 0.05
"""Min share of the network's time for a warning about a kernel."""

_MIN_ROOF_SHARE = 0.3
"""Min share of the roofline for a kernel that is fast enough."""

_MIN_S = 20e-6
"""Min seconds of one call for a warning: in shorter calls thread start-up dominates, and no schedule helps."""

_MIN_RUNS = 10


@dataclass(frozen=True)
class Roofline:
    """The machine's peak rates, measured in the same process as the kernels.

    A multiply-add is two operations, and a copy counts bytes read and bytes written.

    Attributes:
        flop_per_s: the peak for float32.
        peak_by_dtype: the peaks for the low-precision types that the kernels multiply.
    """

    flop_per_s: float
    bytes_per_s: float
    peak_by_dtype: Mapping[str, float] = field(default_factory=dict, hash=False)

    def min_s(self, flop: int, size_bytes: int, dtype: str = "float32") -> float:
        """Return a lower bound of the seconds for operations of a type and for memory traffic."""
        return max(flop / self.peak_by_dtype.get(dtype, self.flop_per_s), size_bytes / self.bytes_per_s)


@dataclass(frozen=True)
class Row:
    """A kernel, with the sums over all of its calls.

    Attributes:
        layers: the layers whose anchor operators it contains; empty if it contains none.
        share: its share of the network's time.
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
        """The kernel's readable name."""
        return describe_kernel(self.kernel, self.layers)

    @property
    def rate(self) -> str:
        """The kernel's rate as text: operations per second if it contains an anchor, otherwise bytes per second."""
        if self.flop:
            return f"{significant(self.flop / self.seconds / 1e9)} GFLOP/s"
        return f"{significant(self.size_bytes / self.seconds / 1e9)} GB/s"

    @property
    def is_slow(self) -> bool:
        """Whether it takes more than 5 % of the time at less than 30 % of the roofline, and its calls are not short."""
        is_short = self.seconds < _MIN_S * self.calls
        return self.share > _MIN_TIME_SHARE and self.roofline < _MIN_ROOF_SHARE and not is_short


def measure_roofline(target: ProfilableDevice, kernels: Iterable[BuiltKernel]) -> Roofline:
    """Measure the peak rates of kernels in this process; the caller must hold the device."""
    dtypes = sorted({kernel.dtype for kernel in kernels if kernel.dtype})
    peaks = {dtype: 1e9 * target.peak_gflops(dtype) for dtype in dtypes}
    return Roofline(1e9 * target.peak_gflops(), target.copy_bytes_per_s(), peaks)


def rows_of(kernels: Iterable[BuiltKernel], times: KernelTimes, peak: Roofline) -> tuple[Row, ...]:
    """Return a row for each kernel that was called; reshapes that TVM compiled to views are not called."""
    return tuple(_row(kernel, times, peak) for kernel in kernels if kernel.name in times.kernels_s)


def _row(kernel: BuiltKernel, times: KernelTimes, peak: Roofline) -> Row:
    seconds, calls = times.kernels_s[kernel.name], kernel.calls
    flop, size_bytes = calls * kernel.flop, calls * kernel.size_bytes
    share, roofline = seconds / times.whole_s, peak.min_s(flop, size_bytes, kernel.dtype or "float32") / seconds
    return Row(kernel.name, kernel.layers, calls, seconds, share, flop, size_bytes, roofline)


def warn_of_slow_kernels(folder: Path, seconds: float = 1.0) -> KernelProfile | None:
    """Time the kernels of a build for the CPU, and log the slow ones, longest first.

    Call it in a process that only runs builds with the same number of threads, because TVM sets the number when it
    starts. The result is None if kernels cannot be timed one by one, or not on this machine.

    Raises:
        BuildError: the build cannot be loaded.
    """
    build = read_build(folder)
    target = get_profilable(build.target_description)
    if target is None or target.absence() is not None or not build.kernels:
        return None
    with device_access(target).timing():
        times = time_kernels(folder, timing_inputs(build), target.threads, seconds, _MIN_RUNS)
        if all(time_s < _MIN_S for time_s in times.kernels_s.values()):
            return profile_of(build.kernels, times)
        peak = measure_roofline(target, build.kernels)
    for row in sorted(rows_of(build.kernels, times, peak), key=lambda row: -row.share):
        if row.is_slow:
            _log.warning(
                "%s: %s takes %.0f %% of the time at %.0f %% of its roofline (%s; kernel %s)",
                *(build.name, row.words, 100 * row.share, 100 * row.roofline, row.rate, row.kernel),
            )
    return profile_of(build.kernels, times, peak)


def profile_of(kernels: Iterable[BuiltKernel], times: KernelTimes, peak: Roofline | None = None) -> KernelProfile:
    """Return the times of the kernels that were called."""
    peaks = {} if peak is None else peak.peak_by_dtype
    latencies = (
        KernelLatency(
            *(kernel.name, kernel.layers, kernel.calls, kernel.flop, kernel.size_bytes, times.kernels_s[kernel.name]),
            peak_flop_per_s=peaks.get(kernel.dtype or "float32"),
        )
        for kernel in kernels
        if kernel.name in times.kernels_s
    )
    roof = (None, None) if peak is None else (peak.flop_per_s, peak.bytes_per_s)
    return KernelProfile(times.whole_s, tuple(latencies), *roof)
