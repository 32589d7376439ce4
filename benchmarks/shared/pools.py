"""Compare the thread pool of builds with TVM's on an idle machine, as CSV.

    python -m benchmarks.shared.pools builds/* > docs/results/data/pools.csv

Each network is compiled again with its build's configs, but with parallel loops run by TVM's pool. Two processes of the
same build may differ by 5 % because of memory placement. Therefore, several processes of each kind are timed
interleaved; in each round, the n-th of one kind is compared with the n-th of the other. A speedup is the median of
these ratios of medians.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np

from anole.compile.build import BuildSettings, compile_build
from anole.compile.recorded import manifest_of_build, recorded_receipts
from anole.documents.build import Build, read_build
from anole.evaluate.comparison import timing_inputs
from anole.evaluate.engines import Engine, build_engine
from anole.evaluate.timing.turns import TurnSchedule
from anole.targets.base import Device
from benchmarks.common.arguments import parser_for_builds
from benchmarks.common.builds import device_of, rows_of_builds, time_in_turns
from benchmarks.common.rows import print_rows, quartiles, round_row

COLUMNS = ("network", "threads", "own_ms", "tvm_ms", "speedup", "speedup_q1", "speedup_q3", "processes", "rounds")


def main() -> None:
    """Print a row for each network."""
    parser = parser_for_builds(__doc__, rounds=10)
    parser.add_argument("--processes", type=int, default=3, help="processes per kind")
    args = parser.parse_args()
    compare_build = partial(compare, n_processes=args.processes, schedule=TurnSchedule(max_rounds=args.rounds))
    print_rows(COLUMNS, rows_of_builds(args.builds, compare_build))


def compare(folder: Path, n_processes: int, schedule: TurnSchedule) -> Iterator[dict[str, Any]]:
    """Yield the row of a network."""
    build = read_build(folder)
    device, numbers = device_of(build), range(n_processes)
    with TemporaryDirectory() as scratch:
        builds = {"own": folder, "tvm": Path(scratch, "tvm")}
        compile_for_tvm_pool(build, device, builds["tvm"])
        pairs = {(kind, n): partial(start, path, build, device) for n in numbers for kind, path in builds.items()}
        starts = {f"{kind} {number}": start_one for (kind, number), start_one in pairs.items()}
        _, times = time_in_turns(folder, device, lambda _: starts, schedule)
    medians = {kind: np.array([[np.median(turn) for turn in times[f"{kind} {n}"]] for n in numbers]) for kind in builds}
    yield round_row(
        {
            **{"network": build.model, "threads": device.threads, "processes": n_processes},
            **{f"{kind}_ms": 1e3 * np.median(times_s) for kind, times_s in medians.items()},
            **quartiles("speedup", medians["tvm"] / medians["own"]),
            "rounds": len(times["own 0"]),
        }
    )


def start(folder: Path, build: Build, device: Device) -> Engine:
    """Return an engine for a compiled network, on the inputs of its build."""
    return build_engine(folder, timing_inputs(build), device.runs_on, device.threads)


def compile_for_tvm_pool(build: Build, device: Device, folder: Path) -> None:
    """Compile the network of a build with the same configs, but with TVM's thread pool for parallel loops."""
    settings = BuildSettings("tvm_pool", build.preset, build.trials, build.shared, build.seed)
    logging.disable(logging.WARNING)
    with mock.patch.object(type(device), "runtime_objects", lambda *_: ()):
        compile_build(build.model_spec, manifest_of_build(build), settings, recorded_receipts(build), folder)
    logging.disable(logging.NOTSET)


if __name__ == "__main__":
    main()
