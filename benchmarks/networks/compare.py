"""Compare compiled networks with other engines, each in a separate process, timed interleaved, as CSV.

    python -m benchmarks.networks.compare builds/* > docs/results/data/networks.csv
    python -m benchmarks.networks.compare builds/* --rivals torch,torch.compile --rounds 10

Baselines: ``onnxruntime``, ``openvino`` and ``ncnn`` (if installed), ``torch`` (eager), ``torch.compile``
(max-autotune, with CUDA graphs on a GPU), and ``untuned``, the same network compiled with default configs. Other
engines run in float32 without TF32, except for integer layers in the file itself, and for ``openvino.default``, whose
precision OpenVINO chooses (see the column ``multiplies``). All have the same inputs and threads; an engine sleeps
except during its turn. The speedup is the median, with quartiles, of the ratios of medians in each round.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from anole.documents import layout
from anole.documents.build import read_build
from anole.evaluate.comparison import relative_error
from anole.evaluate.timing.turns import TurnSchedule
from benchmarks.common.arguments import choose_names, parser_for_builds
from benchmarks.common.builds import device_of, rows_of_builds, time_in_turns
from benchmarks.common.rows import print_rows, quartiles, round_row
from benchmarks.networks.engines import OWN, PACKAGES, start_engine, version_of

COLUMNS = (
    *("network", "target", "batch", "threads", "engine", "version", "latency_ms", "latency_q1_ms", "latency_q3_ms"),
    *("speedup", "speedup_q1", "speedup_q3", "relative_error", "start_s", "rounds", "tuned_share", "tuner", "trials"),
    *("tuning_s", "trials_measured", "multiplies"),
)


def main() -> None:
    """Print a row for each network and engine."""
    parser = parser_for_builds(__doc__, rounds=30, rivals=",".join(PACKAGES))
    parser.add_argument("--database", type=Path, default=layout.DATABASE, help="database with the tuning times")
    args = parser.parse_args()
    baselines = choose_names(args.rivals, PACKAGES) if args.rivals else []
    compare_build = partial(
        compare, baselines=baselines, schedule=TurnSchedule(max_rounds=args.rounds), database=args.database
    )
    print_rows(COLUMNS, rows_of_builds(args.builds, compare_build, "compared"))


def compare(folder: Path, baselines: Sequence[str], schedule: TurnSchedule, database: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for a build, and for each baseline that starts."""
    build = read_build(folder)
    device = device_of(build)

    def starts(scratch: Path) -> dict[str, Any]:
        return {name: partial(start_engine, name, folder, scratch) for name in (OWN, *baselines)}

    started, times = time_in_turns(folder, device, starts, schedule)
    expected = started["torch" if "torch" in started else OWN].outputs
    for name, engine in started.items():
        ratios = [np.median(turn) / np.median(base) for turn, base in zip(times[name], times[OWN], strict=True)]
        yield round_row(
            {
                **{"network": build.model, "target": build.target, "batch": build.inputs[0].shape[0]},
                **{"threads": device.threads, "tuned_share": build.coverage.share, "tuner": build.preset},
                **{"trials": build.trials, **effort((task.run_key for task in build.tasks), database)},
                **{"engine": name, "version": version_of(name), "rounds": len(times[name])},
                **{"relative_error": relative_error(engine.outputs, expected), "start_s": engine.start_s},
                **{"multiplies": build.precision if name == OWN else engine.precision},
                **quartiles("latency", 1e3 * np.concatenate(times[name]), "_ms"),
                **quartiles("speedup", ratios),
            }
        )


def effort(run_keys: Iterable[str | None], database: Path) -> dict[str, Any]:
    """Return the seconds and trials of tuning runs, ignoring keys of None; empty if one is not in the database."""
    runs = sorted({key for key in run_keys if key is not None})
    if not runs or not database.exists():
        return {}
    query = f"""
        select count(*), sum(elapsed_s), sum(trials) from (
            select max(elapsed_s) as elapsed_s, count(*) as trials
            from trial where run_key in ({", ".join("?" * len(runs))}) group by run_key
        )"""
    with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        n_known, tuning_s, trials = connection.execute(query, runs).fetchone()
    return {"tuning_s": tuning_s, "trials_measured": trials} if n_known == len(runs) else {}


if __name__ == "__main__":
    main()
