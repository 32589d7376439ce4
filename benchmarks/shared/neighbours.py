"""Compare compiled networks with other engines under background load, as on a shared machine, as CSV.

    python -m benchmarks.shared.neighbours builds/* > docs/results/data/load_latency.csv
    python -m benchmarks.shared.neighbours builds/* --neighbours 0,2 --rivals onnxruntime

networks/compare.py lists the baselines. Engines are timed interleaved, each in its own process, which sleeps except
during its turns; a build runs through its own ``load.py``. Nothing is pinned to a core. Percentiles are over all single
runs. A speedup is the percentile of an engine over the percentile of the build.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from anole.documents.build import read_build
from anole.evaluate.engine_factories import start_deployed
from anole.evaluate.timing.load import LOAD_SCHEDULE, time_under_load
from anole.evaluate.timing.turns import TurnSchedule
from anole.measure.device_access import device_access
from benchmarks.common.arguments import choose_names, list_of, parser_for_builds
from benchmarks.common.builds import device_of, rows_of_builds, set_environment
from benchmarks.common.rows import print_rows, round_row
from benchmarks.networks.engines import OWN, PACKAGES, start_engine, version_of

COLUMNS = (
    *("network", "target", "batch", "threads", "neighbours", "engine", "version", "p50_ms", "p95_ms", "p99_ms"),
    *("p50_speedup", "p95_speedup", "p99_speedup", "runs", "rounds"),
)


def main() -> None:
    """Print a row for each network, number of busy processes, and engine."""
    parser = parser_for_builds(__doc__, LOAD_SCHEDULE.max_rounds, "onnxruntime,openvino", LOAD_SCHEDULE.min_burst_s)
    parser.add_argument("--neighbours", type=list_of(int), default=(0, 1, 2, 4), help="comma-separated")
    args = parser.parse_args()
    schedule = replace(LOAD_SCHEDULE, max_rounds=args.rounds, min_burst_s=args.turn)
    baselines = choose_names(args.rivals, PACKAGES) if args.rivals else []
    print_rows(
        COLUMNS,
        rows_of_builds(args.builds, partial(compare, baselines=baselines, counts=args.neighbours, schedule=schedule)),
    )


def compare(
    folder: Path, baselines: Sequence[str], counts: Sequence[int], schedule: TurnSchedule
) -> Iterator[dict[str, Any]]:
    """Yield a row for each number of busy processes, and engine."""
    build = read_build(folder)
    device = device_of(build)
    with TemporaryDirectory() as scratch, device_access(device) as access:
        others = {name: partial(start_engine, name, folder, Path(scratch)) for name in baselines}
        with set_environment({**device.environment(), **access.environment()}):
            starts = {OWN: partial(start_deployed, folder), **others}
            latencies = time_under_load(starts, counts, access, folder, schedule)
    of_build = {latency.neighbours: latency for latency in latencies if latency.engine == OWN}
    for row in latencies:
        base = of_build[row.neighbours]
        percentiles = {name: (getattr(row, f"{name}_s"), getattr(base, f"{name}_s")) for name in ("p50", "p95", "p99")}
        yield round_row(
            {
                **{"network": build.model, "target": build.target, "batch": build.inputs[0].shape[0]},
                **{"threads": device.threads, "neighbours": row.neighbours, "runs": row.runs, "rounds": row.rounds},
                **{"engine": row.engine, "version": version_of(row.engine)},
                **{f"{name}_ms": 1e3 * engine_s for name, (engine_s, _) in percentiles.items()},
                **{f"{name}_speedup": engine_s / build_s for name, (engine_s, build_s) in percentiles.items()},
            }
        )


if __name__ == "__main__":
    main()
