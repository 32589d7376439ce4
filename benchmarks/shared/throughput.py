"""Compares how many runs a second several networks at once give, beside other engines, as CSV.

    python -m benchmarks.shared.throughput builds/* > throughput.csv
    python -m benchmarks.shared.throughput builds/* --instances 4 --rivals onnxruntime

Two cases. ``processes``: each build and the next one run at the same time, each in a process of its own; a rate is the
geometric mean of both. ``instances``: one process has several instances of a network, each called by a thread of its
own; a rate is that of all together. A build runs through its own ``load.py``. Engines take turns, each round gives a
ratio of rates, and the speedup is the median of these ratios. Nothing is pinned to a core.
"""

from __future__ import annotations

import argparse
import csv
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from anole.documents.build import read_build
from anole.errors import AnoleError
from anole.evaluate.alone import start_deployed
from anole.evaluate.engine_process import EngineProcess, start_engines
from anole.evaluate.engines import Engine
from anole.evaluate.interleave import Pace, Times, take_turns
from anole.measure.site import site_of
from benchmarks.networks.compare import device_of, environment, version_of
from benchmarks.networks.engines import OWN, PACKAGES, start_engine
from benchmarks.search.variants import chosen

COLUMNS = (
    *("case", "networks", "instances", "threads", "engine", "version", "runs_per_s", "speedup", "speedup_q1"),
    *("speedup_q3", "rounds"),
)
DEFAULT_RIVALS = "onnxruntime,openvino"
RUNS = 8
"""Runs of each instance before all instances wait for one another."""


def main() -> None:
    """Prints a line for each case, network or pair of networks, and engine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="+", type=Path)
    parser.add_argument("--instances", type=int, default=4)
    parser.add_argument("--rivals", default=DEFAULT_RIVALS, help="comma-separated")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--turn", type=float, default=1.0, help="least seconds of a turn")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    names = [OWN, *chosen(arguments.rivals, PACKAGES)]
    pace = Pace(rounds=arguments.rounds, burst_s=arguments.turn, limit_s=600.0)
    writer = csv.DictWriter(sys.stdout, COLUMNS)
    writer.writeheader()
    builds = arguments.builds
    for case, folders in [
        *(("instances", [folder]) for folder in builds),
        *(("processes", [folder, after]) for folder, after in zip(builds, builds[1:] + builds[:1], strict=True)),
    ]:
        try:
            writer.writerows(compare(case, folders, arguments.instances if len(folders) == 1 else 1, names, pace))
        except AnoleError as error:
            logging.warning("%s: was not timed: %s", " and ".join(map(str, folders)), error)
        sys.stdout.flush()


def compare(
    case: str, folders: Sequence[Path], instances: int, names: Sequence[str], pace: Pace
) -> Iterator[dict[str, Any]]:
    """Yields a row for each engine.

    Raises:
        AnoleError: a build cannot run on this machine, or an engine fails.
    """
    builds = [read_build(folder) for folder in folders]
    device = device_of(builds[0])
    with tempfile.TemporaryDirectory() as scratch, site_of(device) as site, ExitStack() as running:
        with environment({**device.environment(), **site.environment()}):
            engines = [
                start_engines(_starts(folder, Path(scratch), instances, names), running, folder, pinned=False)
                for folder in folders
            ]
        started = [name for name in names if all(name in each for each in engines)]
        with site.timing(), ThreadPoolExecutor(len(folders)) as at_once:
            turns = {
                name: partial(_turn, [each[name] for each in engines], instances * RUNS, at_once, pace)
                for name in started
            }
            rates = take_turns(turns, pace)
    common = {"case": case, "networks": "+".join(build.model for build in builds), "instances": instances}
    for name in started:
        ratios = [own[0] / theirs[0] for own, theirs in zip(rates[OWN], rates[name], strict=True)]
        slow, ratio, fast = np.quantile(ratios, (0.25, 0.5, 0.75))
        yield {
            **{**common, "threads": device.threads, "engine": name, "version": version_of(PACKAGES.get(name, OWN))},
            **{"runs_per_s": f"{np.median(rates[name]):.4g}", "rounds": len(ratios)},
            **{"speedup": f"{ratio:.4g}", "speedup_q1": f"{slow:.4g}", "speedup_q3": f"{fast:.4g}"},
        }


def _starts(folder: Path, scratch: Path, instances: int, names: Sequence[str]) -> Mapping[str, Callable[[], Engine]]:
    own = scratch / folder.name
    own.mkdir(exist_ok=True)
    starts = {name: partial(start_engine, name, folder, own) for name in names if name != OWN}
    return {
        name: partial(start_instances, start, instances)
        for name, start in {OWN: partial(start_deployed, folder), **starts}.items()
    }


def start_instances(start: Callable[[], Engine], instances: int) -> Engine:
    """Returns an engine that runs several instances of a network at once, `RUNS` times each, in a thread each."""
    engines = [start() for _ in range(instances)]
    threads = ThreadPoolExecutor(instances)

    def call(engine: Engine) -> None:
        for _ in range(RUNS):
            engine.run()

    return Engine(engines[0].name, lambda: list(threads.map(call, engines)), lambda _: engines[0].compute())


def _turn(engines: Sequence[EngineProcess], runs: int, at_once: ThreadPoolExecutor, pace: Pace) -> Times:
    """Lets engines take a turn at the same time; returns the geometric mean of their runs a second, shape (1,)."""
    turns = list(at_once.map(lambda engine: engine.burst(pace.burst_s, pace.least_runs), engines))
    return np.array([np.exp(np.mean([np.log(runs * len(times) / times.sum()) for times in turns]))])


if __name__ == "__main__":
    main()
