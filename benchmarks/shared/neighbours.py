"""Times compiled networks and other engines in turns beside busy processes, as a shared machine has them, as CSV.

    python -m benchmarks.shared.neighbours builds/* > load_latency.csv
    python -m benchmarks.shared.neighbours builds/* --neighbours 0,2 --rivals onnxruntime

Rivals are those of networks.py. A build runs through its own ``load.py``, every engine in a process of its own, which
sleeps except during its turns; nothing is pinned to a core by the benchmark. Percentiles are those of all single runs.
A speedup is a rival's percentile over the build's.
"""

from __future__ import annotations

import argparse
import csv
import logging
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from anole.documents.build import read_build
from anole.documents.evaluation import LoadLatency
from anole.errors import AnoleError
from anole.evaluate.alone import start_deployed
from anole.evaluate.interleave import Pace
from anole.evaluate.under_load import LOAD_PACE, time_under_load
from anole.measure.site import site_of
from benchmarks.networks.compare import device_of, environment, version_of
from benchmarks.networks.engines import OWN, PACKAGES, start_engine
from benchmarks.search.variants import chosen

COLUMNS = (
    *("network", "target", "batch", "threads", "neighbours", "engine", "version", "p50_ms", "p95_ms", "p99_ms"),
    *("p50_speedup", "p95_speedup", "p99_speedup", "runs", "rounds"),
)
DEFAULT_RIVALS = "onnxruntime,openvino"


def main() -> None:
    """Prints a line for each network, number of neighbours and engine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="+", type=Path)
    parser.add_argument("--neighbours", type=_counts, default=(0, 1, 2, 4), help="comma-separated")
    parser.add_argument("--rivals", default=DEFAULT_RIVALS, help="comma-separated")
    parser.add_argument("--rounds", type=int, default=LOAD_PACE.rounds)
    parser.add_argument("--turn", type=float, default=LOAD_PACE.burst_s, help="least seconds of a turn")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    rivals = chosen(arguments.rivals, PACKAGES)
    pace = replace(LOAD_PACE, rounds=arguments.rounds, burst_s=arguments.turn)
    writer = csv.DictWriter(sys.stdout, COLUMNS)
    writer.writeheader()
    for folder in arguments.builds:
        try:
            writer.writerows(compare(folder, rivals, arguments.neighbours, pace))
        except AnoleError as error:
            logging.warning("%s: was not timed: %s", folder, error)
        sys.stdout.flush()


def compare(folder: Path, rivals: Sequence[str], counts: Sequence[int], pace: Pace) -> list[dict[str, Any]]:
    """Returns a row for each number of neighbours and engine.

    Raises:
        AnoleError: the build cannot run on this machine, or an engine exits before its last turn.
    """
    build = read_build(folder)
    device = device_of(build)
    common = {
        **{"network": build.model, "target": build.target, "batch": build.inputs[0].shape[0]},
        **{"threads": device.threads},
    }
    with tempfile.TemporaryDirectory() as scratch, site_of(device) as site:
        theirs = {name: partial(start_engine, name, folder, Path(scratch)) for name in rivals}
        with environment({**device.environment(), **site.environment()}):
            latencies = time_under_load({OWN: partial(start_deployed, folder), **theirs}, counts, site, folder, pace)
    own = {latency.neighbours: latency for latency in latencies if latency.engine == OWN}
    return [{**common, **_row(latency, own[latency.neighbours])} for latency in latencies]


def _row(latency: LoadLatency, own: LoadLatency) -> dict[str, Any]:
    """Returns the figures of an engine beside those of the build beside the same neighbours."""
    figures = {
        **{"p50_ms": 1e3 * latency.p50_s, "p95_ms": 1e3 * latency.p95_s, "p99_ms": 1e3 * latency.p99_s},
        **{"p50_speedup": latency.p50_s / own.p50_s, "p95_speedup": latency.p95_s / own.p95_s},
        **{"p99_speedup": latency.p99_s / own.p99_s},
    }
    words = {"engine": latency.engine, "version": version_of(PACKAGES.get(latency.engine, OWN))}
    row = {"neighbours": latency.neighbours, "runs": latency.runs, "rounds": latency.rounds, **words}
    return {**row, **{column: f"{value:.4g}" for column, value in figures.items()}}


def _counts(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


if __name__ == "__main__":
    main()
