"""The profile of a compiled build: each kernel's time, and how it compares with the machine's roofline."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anole.documents.build import Build, read_build, refuse_other_files
from anole.errors import BuildError
from anole.evaluate.comparison import draw_inputs
from anole.evaluate.kernel_times import time_kernels
from anole.evaluate.roofline import Roofline, Row, measure_roofline, rows_of
from anole.measure.site import site_of
from anole.targets import get_observable, get_target
from anole.targets.base import Observable, Place

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


@dataclass(frozen=True)
class Profile:
    """The times of a build's kernels, in the order of the network, and of the whole network.

    Attributes:
        kernels_s: sum of all rows.
        whole_s: time of one network run without instrumentation.
    """

    build: str
    threads: int
    rows: tuple[Row, ...]
    kernels_s: float
    whole_s: float
    peak: Roofline

    def to_json(self) -> dict[str, Any]:
        """Returns the plain form."""
        return asdict(self)


def profile_build(folder: Path, seconds: float) -> Profile:
    """Times every kernel of a build while the network runs on random inputs.

    Call it in a separate process: TVM sets its number of threads when it starts.

    Args:
        folder: folder of the build.
        seconds: minimal measuring time.

    Raises:
        DocumentError: the folder does not hold a build, or other files than its description tells of.
        BuildError: the build cannot be profiled on this machine.
    """
    build = read_build(folder)
    refuse_other_files(folder, build)
    target = _observable(folder, build)
    if build.kernels is None:
        raise BuildError(f"{folder}: build.json lacks kernels; compile it again")
    os.environ.update(target.environment())
    with site_of(target).timing():
        times = time_kernels(folder, draw_inputs(build), target.threads, seconds)
        peak = measure_roofline(target)
    rows = rows_of(build.kernels, times, peak)
    kernels_s = sum(row.seconds for row in rows)
    return Profile(build.name, target.threads, rows, kernels_s, times.whole_s, peak)


def render_profile(profile: Profile) -> Table:
    """Returns a profile as a table for a terminal."""
    from rich.table import Table

    title = f"{profile.build}, {profile.threads} thread{'s'[: profile.threads > 1]}"
    peak = f"{profile.peak.flop_per_s / 1e9:.0f} GFLOP/s and {profile.peak.bytes_per_s / 1e9:.1f} GB/s"
    table = Table(title=title, caption=f"the roofline: {peak}", title_justify="left", caption_justify="left")
    table.add_column("kernel")
    table.add_column("layers")
    for name in ("calls", "time", "share", "rate", "roofline"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in profile.rows:
        table.add_row(
            *(_cut(row.kernel), _cut(", ".join(row.layers)), str(row.calls), _milliseconds(row.seconds)),
            *(f"{row.share:.1%}", row.rate, f"{row.roofline:.0%}"),
        )
    table.add_section()
    calls = sum(row.calls for row in profile.rows)
    share = f"{profile.kernels_s / profile.whole_s:.1%}"
    table.add_row("kernels", "", str(calls), _milliseconds(profile.kernels_s), share, "", "")
    table.add_row("network", "", "", _milliseconds(profile.whole_s), "", "", "")
    return table


def _observable(folder: Path, build: Build) -> Observable:
    """Returns the target of a build whose kernels can be timed one by one here."""
    target = get_target(build.target_description)
    if target.place is Place.SIMULATOR:
        kind = build.target_description["kind"]
        raise BuildError(f"{folder}: is for {kind}, which is simulated; see `anole vta report` for its layers")
    if (absence := target.absence()) is not None:
        raise BuildError(f"{folder}: {absence}")
    observable = get_observable(build.target_description)
    if observable is None:
        raise BuildError(f"{folder}: is for {target.runs_on}; only builds for the CPU can be profiled")
    return observable


def _cut(words: str) -> Text:
    """Returns text that a narrow terminal truncates, so that the numbers stay whole."""
    from rich.text import Text

    return Text(words, no_wrap=True, overflow="ellipsis")


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3f} ms"
