"""Write the tables of docs/results/records.md from the output of scale.py.

    python -m benchmarks.store.report docs/results/data/store_scale.csv

The page must contain these lines, as tests/benchmarks/test_results.py checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.common.arguments import make_parser
from benchmarks.common.rows import Row, head, line, read_rows

_BY_KEY, _BY_LABEL, _ALL = "one task by key", "one task by label", "all"


def main() -> None:
    """Print all tables."""
    parser = make_parser(__doc__)
    parser.add_argument("rows", type=Path)
    rows = read_rows(parser.parse_args().rows)
    for table in (merges, views, pages):
        print("\n".join(table(rows)), end="\n\n")


def merges(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table of merges: seconds and memory."""
    yield from head("", "processor", "wall clock", "memory")
    titles = {"start": "start, with nothing to merge", "first merge": "first merge", "merge again": "merge again"}
    for name, title in titles.items():
        row = next(row for row in rows if row["what"] == name)
        yield line(
            title, *(f"{float(row[f'{clock}_s']):.1f} s" for clock in ("processor", "wall")), f"{row['mib']} MiB"
        )


def views(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table of views: CPU time for one task and for all."""
    yield from head("view", "one task by key", "by label", "all", "rows of all")
    views = dict.fromkeys(
        row["what"] for row in rows if row["of"] == _ALL and row["rows"] and "merge" not in row["what"]
    )
    for view in views:
        by_subset = {row["of"]: row for row in rows if row["what"] == view}
        seconds = (_seconds(by_subset[name]) if name in by_subset else "" for name in (_BY_KEY, _BY_LABEL, _ALL))
        yield line(f"`{view}`", *seconds, f"{int(by_subset[_ALL]['rows']):,}")


def pages(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table of the slowest pages, by wall clock time."""
    yield from head("page", "seconds")
    page_rows = [row for row in rows if row["what"].startswith("page of ")]
    for row in sorted(page_rows, key=lambda row: -float(row["wall_s"]))[:6]:
        yield line(f"`{row['what'].removeprefix('page of ')}`", f"{float(row['wall_s']):.1f}")


def _seconds(row: Row) -> str:
    """Return the formatted CPU time of a view."""
    value_s = float(row["processor_s"])
    return f"{value_s:.1f} s" if value_s >= 1 else f"{1000 * value_s:.0f} ms" if value_s >= 1e-3 else "< 1 ms"


if __name__ == "__main__":
    main()
