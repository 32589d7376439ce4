"""Compare engines with one or several threads in a control group that limits their CPU time, as CSV.

    python -m benchmarks.shared.quota builds/* > docs/results/data/quota.csv
    python -m benchmarks.shared.quota builds/* --processors 1.5 --rivals onnxruntime

Needs permission to create control groups. An engine with ``own`` threads chooses their number itself, as in a
container. A build runs through its own ``load.py``. Every engine has its own process and control group; engines are
timed interleaved. Rates are runs per second over entire turns, because a limited process is suspended for a part of
each 100 ms. A speedup is the median over rounds of the rate of the build with ``own`` threads over an engine's rate.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import numpy as np

from anole.documents.build import read_build
from anole.errors import AnoleError
from anole.evaluate.engine_factories import start_deployed
from anole.evaluate.engines import Engine
from anole.evaluate.timing.engine_process import start_engines
from anole.evaluate.timing.turns import TurnSchedule, take_turns
from anole.measure.device_access import device_access
from benchmarks.common.arguments import choose_names, parser_for_builds
from benchmarks.common.builds import device_of, rows_of_builds
from benchmarks.common.rows import print_rows, quartiles, round_row
from benchmarks.networks.engines import OWN, PACKAGES, start_engine, version_of

COLUMNS = (
    *("network", "processors", "engine", "version", "threads", "runs_per_s", "speedup", "speedup_q1", "speedup_q3"),
    "rounds",
)
GROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
THREADS_VARIABLE = "ANOLE_NUM_THREADS"


def main() -> None:
    """Print a row for each network, engine and number of threads."""
    parser = parser_for_builds(__doc__, rounds=6, rivals="onnxruntime", turn_s=1.0)
    parser.add_argument("--processors", type=float, default=1.0, help="limit in CPU seconds per second")
    args = parser.parse_args()
    baselines = choose_names(args.rivals, PACKAGES) if args.rivals else []
    schedule = TurnSchedule(max_rounds=args.rounds, min_burst_s=args.turn, limit_s=600.0)
    compare_build = partial(compare, n_cpus=args.processors, baselines=baselines, schedule=schedule)
    print_rows(COLUMNS, rows_of_builds(args.builds, compare_build))


def compare(folder: Path, n_cpus: float, baselines: Sequence[str], schedule: TurnSchedule) -> Iterator[dict[str, Any]]:
    """Yield a row for each engine and number of threads; the first is the build with its own choice of threads."""
    build = read_build(folder)
    device = device_of(build)
    engines = [(OWN, None), *((name, n) for name in (OWN, *baselines) for n in sorted({1, device.threads}))]
    with TemporaryDirectory() as scratch, device_access(device) as access, ExitStack() as running:
        starts = {}
        for name, threads in engines:
            group = running.enter_context(create_limited_group(n_cpus))
            starts[f"{name} {threads}"] = partial(start_within, group, name, threads, folder, Path(scratch))
        started = start_engines(starts, running, folder, pinned=False)
        with access.timing():
            timers = {name: partial(engine.burst, schedule.min_burst_s) for name, engine in started.items()}
            times = take_turns(timers, schedule)
    rates = {name: [len(turn) / turn.sum() for turn in turns] for name, turns in times.items()}
    for name, threads in engines:
        if (runs_per_s := rates.get(f"{name} {threads}")) is not None:
            yield {
                **{"network": build.model, "processors": n_cpus, "engine": name, "threads": threads or "own"},
                **{"version": version_of(name), "rounds": len(runs_per_s)},
                **round_row({"runs_per_s": float(np.median(runs_per_s))}),
                **round_row(quartiles("speedup", np.divide(rates[f"{OWN} None"], runs_per_s))),
            }


def start_within(group: Path, name: str, threads: int | None, folder: Path, scratch: Path) -> Engine:
    """Move the calling process to a control group, and start an engine in it."""
    (group / "cgroup.procs").write_text(str(os.getpid()))
    os.environ.pop(THREADS_VARIABLE, None)
    if threads is not None:
        os.environ[THREADS_VARIABLE] = str(threads)
    if name == OWN:
        return start_deployed(folder)
    return start_engine(name, folder, scratch, threads)


@contextmanager
def create_limited_group(processors: float) -> Iterator[Path]:
    """Create a control group with a limit in CPU seconds per second, and yield its folder.

    Raises:
        AnoleError: control groups cannot be created on this machine.
    """
    is_cgroup_v1 = (GROUPS / "cpu").is_dir()
    quota_us = round(processors * PERIOD_US)
    limits: dict[str, object] = {"cpu.cfs_period_us": PERIOD_US, "cpu.cfs_quota_us": quota_us}
    if not is_cgroup_v1:
        limits = {"cpu.max": f"{quota_us} {PERIOD_US}"}
    with ExitStack() as cleanup:
        try:
            group = Path(mkdtemp(prefix="anole-quota-", dir=GROUPS / "cpu" if is_cgroup_v1 else GROUPS))
            cleanup.callback(group.rmdir)
            for name, limit in limits.items():
                (group / name).write_text(str(limit))
        except OSError as error:
            raise AnoleError(f"{error.filename}: cannot create a control group: {error.strerror}") from error
        yield group


if __name__ == "__main__":
    main()
