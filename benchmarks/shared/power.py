"""Measure the power and error rate of `anole compare` for a planted slowdown under background load, as CSV.

    python -m benchmarks.shared.power builds/BUILD --trials 100 > docs/results/data/compare_power.csv

A build is compared with a copy of itself, and with a copy that takes a few percent longer: after each run, it is busy
for this share of the time of an undisturbed run. Trials of both kinds alternate. Each trial makes a new copy, and has
the limits and threshold of `anole compare`.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from anole.documents.build import Build, read_build
from anole.evaluate.engine_factories import start_deployed
from anole.evaluate.engines import Engine
from anole.evaluate.timing.load import busy_processes
from anole.evaluate.timing.pairs import PairTimer
from anole.evaluate.timing.sequential import compare_rounds
from anole.measure.device_access import device_access
from anole.targets import get_device
from benchmarks.common.arguments import described, listed
from benchmarks.common.rows import print_rows

COLUMNS = (
    *("build", "threads", "neighbours", "planted_percent", "trial", "verdict", "change_percent", "low_percent"),
    *("high_percent", "rounds", "seconds", "undisturbed", "load"),
)
_CALIBRATION_S, _MIN_RUNS, _MAX_RUNS = 0.1, 30, 300


def main() -> None:
    """Print a row for each trial."""
    parser = described(__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("--trials", type=int, default=100, help="number of trials per kind")
    parser.add_argument("--first", type=int, default=0, help="seed of the first trial")
    parser.add_argument("--planted", type=listed(float), default=(0.0, 2.0), help="slowdowns, comma-separated percents")
    parser.add_argument("--threshold", type=float, default=1.0, help="percent")
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit of a trial")
    parser.add_argument("--neighbours", type=int, default=1)
    print_rows(COLUMNS, trials(parser.parse_args()))


def trials(args: Any) -> Iterator[dict[str, Any]]:
    """Yield the row of each trial."""
    build = read_build(args.build)
    common = {"build": args.build.name, "threads": build.threads, "neighbours": args.neighbours}
    for trial in range(args.first, args.first + args.trials):
        for planted in args.planted:
            with TemporaryDirectory() as scratch, busy_processes(args.neighbours):
                copy = shutil.copytree(args.build, Path(scratch, "copy"))
                folders = args.build.resolve(), copy
                row = measure(build, folders, planted / 100, args.threshold / 100, args.seconds, trial)
            yield {**common, "planted_percent": f"{planted:g}", "trial": trial, **row}


def measure(
    build: Build, folders: tuple[Path, Path], planted: float, threshold: float, max_s: float, seed: int
) -> dict[str, Any]:
    """Compare a build with its copy, slowed down by a planted share, and return the row of the result."""
    device = get_device(build.target_description)
    starts = partial(start_longer, folders[0], 0.0), partial(start_longer, folders[1], planted)
    with device_access(device) as access:
        timer = PairTimer(starts, device.preload, {**device.environment(), **access.environment()}, build.name, seed)
        with access.timing():
            began_s = time.monotonic()
            ratio = compare_rounds(timer.take, threshold, max_s, 1000)
            seconds = time.monotonic() - began_s
    undisturbed = mean(round_.undisturbed for round_ in timer.rounds)
    ratios = {"change": ratio.value, "low": ratio.low, "high": ratio.high}
    return {
        "verdict": ratio.verdict.value,
        **{f"{name}_percent": f"{100 * value - 100:.3f}" for name, value in ratios.items()},
        **{"rounds": ratio.rounds, "seconds": f"{seconds:.1f}"},
        **{"undisturbed": f"{undisturbed:.2f}", "load": f"{os.getloadavg()[0]:.1f}"},
    }


def start_longer(folder: Path, share: float) -> Engine:
    """Return an engine for a build that is busy for a share of the latency after each run."""
    engine = start_deployed(folder)
    extra_s = share * _fastest_s(engine.run)

    def run() -> Any:
        result = engine.run()
        # Also with a share of 0, so both engines have the overhead of the call.
        _work(extra_s)
        return result

    return replace(engine, run=run)


def _work(seconds: float) -> None:
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        pass


def _fastest_s(run: Callable[[], object]) -> float:
    """Return the mean seconds of the fastest tenth of `_MIN_RUNS` to `_MAX_RUNS` runs."""
    times_s: list[float] = []
    began_s = time.perf_counter()
    while len(times_s) < _MIN_RUNS or (len(times_s) < _MAX_RUNS and time.perf_counter() < began_s + _CALIBRATION_S):
        before_s = time.perf_counter()
        run()
        times_s.append(time.perf_counter() - before_s)
    return mean(sorted(times_s)[: max(3, len(times_s) // 10)])


if __name__ == "__main__":
    main()
