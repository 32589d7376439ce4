"""Report the results on shared machines as Markdown: background load, thread pools, concurrent networks, quotas.

    python -m benchmarks.shared.report docs/results/data

The files come from the other benchmarks in this package (`TABLES`). The results in small.csv come from libraries.py for
the networks in models.small.yaml.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import geometric_mean, median

from benchmarks.common.arguments import make_parser
from benchmarks.common.rows import Row, head, line, read_rows, times
from benchmarks.networks.engines import OWN
from benchmarks.networks.report import NETWORKS

TITLES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", OWN: "Anole"}


def main() -> None:
    """Print all tables."""
    parser = make_parser(__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for table, name in TABLES:
        print(*table(read_rows(folder / name)), sep="\n", end="\n\n")


def thread_gains(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a sentence on the speedups of Anole's threads over TVM's pool: mean, minimum and maximum."""
    ordered = sorted(rows, key=lambda row: float(row["speedup"]))
    mean = geometric_mean(float(row["speedup"]) for row in rows)
    bounds = [f"{float(row['speedup']):.3f}x ({_title(row['network'])})" for row in (ordered[0], ordered[-1])]
    yield f"Speedup of own threads: {mean:.3f}x in the geometric mean, from {' to '.join(bounds)}."


def load_rows(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a row for each engine and number of busy processes: the geometric mean and the minimum of the speedups."""
    yield from head("vs.", "busy processes", "p50, mean", "p95, mean", "p50, min", "p95, min")
    for name in _baselines(rows):
        for count in dict.fromkeys(row["neighbours"] for row in rows):
            cases = [row for row in rows if (row["engine"], row["neighbours"]) == (name, count)]
            speedups = [[float(row[f"p{p}_speedup"]) for row in cases] for p in (50, 95)]
            slowest = [min(cases, key=lambda row, p=p: float(row[f"p{p}_speedup"])) for p in (50, 95)]
            yield line(
                *(TITLES[name], count, *(times(geometric_mean(values)) for values in speedups)),
                *(f"{_speedup(row, p)} {_title(row['network'])}" for row, p in zip(slowest, (50, 95), strict=True)),
            )


def parallel_rows(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a row for each case and engine: the mean and minimum speedup of Anole's throughput."""
    yield from head("case", "vs.", "cases", "speedup, mean", "min", "of")
    descriptions = {"processes": "two networks in two processes", "instances": "four instances in one process"}
    for case, description in descriptions.items():
        for name in _baselines(rows):
            cases = [row for row in rows if (row["case"], row["engine"]) == (case, name)]
            slowest = min(cases, key=lambda row: float(row["speedup"]))
            mean = geometric_mean(float(row["speedup"]) for row in cases)
            networks = " and ".join(_title(network) for network in slowest["networks"].split("+"))
            yield line(description, TITLES[name], len(cases), times(mean), times(float(slowest["speedup"])), networks)


def quota_rows(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a row for each engine and number of threads: the mean, min and max speedup of the build's throughput."""
    yield from head("vs.", "threads", "networks", "speedup, mean", "min", "max")
    for name, threads in dict.fromkeys((row["engine"], row["threads"]) for row in rows):
        speedups = [float(row["speedup"]) for row in rows if (row["engine"], row["threads"]) == (name, threads)]
        if threads != "own":
            figures = (geometric_mean(speedups), min(speedups), max(speedups))
            yield line(TITLES[name], threads, len(speedups), *map(times, figures))


def small_rows(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a row for each small network: its exported library and its build compared with ONNX Runtime."""
    yield from head("network", "library", "ONNX Runtime", "speedup of the library", "of the build")
    for row in rows:
        latencies = (f"{1e3 * float(row[name]):.0f} µs" for name in ("library_ms", "onnxruntime_ms"))
        speedups = (times(float(row[f"{name}speedup_over_onnxruntime"])) for name in ("", "build_"))
        yield line(row["network"], *latencies, *speedups)


def verdict_rows(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a row for each build and planted slowdown: the verdicts of `anole compare`, and its median time."""
    yield from head("build", "planted", "comparisons", "slower", "no difference", "open", "faster", "median time")
    for build, planted in dict.fromkeys((row["build"], row["planted_percent"]) for row in rows):
        cases = [row for row in rows if (row["build"], row["planted_percent"]) == (build, planted)]
        counts = [sum(row["verdict"] == verdict for row in cases) for verdict in ("slower", "equal", "open", "faster")]
        seconds = median(float(row["seconds"]) for row in cases)
        yield line(build, f"{planted} %", len(cases), *counts, f"{seconds:.0f} s")


def _title(network: str) -> str:
    return NETWORKS.get(network, network)


def _baselines(rows: Sequence[Row]) -> list[str]:
    return [name for name in dict.fromkeys(row["engine"] for row in rows) if name != OWN]


def _speedup(row: Row, p: int) -> str:
    return times(float(row[f"p{p}_speedup"]))


TABLES: Sequence[tuple[Callable[[Sequence[Row]], Iterator[str]], str]] = (
    (load_rows, "load_latency.csv"),
    (thread_gains, "pools.csv"),
    (parallel_rows, "throughput.csv"),
    (quota_rows, "quota.csv"),
    (small_rows, "small.csv"),
    (verdict_rows, "compare_power.csv"),
)
"""Each table of the page, and its data file."""


if __name__ == "__main__":
    main()
