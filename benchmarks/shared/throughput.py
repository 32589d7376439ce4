"""Compare the throughput of builds with other engines when several networks run concurrently, as CSV.

    python -m benchmarks.shared.throughput builds/* > docs/results/data/throughput.csv
    python -m benchmarks.shared.throughput builds/* --instances 4 --rivals onnxruntime

There are two cases. ``processes``: each build and the next one run at the same time, each in its own process; a rate is
the geometric mean of both. ``instances``: one process runs several instances of a network, in as many threads; a rate
is the sum over the instances. A build runs through its own ``load.py``. Engines are timed interleaved, each round gives
a ratio of rates, and the speedup is the median of these ratios. Nothing is pinned to a core.
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
from anole.evaluate.timing.turns import Times, TurnSchedule, take_turns
from anole.measure.device_access import device_access
from benchmarks.common.arguments import choose_names, parser_for_builds
from benchmarks.common.builds import Starts, device_of, rows_of_builds, set_environment
from benchmarks.common.rows import print_rows, quartiles, round_row
from benchmarks.networks.engines import OWN, PACKAGES, start_engine, version_of

COLUMNS = (
    *("case", "networks", "instances", "threads", "engine", "version", "runs_per_s", "speedup", "speedup_q1"),
    *("speedup_q3", "rounds"),
)
N_RUNS = 8
"""Runs of each instance before all instances wait for one another."""


def main() -> None:
    """Print a row for each case, network or pair of networks, and engine."""
    parser = parser_for_builds(__doc__, rounds=6, rivals="onnxruntime,openvino", turn_s=1.0)
    parser.add_argument("--instances", type=int, default=4)
    args = parser.parse_args()
    names = [OWN, *(choose_names(args.rivals, PACKAGES) if args.rivals else ())]
    schedule = TurnSchedule(max_rounds=args.rounds, min_burst_s=args.turn, limit_s=600.0)
    pairs = dict(zip(args.builds, args.builds[1:] + args.builds[:1], strict=True))

    def rows_of(case: str, folder: Path) -> Iterator[dict[str, Any]]:
        if case == "instances":
            return compare(case, [folder], args.instances, names, schedule)
        return compare(case, [folder, pairs[folder]], 1, names, schedule)

    cases = (rows_of_builds(args.builds, partial(rows_of, case)) for case in ("instances", "processes"))
    print_rows(COLUMNS, (row for rows in cases for row in rows))


def compare(
    case: str, folders: Sequence[Path], instances: int, names: Sequence[str], schedule: TurnSchedule
) -> Iterator[dict[str, Any]]:
    """Yield a row for each engine."""
    builds = [read_build(folder) for folder in folders]
    device = device_of(builds[0])
    with TemporaryDirectory() as scratch, device_access(device) as access, ExitStack() as running:
        with set_environment({**device.environment(), **access.environment()}):
            engines = [
                start_engines(_starts(folder, Path(scratch), instances, names), running, folder, pinned=False)
                for folder in folders
            ]
        started = [name for name in names if all(name in by_name for by_name in engines)]
        with access.timing(), ThreadPoolExecutor(len(folders)) as executor:
            groups = {name: [by_name[name] for by_name in engines] for name in started}
            timers = {
                name: partial(_turn, group, instances * N_RUNS, executor, schedule) for name, group in groups.items()
            }
            rates = take_turns(timers, schedule)
    for name in started:
        ratios = [build[0] / engine[0] for build, engine in zip(rates[OWN], rates[name], strict=True)]
        yield round_row(
            {
                **{"case": case, "networks": "+".join(build.model for build in builds), "instances": instances},
                **{"threads": device.threads, "engine": name, "version": version_of(name)},
                **{"runs_per_s": float(np.median(rates[name])), **quartiles("speedup", ratios), "rounds": len(ratios)},
            }
        )


def _starts(folder: Path, scratch: Path, instances: int, names: Sequence[str]) -> Starts:
    files = scratch / folder.name
    files.mkdir(exist_ok=True)
    starts = {name: partial(start_engine, name, folder, files) for name in names if name != OWN}
    return {
        name: partial(start_instances, start, instances)
        for name, start in {OWN: partial(start_deployed, folder), **starts}.items()
    }


def start_instances(start: Callable[[], Engine], instances: int) -> Engine:
    """Return an engine that executes each of several instances `N_RUNS` times per call, with as many threads."""
    engines = [start() for _ in range(instances)]
    executor = ThreadPoolExecutor(instances)

    def call(engine: Engine) -> None:
        for _ in range(N_RUNS):
            engine.run()

    return Engine(engines[0].name, lambda: list(executor.map(call, engines)), lambda _: engines[0].compute())


def _turn(engines: Sequence[EngineProcess], runs: int, executor: ThreadPoolExecutor, schedule: TurnSchedule) -> Times:
    """Run engines concurrently for one turn; return the geometric mean of their runs per second, shape (1,)."""
    turns = list(executor.map(lambda engine: engine.burst(schedule.min_burst_s, schedule.min_runs), engines))
    return np.array([np.exp(np.mean([np.log(runs * len(times) / times.sum()) for times in turns]))])


if __name__ == "__main__":
    main()
