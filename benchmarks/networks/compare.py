"""Compares compiled networks with other engines, each in a separate process, all timed in turns, as CSV.

    python -m benchmarks.networks.compare builds/* > docs/results/data/networks.csv
    python -m benchmarks.networks.compare builds/* --rivals torch,torch.compile --rounds 10

Rivals: ``onnxruntime``, ``openvino`` (where it is installed), ``torch`` (eager), ``torch.compile`` (max-autotune, on
a GPU with CUDA graphs), and ``untuned``, the same network compiled with default configs. All run in fp32 without TF32,
except ``openvino.default``, whose precision OpenVINO chooses for the processor (bf16 where that has it; the relative
error shows it). All have the same inputs and threads; an engine sleeps except during its turn. Each round gives a
ratio of medians; the speedup is the median of these ratios, and its spread their quartiles.
"""

from __future__ import annotations

import argparse
import csv
import logging
import os
import sqlite3
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from anole.documents import layout
from anole.documents.build import Build, read_build
from anole.errors import AnoleError, BuildError
from anole.evaluate.comparison import relative_error
from anole.evaluate.engine_process import Started, start_engines
from anole.evaluate.interleave import Pace, Times, take_turns
from anole.measure.site import site_of
from anole.targets import get_target
from anole.targets.base import Device, Place
from benchmarks.networks.engines import OWN, PACKAGES, start_engine
from benchmarks.search.variants import chosen

COLUMNS = (
    *("network", "target", "batch", "threads", "engine", "version", "latency_ms", "latency_q1_ms", "latency_q3_ms"),
    *("speedup", "speedup_q1", "speedup_q3", "relative_error", "start_s", "rounds", "tuned_share", "tuner", "trials"),
    *("tuning_s", "trials_measured"),
)


def main() -> None:
    """Prints a line for each network and engine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="+", type=Path)
    parser.add_argument("--rivals", default=",".join(PACKAGES), help="comma-separated; none if empty")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--database", type=Path, default=layout.DATABASE, help="database with the tuning times")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    rivals = chosen(arguments.rivals, PACKAGES) if arguments.rivals else []
    writer = csv.DictWriter(sys.stdout, COLUMNS)
    writer.writeheader()
    for folder in arguments.builds:
        try:
            writer.writerows(compare(folder, rivals, Pace(rounds=arguments.rounds), arguments.database))
        except AnoleError as error:
            logging.warning("%s: was not compared: %s", folder, error)
        sys.stdout.flush()


def compare(folder: Path, rivals: Sequence[str], pace: Pace, database: Path) -> list[dict[str, Any]]:
    """Returns a row for a build and for each rival that starts.

    Raises:
        AnoleError: the build cannot run on this machine, or an engine exits before its last turn.
    """
    build = read_build(folder)
    device = device_of(build)
    started, times = _measure(folder, device, (OWN, *rivals), pace)
    common = {
        **{"network": build.model, "target": build.target, "batch": build.inputs[0].shape[0]},
        **{"threads": device.threads, "tuned_share": build.coverage.share, "tuner": build.preset},
        **{"trials": build.trials, **effort((task.run_key for task in build.tasks), database)},
    }
    expected = started["torch" if "torch" in started else OWN].outputs
    return [
        _row(
            {**common, "engine": name, "version": version_of(PACKAGES.get(name, OWN))},
            {"relative_error": relative_error(engine.outputs, expected), "start_s": engine.start_s},
            times[name],
            times[OWN],
        )
        for name, engine in started.items()
    ]


def _measure(
    folder: Path, device: Device, names: Sequence[str], pace: Pace
) -> tuple[dict[str, Started], dict[str, list[Times]]]:
    """Returns the reports of the engines that start, and the times of their turns."""
    with tempfile.TemporaryDirectory() as scratch, site_of(device) as site, ExitStack() as running:
        with environment({**device.environment(), **site.environment()}):
            starts = {name: partial(start_engine, name, folder, Path(scratch)) for name in names}
            engines = start_engines(starts, running, folder)
        with site.timing():
            turns = {name: partial(engine.burst, pace.burst_s) for name, engine in engines.items()}
            times = take_turns(turns, pace)
    return {name: engine.started for name, engine in engines.items()}, times


def _row(
    words: Mapping[str, Any],
    figures: Mapping[str, float],
    times: Sequence[Times],
    own: Sequence[Times],
) -> dict[str, Any]:
    """Returns the row of an engine from the seconds of its runs and of the build's, by round."""
    low, middle, high = np.quantile(1e3 * np.concatenate(times), (0.25, 0.5, 0.75))
    ratios = [np.median(theirs) / np.median(mine) for theirs, mine in zip(times, own, strict=True)]
    slow, ratio, fast = np.quantile(ratios, (0.25, 0.5, 0.75))
    row = {
        **{**words, **figures, "rounds": len(times)},
        **{"latency_ms": middle, "latency_q1_ms": low, "latency_q3_ms": high},
        **{"speedup": ratio, "speedup_q1": slow, "speedup_q3": fast},
    }
    return {column: f"{value:.4g}" if isinstance(value, float) else value for column, value in row.items()}


def effort(run_keys: Iterable[str | None], database: Path) -> dict[str, Any]:
    """Returns the effort of some tuning runs; empty if the database lacks one of them. A key of None is no run."""
    runs = sorted({key for key in run_keys if key is not None})
    if not runs or not database.exists():
        return {}
    query = f"""
        select count(*), sum(elapsed_s), sum(trials) from (
            select max(elapsed_s) as elapsed_s, count(*) as trials
            from trial where run_key in ({", ".join("?" * len(runs))}) group by run_key
        )"""
    with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        known, tuning_s, trials = connection.execute(query, runs).fetchone()
    return {"tuning_s": tuning_s, "trials_measured": trials} if known == len(runs) else {}


def version_of(package: str) -> str:
    """Returns the version of a package; empty if it is used without being installed."""
    return next((found.version for found in metadata.distributions(name=package)), "")


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables for processes that are started within the block."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def device_of(build: Build) -> Device:
    """Returns the target of a build that runs on hardware of this machine."""
    target = get_target(build.target_description)
    if target.place is Place.SIMULATOR:
        raise BuildError("a simulated network has no rivals")
    if (absence := target.absence()) is not None:
        raise BuildError(absence)
    return target


if __name__ == "__main__":
    main()
