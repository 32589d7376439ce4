"""Compare the throughput of several networks at once with other engines, as CSV.

    python -m benchmarks.shared.throughput builds/* > docs/results/data/throughput.csv
    python -m benchmarks.shared.throughput builds/* --instances 4 --rivals onnxruntime

Two cases. ``processes``: each build and the next one run at the same time, each in its own process; a rate is the
geometric mean of both. ``instances``: one process has several instances of a network, each called by its own thread; a
rate is their sum. A build runs through its own ``load.py``. Engines take turns, each round gives a ratio of rates, and
the speedup is the median of these ratios. Nothing is pinned to a core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from anole.documents.build import read_build
from anole.evaluate.engine_factories import start_deployed
from anole.evaluate.engines import Engine
from anole.evaluate.timing.engine_process import EngineProcess, start_engines
from anole.evaluate.timing.turns import Pace, Times, take_turns
from anole.measure.device_access import device_access
from benchmarks.common.arguments import chosen, parser_for_builds
from benchmarks.common.builds import Starts, device_of, environment, rows_of_builds
from benchmarks.common.rows import print_rows, quartiles, rounded
from benchmarks.networks.engines import OWN, PACKAGES, start_engine, version_of

COLUMNS = (
    *("case", "networks", "instances", "threads", "engine", "version", "runs_per_s", "speedup", "speedup_q1"),
    *("speedup_q3", "rounds"),
)
RUNS = 8
"""Runs of each instance before all instances wait for one another."""


def main() -> None:
    """Print a row for each case, network or pair of networks, and engine."""
    parser = parser_for_builds(__doc__, rounds=6, rivals="onnxruntime,openvino", turn_s=1.0)
    parser.add_argument("--instances", type=int, default=4)
    given = parser.parse_args()
    names = [OWN, *(chosen(given.rivals, PACKAGES) if given.rivals else ())]
    pace = Pace(rounds=given.rounds, burst_s=given.turn, limit_s=600.0)
    pairs = dict(zip(given.builds, given.builds[1:] + given.builds[:1], strict=True))

    def rows_of(case: str, folder: Path) -> Iterator[dict[str, Any]]:
        if case == "instances":
            return compare(case, [folder], given.instances, names, pace)
        return compare(case, [folder, pairs[folder]], 1, names, pace)

    cases = (rows_of_builds(given.builds, partial(rows_of, case)) for case in ("instances", "processes"))
    print_rows(COLUMNS, (row for rows in cases for row in rows))


def compare(
    case: str, folders: Sequence[Path], instances: int, names: Sequence[str], pace: Pace
) -> Iterator[dict[str, Any]]:
    """Yield a row for each engine."""
    builds = [read_build(folder) for folder in folders]
    device = device_of(builds[0])
    with TemporaryDirectory() as scratch, device_access(device) as access, ExitStack() as running:
        with environment({**device.environment(), **access.environment()}):
            engines = [
                start_engines(_starts(folder, Path(scratch), instances, names), running, folder, pinned=False)
                for folder in folders
            ]
        started = [name for name in names if all(name in each for each in engines)]
        with access.timing(), ThreadPoolExecutor(len(folders)) as at_once:
            by_name = {name: [each[name] for each in engines] for name in started}
            turns = {name: partial(_turn, each, instances * RUNS, at_once, pace) for name, each in by_name.items()}
            rates = take_turns(turns, pace)
    for name in started:
        ratios = [own[0] / theirs[0] for own, theirs in zip(rates[OWN], rates[name], strict=True)]
        yield rounded(
            {
                **{"case": case, "networks": "+".join(build.model for build in builds), "instances": instances},
                **{"threads": device.threads, "engine": name, "version": version_of(name)},
                **{"runs_per_s": float(np.median(rates[name])), **quartiles("speedup", ratios), "rounds": len(ratios)},
            }
        )


def _starts(folder: Path, scratch: Path, instances: int, names: Sequence[str]) -> Starts:
    own = scratch / folder.name
    own.mkdir(exist_ok=True)
    starts = {name: partial(start_engine, name, folder, own) for name in names if name != OWN}
    return {
        name: partial(start_instances, start, instances)
        for name, start in {OWN: partial(start_deployed, folder), **starts}.items()
    }


def start_instances(start: Callable[[], Engine], instances: int) -> Engine:
    """Return an engine that runs several instances of a network at once, `RUNS` times each, each in its own thread."""
    engines = [start() for _ in range(instances)]
    threads = ThreadPoolExecutor(instances)

    def call(engine: Engine) -> None:
        for _ in range(RUNS):
            engine.run()

    return Engine(engines[0].name, lambda: list(threads.map(call, engines)), lambda _: engines[0].compute())


def _turn(engines: Sequence[EngineProcess], runs: int, at_once: ThreadPoolExecutor, pace: Pace) -> Times:
    """Let engines take a turn at the same time; return the geometric mean of their runs per second, shape (1,)."""
    turns = list(at_once.map(lambda engine: engine.burst(pace.burst_s, pace.min_runs), engines))
    return np.array([np.exp(np.mean([np.log(runs * len(times) / times.sum()) for times in turns]))])


if __name__ == "__main__":
    main()
