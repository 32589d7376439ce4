"""Report the results of `sweep.py` as Markdown: completed stages, speedups, and the slowest networks.

python -m benchmarks.zoo.report < docs/results/data/zoo.csv
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence

from benchmarks.common.arguments import make_parser
from benchmarks.common.rows import Row, head, line, times
from benchmarks.zoo.jobs import DONE

GROUPS = {"timm_": "timm", "torchvision_": "torchvision", "transformers_": "transformers"}
"""The packages of networks, by prefix of their names."""
OWN, FILES = "written for the zoo", "ONNX files of packages"
_N_SLOWEST = 5


def main() -> None:
    """Print the report of the CSV on standard input."""
    make_parser(__doc__).parse_args()
    rows = list(csv.DictReader(sys.stdin))
    for section in (by_group(rows), slowest(rows), not_done(rows), seconds(rows)):
        print("\n".join(section), end="\n\n")


def group(row: Row) -> str:
    """Return the origin of a network."""
    package = next((title for start, title in GROUPS.items() if row["network"].startswith(start)), None)
    return package or (FILES if row["source"].endswith(".onnx") else OWN)


def by_group(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table of the stages that networks completed, and their speedups with geometric means, by group."""
    columns = ("extracted", "compiled", "right")
    yield from head("networks", "tried", *columns, "speedup, mean", "range", "below 1x", "noise missed")
    groups = {name: [row for row in rows if group(row) == name] for name in dict.fromkeys(map(group, rows))}
    for name, members in {**groups, "all": list(rows)}.items():
        counts = [sum(row[column] == "1" for row in members) for column in columns]
        values = speedups(members)
        figures = (
            (times(statistics.geometric_mean(values)), f"{times(min(values))} to {times(max(values))}")
            if values
            else ("", "")
        )
        below = f"{sum(value < 1 for value in values)} of {len(values)}"
        yield line(name, len(members), *counts, *figures, below, sum(bool(row["uncaught"]) for row in members))


def speedups(rows: Iterable[Row]) -> list[float]:
    """Return the speedups over ONNX Runtime of the networks that ONNX Runtime can run."""
    return [float(row["speedup"]) for row in rows if row["speedup"]]


def slowest(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table of the networks with the lowest speedups, each with the kernel that takes the most time."""
    yield from head("slowest", "speedup", "quartiles", "ms", "kernel that takes the most time")
    compared = sorted((row for row in rows if row["speedup"]), key=lambda row: float(row["speedup"]))
    for row in compared[:_N_SLOWEST]:
        speedup, low, high = (float(row[column]) for column in ("speedup", "speedup_q1", "speedup_q3"))
        kernel = row["slowest"].partition(";")[0].partition(" (")[0]
        yield line(row["network"], times(speedup), f"{low:.2f} to {high:.2f}", row["latency_ms"], kernel)


def not_done(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a row for each network that did not complete all stages, with the reason."""
    yield from head("incomplete", "stage", "reason")
    yield from (line(row["network"], row["stage"], row["reason"]) for row in rows if row["stage"] != DONE)


def seconds(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table of the time of each stage."""
    yield from head("seconds", "mean", "median", "max")
    for column in ("extract_s", "compile_s"):
        pairs = [(float(row[column]), row["network"]) for row in rows if row[column]]
        if pairs:
            times_s, (max_s, network) = [time_s for time_s, _ in pairs], max(pairs)
            mean_s, median_s = statistics.mean(times_s), statistics.median(times_s)
            yield line(column.removesuffix("_s"), f"{mean_s:.1f}", f"{median_s:.1f}", f"{max_s:.0f} ({network})")


if __name__ == "__main__":
    main()
