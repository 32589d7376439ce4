"""Times the kernels of a build, and warns of those that take much time and are far from the machine's roofline."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from anole.documents.build import BuiltKernel, read_build
from anole.documents.evaluation import KernelLatency, KernelProfile
from anole.evaluate.comparison import draw_inputs
from anole.evaluate.kernel_times import KernelTimes, time_kernels
from anole.evaluate.roofline import Roofline, Row, measure_roofline, rows_of
from anole.measure.site import site_of
from anole.targets import get_observable

_log = logging.getLogger(__name__)

_LEAST_SHARE = 0.05
"""The share of the network's time from which a kernel is worth a warning."""

_LEAST_ROOFLINE = 0.3
"""The share of the roofline from which a kernel is fast enough."""

_LEAST_S = 20e-6
"""Seconds of one call below which starting the threads is what takes the time, and no schedule helps."""

_FEWEST_RUNS = 10


def warn_of_slow_kernels(folder: Path, seconds: float = 1.0) -> KernelProfile | None:
    """Times the kernels of a build for the CPU, and logs the slow ones.

    Call it in a process that runs builds of this number of threads: TVM sets it when it starts.

    Args:
        folder: folder of the build.
        seconds: how long to measure.

    Returns:
        The times; None for a build whose kernels cannot be timed one by one.

    Raises:
        BuildError: the build cannot be loaded.
    """
    build = read_build(folder)
    target = get_observable(build.target_description)
    if target is None or target.absence() is not None or not build.kernels:
        return None
    with site_of(target).timing():
        times = time_kernels(folder, draw_inputs(build), target.threads, seconds, _FEWEST_RUNS)
        if all(time_s < _LEAST_S for time_s in times.kernels_s.values()):
            return _profile(build.kernels, times)
        peak = measure_roofline(target)
    for row in slow_kernels(rows_of(build.kernels, times, peak)):
        _log.warning(
            "%s: %s takes %.0f %% of the time at %.0f %% of its roof (%s; kernel %s)",
            *(build.name, row.words, 100 * row.share, 100 * row.roofline, row.rate, row.kernel),
        )
    return _profile(build.kernels, times, peak)


def _profile(kernels: Iterable[BuiltKernel], times: KernelTimes, peak: Roofline | None = None) -> KernelProfile:
    """Returns the times of the kernels that were called."""
    latencies = (
        KernelLatency(each.name, each.layers, each.calls, each.flop, each.size_bytes, times.kernels_s[each.name])
        for each in kernels
        if each.name in times.kernels_s
    )
    roof = (None, None) if peak is None else (peak.flop_per_s, peak.bytes_per_s)
    return KernelProfile(times.whole_s, tuple(latencies), *roof)


def slow_kernels(rows: Iterable[Row]) -> list[Row]:
    """Returns the kernels with more than 5 % of the time below 30 % of the roofline, the longest first."""
    slow = [
        row
        for row in rows
        if row.share > _LEAST_SHARE and row.roofline < _LEAST_ROOFLINE and row.seconds >= _LEAST_S * row.calls
    ]
    return sorted(slow, key=lambda row: -row.share)
