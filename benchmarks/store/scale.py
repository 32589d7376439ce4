"""Time the merges, views and pages of a large project, as CSV.

    python -m benchmarks.store.scale > docs/results/data/store_scale.csv

The project in `--folder`, which is created unless it exists, has `--trials` trials of `--tasks` tasks: shards with
confirmations and failures, as written by an import, and models with builds and evaluations. Shards are merged into an
empty database, then twice again, each time in a new process. Then every view is read for one task and for all, and the
page of every table, view and query is requested from `anole explore`.

Rows of merges have wall clock time, CPU time and peak memory; `start` is the same command without shards. Rows of views
have the number of rows, and the median time over `--repeats` readings; each reading of one task selects another task,
by key or by label. Rows of pages have the time of one load with the first 50 rows, and how many facets were counted
within the time limit.
"""

from __future__ import annotations

import json
import os
import random
import socket
import sqlite3
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from anole.report.explore.server import serving
from benchmarks.common.arguments import make_parser
from benchmarks.common.rows import print_rows
from kit.large_project import make_project

COLUMNS = ("what", "of", "wall_s", "processor_s", "mib", "rows")
VIEWS = ("best_trial", "best_of_run", "tuner_summary", "tuning_curve", "failures", "task_usage", "rejections")
MODEL_VIEWS = ("model_latency", "model_load_latency")


def main() -> None:
    """Print a row for each merge, view and page."""
    parser = make_parser(__doc__)
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--tasks", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--folder", type=Path, help="folder of the project, which is kept  [default: a temporary folder]"
    )
    args = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder = (args.folder or Path(temporary)).absolute()
        if not (folder / "builds").exists():
            make_project(folder, args.tasks, args.trials)
        database = folder / "db/tuning.sqlite"
        rows = chain(merges(folder), views(database, args.repeats), pages(database))
        print_rows(COLUMNS, (dict(zip(COLUMNS, row, strict=True)) for row in rows))


def merges(folder: Path) -> Iterator[tuple[object, ...]]:
    """Yield a row with the shards, and the rows of an empty merge, the first merge, and two merges without changes."""
    for database in folder.glob("db/tuning.sqlite*"):
        database.unlink()
    size_mib = sum(path.stat().st_size for path in (folder / "db/shards").rglob("*.jsonl")) / 2**20
    yield "shards", "files", "", "", f"{size_mib:.0f}", sum(1 for _ in (folder / "db/shards").rglob("*.jsonl"))
    builds = [str(path) for path in sorted((folder / "builds").iterdir())]
    with TemporaryDirectory() as empty:
        yield "start", "nothing", *_merge(Path(empty), ["none"]), 0
    for name in ("first merge", "merge again", "merge again"):
        costs = _merge(folder, builds)
        with closing(sqlite3.connect(folder / "db/tuning.sqlite")) as connection:
            (trials,) = connection.execute("select count(*) from trial").fetchone()
        yield name, "all", *costs, trials


def _merge(folder: Path, builds: Sequence[str]) -> tuple[str, str, str]:
    """Merge in a new process; return the wall clock time, CPU time and peak memory."""
    command = [sys.executable, "-m", "anole", "merge", *builds]
    began_s = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - began_s
    if status:
        raise SystemExit(f"{' '.join(command[:4])} ended with status {status}")
    return f"{wall_s:.2f}", f"{usage.ru_utime + usage.ru_stime:.2f}", f"{usage.ru_maxrss / 1024:.0f}"


def views(database: Path, repeats: int) -> Iterator[tuple[object, ...]]:
    """Yield a row with the time to read each view, for one task by key, by label, and for all tasks."""
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        rng = random.Random(0)
        all_tasks = connection.execute("select key, label from task order by key").fetchall()
        tasks = rng.sample(all_tasks, repeats)
        columns = {view: [row[1] for row in connection.execute(f"pragma table_info({view})")] for view in VIEWS}
        for view in VIEWS:
            if "task_key" in columns[view]:
                yield _read(connection, view, "one task by key", "where task_key = ?", [key for key, _ in tasks])
                yield _read(connection, view, "one task by label", "where label = ?", [label for _, label in tasks])
            yield _read(connection, view, "all", "where ? is null", [None] * repeats)
        for view in MODEL_VIEWS:
            yield _read(connection, view, "all", "where ? is null", [None] * repeats)


def _read(
    connection: sqlite3.Connection, view: str, subset: str, where: str, values: Sequence[str | None]
) -> tuple[object, ...]:
    wall_s, cpu_s, n_rows = [], [], 0
    for value in values:
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        n_rows = sum(1 for _ in connection.execute(f"select * from {view} {where}", [value]))
        wall_s.append(time.perf_counter() - began_s)
        cpu_s.append(time.process_time() - began_cpu_s)
    return view, subset, f"{statistics.median(wall_s):.4f}", f"{statistics.median(cpu_s):.4f}", "", n_rows


def pages(database: Path) -> Iterator[tuple[object, ...]]:
    """Yield a row with the time to load the page of each table, view and query."""
    with TemporaryDirectory() as folder, closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        metadata_file = Path(folder, "metadata.json")
        command = [*serving(database, metadata_file), "--port", str(port)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                _load(port, "/-/versions.json", tries=600)
                metadata = json.loads(metadata_file.read_text())["databases"][database.stem]
                for name, table in metadata["tables"].items():
                    began_s = time.perf_counter()
                    _load(port, f"/{database.stem}/{name}")
                    wall_s = time.perf_counter() - began_s
                    results = json.loads(_load(port, f"/{database.stem}/{name}.json"))["facet_results"]
                    facets = f"{len(results)} of {len(table.get('facets', ()))} facets"
                    yield f"page of {name}", facets, f"{wall_s:.2f}", "", "", ""
                for name in metadata["queries"]:
                    began_s = time.perf_counter()
                    try:
                        _load(port, f"/{database.stem}/{name}")
                        description = "query"
                    except urllib.error.HTTPError as error:
                        description = f"query: {error.code}"
                    yield f"page of {name}", description, f"{time.perf_counter() - began_s:.2f}", "", "", ""
            finally:
                process.terminate()


def _load(port: int, path: str, tries: int = 1) -> bytes:
    """Return the content of a page, retrying until the server answers."""
    for n_left in reversed(range(tries)):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=120) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError:
            raise
        except OSError:
            if not n_left:
                raise
            time.sleep(0.1)
    raise AssertionError("there is at least one try")


if __name__ == "__main__":
    main()
