"""Reports on machines that others share as Markdown: beside neighbours, several networks at once, within a quota.

    python -m benchmarks.shared.report docs/results/data

Reads what load_latency.py, pools.py, throughput.py, quota.py, export_start.py and compare_power.py have written there,
export_start.py that of the small networks in models.small.yaml.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.networks.engines import OWN
from benchmarks.networks.report import NETWORKS

TITLES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", OWN: "Anole"}

Row = Mapping[str, str]


def main() -> None:
    """Prints all tables."""
    folder = Path(sys.argv[1])
    for table, name in TABLES:
        with (folder / name).open(encoding="utf-8") as file:
            print(*table(list(csv.DictReader(file))), sep="\n", end="\n\n")


def alone(rows: Sequence[Row]) -> Iterator[str]:
    """Yields a sentence on the speed of Anole's threads over TVM's pool: mean, least and most."""
    ordered = sorted(rows, key=lambda row: float(row["speedup"]))
    mean = _mean(float(row["speedup"]) for row in rows)
    ends = [f"{float(row['speedup']):.3f}x ({_title(row['network'])})" for row in (ordered[0], ordered[-1])]
    yield f"Speedup of own threads: {mean:.3f}x in the geometric mean, from {' to '.join(ends)}."


def under_load(rows: Sequence[Row]) -> Iterator[str]:
    """Yields a line for each network: the p50 of Anole, and its speedups, by the number of neighbours."""
    rivals = _rivals(rows)
    yield from _head("network", "p50 (ms)", *(f"p50, {TITLES[name]}" for name in rivals))
    for network in dict.fromkeys(row["network"] for row in rows):
        of = {name: [row for row in rows if (row["network"], row["engine"]) == (network, name)] for name in rivals}
        own = [row for row in rows if (row["network"], row["engine"]) == (network, OWN)]
        latencies = ", ".join(f"{float(row['p50_ms']):.3g}" for row in own)
        speedups = [", ".join(_speedup(row, 50)[:-1] for row in of[name]) for name in rivals]
        yield _line(_title(network), latencies, *speedups)


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


def small(rows: Sequence[Row]) -> Iterator[str]:
    """Yields a line for each small network: its exported library and its build beside ONNX Runtime."""
    yield from _head("network", "library", "ONNX Runtime", "speedup of the library", "of the build")
    for row in rows:
        latencies = (f"{1e3 * float(row[name]):.0f} µs" for name in ("library_ms", "onnxruntime_ms"))
        speedups = (f"{float(row[f'{name}speedup_over_onnxruntime']):.2f}x" for name in ("", "build_"))
        yield _line(row["network"], *latencies, *speedups)


def found(rows: Sequence[Row]) -> Iterator[str]:
    """Yields a line for each build and planted slowdown: what `anole compare` said of it, and how long it took."""
    yield from _head("build", "planted", "comparisons", "slower", "no difference", "open", "faster", "median time")
    for build, planted in dict.fromkeys((row["build"], row["planted_percent"]) for row in rows):
        own = [row for row in rows if (row["build"], row["planted_percent"]) == (build, planted)]
        counts = [sum(row["verdict"] == verdict for row in own) for verdict in ("slower", "equal", "open", "faster")]
        seconds = statistics.median(float(row["seconds"]) for row in own)
        yield _line(build, f"{planted} %", str(len(own)), *map(str, counts), f"{seconds:.0f} s")


def _head(*titles: str) -> tuple[str, str]:
    return _line(*titles), "|" + "---|" * len(titles)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _title(network: str) -> str:
    return NETWORKS[network][0] if network in NETWORKS else network


def _rivals(rows: Sequence[Row]) -> list[str]:
    return [name for name in dict.fromkeys(row["engine"] for row in rows) if name != OWN]


def _speedup(row: Row, p: int) -> str:
    return f"{float(row[f'p{p}_speedup']):.2f}x"


def _mean(values: Iterable[float]) -> float:
    return statistics.geometric_mean(values)


TABLES: Sequence[tuple[Callable[[Sequence[Row]], Iterator[str]], str]] = (
    (means_under_load, "load_latency.csv"),
    (under_load, "load_latency.csv"),
    (alone, "pools.csv"),
    (at_once, "throughput.csv"),
    (within_quota, "quota.csv"),
    (small, "small.csv"),
    (found, "compare_power.csv"),
)
"""Each table of the page, and the file that it is made of."""


if __name__ == "__main__":
    main()
