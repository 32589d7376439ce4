"""Reports on machines that others share as Markdown: beside neighbours, several networks at once, within a quota.

    python benchmarks/shared_report.py docs/results/data

Reads what networks.py with ``--rivals tvm_pool``, load_latency.py, throughput.py and quota.py have written there.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from networks_report import NETWORKS
from rivals import OWN

TITLES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "tvm_pool": "TVM's pool", OWN: "Anole"}

Row = dict[str, str]


def main() -> None:
    """Prints all tables."""
    folder = Path(sys.argv[1])
    tables = (alone, under_load, means_under_load, at_once, within_quota)
    files = ("pools.csv", "load_latency.csv", "load_latency.csv", "throughput.csv", "quota.csv")
    for table, name in zip(tables, files, strict=True):
        with (folder / name).open(encoding="utf-8") as file:
            print(*table(list(csv.DictReader(file))), sep="\n", end="\n\n")


def alone(rows: Sequence[Row]) -> Iterator[str]:
    """Yields a line for each network: Anole's threads beside TVM's pool."""
    yield from _head("network", "own threads", "TVM's pool", "speedup", "quartiles")
    found = [row for row in rows if row["engine"] == "tvm_pool"]
    own = {row["network"]: row for row in rows if row["engine"] == OWN}
    for row in found:
        latencies = (f"{float(each['latency_ms']):.3g} ms" for each in (own[row["network"]], row))
        spread = f"{float(row['speedup_q1']):.3f}x to {float(row['speedup_q3']):.3f}x"
        yield _line(_title(row["network"]), *latencies, f"{float(row['speedup']):.3f}x", spread)
    yield _line("geometric mean", "", "", f"{_mean(float(row['speedup']) for row in found):.3f}x", "")


def under_load(rows: Sequence[Row]) -> Iterator[str]:
    """Yields a line for each network and number of neighbours: p50 and p95 of all engines, and the speedups."""
    rivals = _rivals(rows)
    yield from _head(
        "network", "neighbours", "Anole", *(title for name in rivals for title in (TITLES[name], "p50", "p95"))
    )
    for own in (row for row in rows if row["engine"] == OWN):
        theirs = {row["engine"]: row for row in rows if _case(row) == _case(own)}
        cells = [
            cell
            for name in rivals
            for cell in (_percentiles(theirs[name]), *(_speedup(theirs[name], p) for p in (50, 95)))
        ]
        yield _line(_title(own["network"]), own["neighbours"], _percentiles(own), *cells)


def means_under_load(rows: Sequence[Row]) -> Iterator[str]:
    """Yields a line for each engine and number of neighbours: the geometric mean and the least of the speedups."""
    yield from _head("beside", "neighbours", "p50, mean", "p95, mean", "p50, least", "p95, least")
    for name in _rivals(rows):
        for count in dict.fromkeys(row["neighbours"] for row in rows):
            found = [row for row in rows if (row["engine"], row["neighbours"]) == (name, count)]
            speedups = [[float(row[f"p{p}_speedup"]) for row in found] for p in (50, 95)]
            least = [min(found, key=lambda row, p=p: float(row[f"p{p}_speedup"])) for p in (50, 95)]
            yield _line(
                *(TITLES[name], count, *(f"{_mean(each):.2f}x" for each in speedups)),
                *(f"{_speedup(row, p)} {_title(row['network'])}" for row, p in zip(least, (50, 95), strict=True)),
            )


def at_once(rows: Sequence[Row]) -> Iterator[str]:
    """Yields a line for each case and engine: the throughput of Anole over the engine's, mean and least."""
    yield from _head("case", "beside", "cases", "speedup, mean", "least", "of")
    words = {"processes": "two networks in two processes", "instances": "four instances in one process"}
    for case, word in words.items():
        for name in _rivals(rows):
            found = [row for row in rows if (row["case"], row["engine"]) == (case, name)]
            least = min(found, key=lambda row: float(row["speedup"]))
            mean = _mean(float(row["speedup"]) for row in found)
            which = " and ".join(_title(network) for network in least["networks"].split("+"))
            yield _line(word, TITLES[name], str(len(found)), f"{mean:.2f}x", f"{float(least['speedup']):.2f}x", which)


def within_quota(rows: Sequence[Row]) -> Iterator[str]:
    """Yields a line for each engine and number of threads: the build's throughput over the engine's, mean and range."""
    yield from _head("beside", "threads", "networks", "speedup, mean", "least", "most")
    for name, threads in dict.fromkeys((row["engine"], row["threads"]) for row in rows):
        found = [float(row["speedup"]) for row in rows if (row["engine"], row["threads"]) == (name, threads)]
        if threads != "own":
            figures = (_mean(found), min(found), max(found))
            yield _line(TITLES[name], threads, str(len(found)), *(f"{each:.2f}x" for each in figures))


def _head(*titles: str) -> tuple[str, str]:
    return _line(*titles), "|" + "---|" * len(titles)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _title(network: str) -> str:
    return NETWORKS[network][0] if network in NETWORKS else network


def _case(row: Row) -> tuple[str, str]:
    return row["network"], row["neighbours"]


def _rivals(rows: Sequence[Row]) -> list[str]:
    return [name for name in dict.fromkeys(row["engine"] for row in rows) if name != OWN]


def _percentiles(row: Row) -> str:
    return " / ".join(f"{float(row[f'p{p}_ms']):.3g}" for p in (50, 95)) + " ms"


def _speedup(row: Row, p: int) -> str:
    return f"{float(row[f'p{p}_speedup']):.2f}x"


def _mean(values: Iterable[float]) -> float:
    return statistics.geometric_mean(values)


if __name__ == "__main__":
    main()
