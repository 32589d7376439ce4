"""The profile of a build: each kernel's time, compared with the machine's roofline."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anole.documents.build import Build, check_build_files, read_build
from anole.errors import BuildError
from anole.evaluate.comparison import timing_inputs
from anole.evaluate.timing.kernel_times import time_kernels
from anole.evaluate.timing.roofline import Roofline, Row, measure_roofline, rows_of
from anole.measure.device_access import device_access
from anole.report.tables import plain_table
from anole.targets import get_kind, get_profilable, get_target
from anole.targets.base import DeviceLocation, ProfilableDevice
from anole.text_format import duration, percent, pluralize, significant

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Profile:
    """The times of a build's kernels, in execution order, and of a run without instrumentation."""

    build: str
    threads: int
    rows: tuple[Row, ...]
    kernels_s: float
    whole_s: float
    peak: Roofline

    def to_json(self) -> dict[str, Any]:
        """Return the profile as a JSON object."""
        return asdict(self)


def profile_build(folder: Path, seconds: float) -> Profile:
    """Time every kernel of a build while the network runs on random inputs for at least `seconds`.

    Call this in a separate process, because TVM sets its number of threads when it starts.

    Raises:
        DocumentError: the folder is not a build, or its files do not match its description.
        BuildError: the build cannot be profiled on this machine.
    """
    build = read_build(folder)
    check_build_files(folder, build)
    target = _profilable(folder, build)
    if build.kernels is None:
        raise BuildError(f"{folder}: build.json has no kernels; compile the build again")
    os.environ.update(target.environment())
    with device_access(target).timing():
        times = time_kernels(folder, timing_inputs(build), target.threads, seconds)
        peak = measure_roofline(target, build.kernels)
    rows = rows_of(build.kernels, times, peak)
    kernels_s = sum(row.seconds for row in rows)
    return Profile(build.name, target.threads, rows, kernels_s, times.whole_s, peak)


def render_profile(profile: Profile) -> RenderableType:
    """Render a profile as a table for a terminal; kernels far below the roofline are yellow."""
    from rich.console import Group
    from rich.text import Text

    kernels_s = profile.kernels_s
    rows = [
        (
            Text(row.words, style="yellow" if row.is_slow else ""),
            *(f"{row.calls:,}", duration(row.seconds), percent(row.share), row.rate, f"{100 * row.roofline:.0f} %"),
        )
        for row in profile.rows
    ]
    calls = f"{sum(row.calls for row in profile.rows):,}"
    total = Text("all kernels", style="bold"), calls, duration(kernels_s), percent(kernels_s / profile.whole_s), "", ""
    threads, peak = pluralize(profile.threads, "thread"), profile.peak
    low_precision = (f" ({significant(rate / 1e9)} of {dtype})" for dtype, rate in peak.peak_by_dtype.items())
    arithmetic = f"{significant(peak.flop_per_s / 1e9)} GFLOP/s{''.join(low_precision)}"
    peaks = f"{arithmetic} and {significant(peak.bytes_per_s / 1e9)} GB/s"
    return Group(
        Text(f"{profile.build}: {duration(profile.whole_s)} with {threads}", style="bold"),
        Text(f"roofline: {peaks}, measured afterwards", style="dim"),
        plain_table(("layers",), ("calls", "time", "share", "rate", "of roofline"), [*rows, total]),
    )


def _profilable(folder: Path, build: Build) -> ProfilableDevice:
    """Return the target of a build; raise BuildError if its kernels cannot be timed one by one on this machine."""
    target = get_target(build.target_description)
    if target.location is DeviceLocation.SIMULATOR:
        kind = build.target_description["kind"]
        advice = "".join(f"; see `anole {command}`" for command in get_kind(kind).commands)
        raise BuildError(f"{folder}: is for {kind}, which is simulated{advice}")
    if (absence := target.absence()) is not None:
        raise BuildError(f"{folder}: {absence}")
    device = get_profilable(build.target_description)
    if device is None:
        raise BuildError(f"{folder}: is for {target.runs_on}; only builds for the CPU can be profiled")
    return device
