"""Writes the tables of docs/results/records.md from the files of store_scale.py.

python -m benchmarks.store.report docs/results/data/store_scale_before.csv docs/results/data/store_scale.csv

The page must have them line by line, which tests/test_results.py checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.common.arguments import described
from benchmarks.common.rows import Row, head, line, read_rows

_ONE, _LABEL, _ALL = "one task by key", "one task by label", "all"


def main() -> None:
    """Prints all tables."""
    parser = described(__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("now", type=Path)
    given = parser.parse_args()
    before, now = read_rows(given.before), read_rows(given.now)
    for table in (merges(before, now), views(before, now), pages(now)):
        print("\n".join(table), end="\n\n")


def merges(before: Sequence[Row], now: Sequence[Row]) -> Iterator[str]:
    """Yields the table of merges: seconds of the processor and memory, before and now."""
    yield from ("| | seconds of the processor, before | now | wall clock now | memory |", "|---|---|---|---|---|")
    titles = {"start": "start, with nothing to merge", "first merge": "first merge", "merge again": "merge again"}
    for what, title in titles.items():
        old, new = (next(row for row in rows if row["what"] == what) for rows in (before, now))
        seconds = [f"{float(row['processor_s']):.1f} s" for row in (old, new)]
        yield line(title, *seconds, f"{float(new['wall_s']):.1f} s", f"{new['mib']} MiB")


def views(before: Sequence[Row], now: Sequence[Row]) -> Iterator[str]:
    """Yields the table of views: seconds of the processor for one task and for all, before and now."""
    yield from head("view", "one task, before", "by key now", "by label now", "all, before", "all now", "rows of all")
    for view in dict.fromkeys(row["what"] for row in now if row["of"] == _ONE):
        old = {row["of"]: _seconds(row) for row in before if row["what"] == view}
        own = {row["of"]: row for row in now if row["what"] == view}
        one = (old[_ONE], _seconds(own[_ONE]), _seconds(own[_LABEL]))
        yield line(f"`{view}`", *one, old[_ALL], _seconds(own[_ALL]), f"{int(own[_ALL]['rows']):,}")
    for view in dict.fromkeys(row["what"] for row in now if row["of"] == _ALL and row["rows"]):
        own = {row["of"]: row for row in now if row["what"] == view}
        if _ONE not in own and "merge" not in view:
            old_all = next(_seconds(row) for row in before if row["what"] == view)
            yield f"| `{view}` | | | | {old_all} | {_seconds(own[_ALL])} | {int(own[_ALL]['rows']):,} |"


def pages(now: Sequence[Row]) -> Iterator[str]:
    """Yields the table of the slowest pages, by wall clock."""
    yield from head("page", "seconds")
    found = [row for row in now if row["what"].startswith("page of ")]
    for row in sorted(found, key=lambda row: -float(row["wall_s"]))[:6]:
        yield line(f"`{row['what'].removeprefix('page of ')}`", f"{float(row['wall_s']):.1f}")


def _seconds(row: Row) -> str:
    """Returns the seconds of the processor that a view took."""
    value_s = float(row["processor_s"])
    return f"{value_s:.1f} s" if value_s >= 1 else f"{1000 * value_s:.0f} ms" if value_s >= 1e-3 else "< 1 ms"


if __name__ == "__main__":
    main()
