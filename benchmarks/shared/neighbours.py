"""Time compiled networks and other engines in turns under background load, as on a shared machine, as CSV.

    python -m benchmarks.shared.neighbours builds/* > docs/results/data/load_latency.csv
    python -m benchmarks.shared.neighbours builds/* --neighbours 0,2 --rivals onnxruntime

networks/compare.py defines the rivals. A build runs through its own ``load.py``, every engine in its own process,
which sleeps except during its turns; nothing is pinned to a core. Percentiles are over all single runs. A speedup is a
rival's percentile over the build's.
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
from anole.evaluate.timing.load import LOAD_PACE, time_under_load
from anole.evaluate.timing.turns import Pace
from anole.measure.device_access import device_access
from benchmarks.common.arguments import chosen, listed, parser_for_builds
from benchmarks.common.builds import device_of, environment, rows_of_builds
from benchmarks.common.rows import print_rows, rounded
from benchmarks.networks.engines import OWN, PACKAGES, start_engine, version_of

COLUMNS = (
    *("network", "target", "batch", "threads", "neighbours", "engine", "version", "p50_ms", "p95_ms", "p99_ms"),
    *("p50_speedup", "p95_speedup", "p99_speedup", "runs", "rounds"),
)


def main() -> None:
    """Print a row for each network, number of busy processes, and engine."""
    parser = parser_for_builds(__doc__, LOAD_PACE.rounds, "onnxruntime,openvino", LOAD_PACE.burst_s)
    parser.add_argument("--neighbours", type=listed(int), default=(0, 1, 2, 4), help="comma-separated")
    given = parser.parse_args()
    pace = replace(LOAD_PACE, rounds=given.rounds, burst_s=given.turn)
    rivals = chosen(given.rivals, PACKAGES) if given.rivals else []
    print_rows(
        COLUMNS, rows_of_builds(given.builds, partial(compare, rivals=rivals, counts=given.neighbours, pace=pace))
    )


def compare(folder: Path, rivals: Sequence[str], counts: Sequence[int], pace: Pace) -> Iterator[dict[str, Any]]:
    """Yield a row for each number of busy processes, and engine."""
    build = read_build(folder)
    device = device_of(build)
    with TemporaryDirectory() as scratch, device_access(device) as access:
        theirs = {name: partial(start_engine, name, folder, Path(scratch)) for name in rivals}
        with environment({**device.environment(), **access.environment()}):
            latencies = time_under_load({OWN: partial(start_deployed, folder), **theirs}, counts, access, folder, pace)
    own = {latency.neighbours: latency for latency in latencies if latency.engine == OWN}
    for each in latencies:
        baseline = own[each.neighbours]
        percentiles = {
            name: (getattr(each, f"{name}_s"), getattr(baseline, f"{name}_s")) for name in ("p50", "p95", "p99")
        }
        yield rounded(
            {
                **{"network": build.model, "target": build.target, "batch": build.inputs[0].shape[0]},
                **{"threads": device.threads, "neighbours": each.neighbours, "runs": each.runs, "rounds": each.rounds},
                **{"engine": each.engine, "version": version_of(each.engine)},
                **{f"{name}_ms": 1e3 * found_s for name, (found_s, _) in percentiles.items()},
                **{f"{name}_speedup": found_s / own_s for name, (found_s, own_s) in percentiles.items()},
            }
        )


if __name__ == "__main__":
    main()
