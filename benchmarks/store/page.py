"""Measure the time to write and to open the report, by the number of trials in the database, as CSV.

    python -m benchmarks.store.page > docs/results/data/report_scale.csv

The database is synthetic: four presets with five seeds, about 200 trials per run, a tenth of them failed, and builds
with kernels and references. Writing is measured in wall clock time and CPU time. Opening is the wall clock time of a
headless Chromium that renders the entire page, less the time for an empty page: each is the fastest of several runs, in
new processes with new profiles.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from anole.merge.schema import create_tables, create_views
from anole.report.pages.report import write_report
from benchmarks.common.arguments import list_of, make_parser
from benchmarks.common.rows import print_rows

N_TRIALS = (1_000, 10_000, 100_000, 1_000_000)
COLUMNS = ("trials", "runs", "builds", "make_s", "make_cpu_s", "page_bytes", "open_s", "empty_s", "charts")
_PRESETS = ("anole", "autotvm", "chameleon", "release")
_SEEDS = range(5)
_N_TRIALS_PER_RUN = 200
Row = Mapping[str, Any]

_EMPTY = '<!doctype html><html lang="en"><title>empty</title><p>empty</p></html>'
_NOW = "2026-11-24T10:00:00.000Z"


def main() -> None:
    """Print a row for each size."""
    parser = make_parser(__doc__)
    parser.add_argument("--trials", type=list_of(int), default=N_TRIALS, help="sizes of the database, comma-separated")
    parser.add_argument("--builds", type=int, default=20, help="number of builds")
    parser.add_argument("--opens", type=int, default=7, help="number of openings per page")
    args = parser.parse_args()
    print_rows(COLUMNS, (measure(trials, args.builds, args.opens) for trials in args.trials))


def measure(trials: int, builds: int, opens: int) -> Row:
    """Return the row of a size."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        runs = fill(folder / "tuning.sqlite", trials, builds)
        begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
        write_report(folder / "tuning.sqlite", folder / "report.html", folder, None)
        make_s, make_cpu_s = time.perf_counter() - begin_s, time.process_time() - begin_cpu_s
        (folder / "empty.html").write_text(_EMPTY)
        page, empty = folder / "report.html", folder / "empty.html"
        times_s = [(open_page(page), open_page(empty)) for _ in range(opens)]
        page_s, empty_s = (min(times) for times in zip(*times_s, strict=True))
        return {
            **{"trials": trials, "runs": runs, "builds": builds, "make_s": f"{make_s:.2f}"},
            **{"make_cpu_s": f"{make_cpu_s:.2f}", "page_bytes": page.stat().st_size},
            **{"open_s": f"{page_s - empty_s:.2f}", "empty_s": f"{empty_s:.2f}"},
            "charts": page.read_text().count('<div class="chart"'),
        }


def fill(path: Path, trials: int, builds: int) -> int:
    """Write a database with a number of trials, and return the number of runs."""
    db, rng = sqlite3.connect(path), random.Random(0)
    create_tables(db)
    tasks = [f"{number:064x}" for number in range(max(1, trials // (len(_PRESETS) * len(_SEEDS) * _N_TRIALS_PER_RUN)))]
    runs = [(task, preset, seed) for task in tasks for preset in _PRESETS for seed in _SEEDS]
    with db:
        _insert(db, "task", map(_task, tasks))
        _insert(db, "run", (_run(number, *run) for number, run in enumerate(runs)))
        for number, run in enumerate(runs):
            _insert(db, "trial", _trials(number, *run, trials // len(runs), rng))
        for number in range(builds):
            _fill_build(db, f"network{number}", rng)
    create_views(db)
    db.close()
    return len(runs)


def _task(key: str) -> Row:
    label = f"conv2d {int(key, 16)}"
    row = {"key": key, "operator": "conv2d", "label": label, "workload": "{}", "target": "{}", "flop": 10**9}
    return {**row, "template_version": 1}


def _run(number: int, task: str, preset: str, seed: int) -> Row:
    row = {"key": f"{number:064x}", "task_key": task, "preset": preset, "seed": seed, "tuner_version": 4, "threads": 2}
    empty = {"settings": "{}", "host": "{}", "versions": "{}", "shard_sha256": ""}
    return {**row, **empty, "started_at": _NOW, "shard_bytes": 0}


def _trials(run: int, task: str, preset: str, seed: int, count: int, rng: random.Random) -> Iterator[Row]:
    slowness = 1 + 0.05 * _PRESETS.index(preset)
    for number in range(count):
        failed = rng.random() < 0.1
        yield {
            "run_key": f"{run:064x}",
            "number": number,
            "task_key": task,
            "iteration": number // 8,
            "config": json.dumps({"tile_f": [rng.randrange(64), 1, 16], "unroll": number % 2}),
            "status": "run_error" if failed else "ok",
            "error": f"Segmentation fault\n{number}" if failed else None,
            "latency_s": None if failed else 1e-3 * slowness * (1 + rng.expovariate(1 + number / 10)),
            "repeats": 5,
            "build_s": 0.1,
            "run_s": 0.02,
            "elapsed_s": 0.15 * (number + 1),
            "created_at": _NOW,
        }


def _fill_build(db: sqlite3.Connection, model: str, rng: random.Random) -> None:
    """Write a build with two references and forty kernels."""
    build, share = {"build": f"{model}-cpu"}, {"coverage_flop_share": 0.9}
    row = {"name": build["build"], "model": model, "target": "cpu", "preset": "anole", "trials": 64, "seed": 0}
    flop = {"tuned_flop": 9, "total_flop": 10, **share, "size_bytes": 10**7}
    _insert(db, "model", [{"name": model, "source": "torch:x:y", "inputs": "{}"}])
    _insert(db, "build", [{**row, **flop, "manifest": "{}", "created_at": _NOW}])
    common = {"rounds": 30, "threads": 2, "host": "{}", "versions": "{}", "created_at": _NOW}
    for reference in ("onnxruntime", "torch"):
        ratio = 1 + rng.random()
        speedup = {"speedup": ratio, "speedup_low": 0.95 * ratio, "speedup_high": 1.05 * ratio, "relative_error": 1e-6}
        latency = {"latency_s": 0.01, "latency_std_s": 1e-4, "reference_latency_s": 0.01 * ratio}
        _insert(db, "evaluation", [{**build, "reference": reference, **latency, **speedup, **share, **common}])
    peaks = {"whole_s": 0.01, "peak_flop_per_s": 5e11, "peak_bytes_per_s": 1e11}
    _insert(db, "kernel_profile", [{**build, **peaks, "created_at": _NOW}])
    for number in range(40):
        kernel = {"number": number, "kernel": f"fused_conv2d{number}", "layers": "[]", "calls": 1, "latency_s": 2.5e-4}
        work = {"flop": rng.randrange(10**7, 10**8), "size_bytes": 10**6}
        _insert(db, "kernel_latency", [{**build, **kernel, **work}])


def _insert(db: sqlite3.Connection, table: str, rows: Iterable[Row]) -> None:
    for first in (rows := iter(rows)):
        columns = ", ".join(first)
        placeholders = ", ".join(f":{name}" for name in first)
        db.executemany(f"insert into {table} ({columns}) values ({placeholders})", chain([first], rows))


def open_page(page: Path) -> float:
    """Return the seconds that a browser takes to start, render a page, print its DOM, and exit."""
    browser = shutil.which("chromium") or "chromium"
    with tempfile.TemporaryDirectory() as profile:
        command = [
            *(browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"),
            *("--window-size=1400,2000", "--virtual-time-budget=20000", "--dump-dom", page.as_uri()),
        ]
        begin_s = time.perf_counter()
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        elapsed_s = time.perf_counter() - begin_s
    if 'class="chart"' in result.stdout and 'data-done="true"' not in result.stdout:
        raise SystemExit(f"{page}: was not rendered")
    return elapsed_s


if __name__ == "__main__":
    main()
