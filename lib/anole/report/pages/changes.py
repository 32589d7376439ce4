"""Section: what changed since the last report."""

from __future__ import annotations

from collections.abc import Iterator

from anole.report.pages.figure import Figure, Lacking, Shown, Source, Table
from anole.report.pages.snapshot import BESIDE, SQL, Beside, BuildFigures, Snapshot
from anole.words import counted, megabytes, percent, times, with_spread


def make(source: Source) -> list[Shown]:
    """Returns the builds that are new, gone, or faster or slower by more than their spread."""
    title, before, now = "Changes since the last report", source.previous, source.current
    if before is None:
        return [Lacking(title, "this is the first; the next one that replaces this file is compared with it.")]
    rows = [*differences(before, now)]
    return [
        Figure(
            title,
            "speedup over a reference, with the middle half of its rounds; ms of one run, lower is better.",
            f"{counted(len(rows), 'change')} among {counted(len(now.builds), 'build')}; "
            f"{now.trials - before.trials:+,} trials since {before.made_at[:16].replace('T', ' ')} UTC.",
            "both reports' evaluations. A speedup counts as changed if the middle halves of its rounds do not overlap, "
            "a simulated latency if it is another, a size by 1 %, and a share by 0.01.",
            (source.database.query(SQL), source.database.query(BESIDE)),
            Table.of(("build", "change", "before", "now"), rows) if rows else None,
            headline=f"{counted(len(rows), 'change')} of builds since the last report.",
        )
    ]


def differences(before: Snapshot, now: Snapshot) -> Iterator[tuple[str, str, str, str]]:
    """Yields a row for each change: the build, what changed, and both states of it."""
    old_builds, new_builds = ({build.name: build for build in each.builds} for each in (before, now))
    for name in sorted(old_builds.keys() | new_builds.keys()):
        old, new = old_builds.get(name), new_builds.get(name)
        if old is None and new is not None:
            yield name, "new", "", _latency(new)
        elif new is None and old is not None:
            yield name, "removed", _latency(old), ""
        elif old is not None and new is not None:
            for change, was, is_now in _of_build(old, new):
                yield name, change, was, is_now


def _of_build(old: BuildFigures, new: BuildFigures) -> Iterator[tuple[str, str, str]]:
    if old.latency_s is None or new.latency_s is None:
        if old.latency_s != new.latency_s:
            word = "evaluated" if old.latency_s is None else "not evaluated any more"
            yield word, _latency(old), _latency(new)
    elif not (old.latency_std_s or new.latency_std_s) and old.latency_s != new.latency_s:
        word = "faster" if new.latency_s < old.latency_s else "slower"
        yield f"{word}, simulated: {times(old.latency_s / new.latency_s)}", _latency(old), _latency(new)
    before = {each.reference: each for each in old.references}
    for each in new.references:
        former = before.get(each.reference)
        if former is not None and (direction := _changed(former, each)) is not None:
            yield f"{direction} beside {each.reference}", _speedup(former), _speedup(each)
    if old.size_bytes and new.size_bytes and abs(new.size_bytes / old.size_bytes - 1) > 0.01:
        yield "size, MB", megabytes(old.size_bytes), megabytes(new.size_bytes)
    if abs(new.coverage_flop_share - old.coverage_flop_share) > 0.01:
        yield "share tuned", percent(old.coverage_flop_share), percent(new.coverage_flop_share)


def _latency(build: BuildFigures) -> str:
    return with_spread(build.latency_s, build.latency_std_s)


def _changed(old: Beside, new: Beside) -> str | None:
    """Returns whether a build became faster or slower; None if the middle halves of the rounds overlap."""
    if (new.low or new.speedup) > (old.high or old.speedup):
        return "faster"
    return "slower" if (new.high or new.speedup) < (old.low or old.speedup) else None


def _speedup(beside: Beside) -> str:
    if beside.low is None or beside.high is None:
        return times(beside.speedup)
    return f"{times(beside.speedup)} ({times(beside.low)} to {times(beside.high)})"
