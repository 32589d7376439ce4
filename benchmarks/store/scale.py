"""Time merges, views and pages of a large project, as CSV.

    python -m benchmarks.store.scale > docs/results/data/store_scale.csv

The project in `--folder`, which is created unless it exists, has `--trials` trials of `--tasks` tasks: shards with
confirmations and failures, as written by an import, and models with builds and evaluations. Shards are merged into an
empty database, then again, each time in a new process. Then every view is read for one task and for all, and the pages
of every table, view and query are requested from `anole explore`.

Rows of merges have wall clock time, CPU time and peak memory; `start` is the same command without shards. Rows of views
have the median time over `--repeats` readings of all rows, and their number; each reading of one task selects another
task, by key or by label. Rows of pages have the time of one load with the first 50 rows, and the number of facets that
were counted in time.
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
from benchmarks.common.arguments import described
from benchmarks.common.rows import print_rows
from kit.large_project import make_project

COLUMNS = ("what", "of", "wall_s", "processor_s", "mib", "rows")
VIEWS = ("best_trial", "best_of_run", "tuner_summary", "tuning_curve", "failures", "task_usage", "rejections")
OTHERS = ("model_latency", "model_load_latency")


def main() -> None:
    """Print a row for each merge, view and page."""
    parser = described(__doc__)
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--tasks", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--folder", type=Path, help="folder of the project, which is kept  [default: a temporary folder]"
    )
    settings = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder = (settings.folder or Path(temporary)).absolute()
        if not (folder / "builds").exists():
            make_project(folder, settings.tasks, settings.trials)
        database = folder / "db/tuning.sqlite"
        rows = chain(merges(folder), views(database, settings.repeats), pages(database))
        print_rows(COLUMNS, (dict(zip(COLUMNS, row, strict=True)) for row in rows))


def merges(folder: Path) -> Iterator[tuple[object, ...]]:
    """Yield the rows of an empty merge, the first merge, and two merges without changes."""
    for database in folder.glob("db/tuning.sqlite*"):
        database.unlink()
    size_mib = sum(path.stat().st_size for path in (folder / "db/shards").rglob("*.jsonl")) / 2**20
    yield "shards", "files", "", "", f"{size_mib:.0f}", sum(1 for _ in (folder / "db/shards").rglob("*.jsonl"))
    builds = [str(path) for path in sorted((folder / "builds").iterdir())]
    with TemporaryDirectory() as nothing:
        yield "start", "nothing", *_merged(Path(nothing), ["none"]), 0
    for what in ("first merge", "merge again", "merge again"):
        took = _merged(folder, builds)
        with closing(sqlite3.connect(folder / "db/tuning.sqlite")) as connection:
            (trials,) = connection.execute("select count(*) from trial").fetchone()
        yield what, "all", *took, trials


def _merged(folder: Path, builds: Sequence[str]) -> tuple[str, str, str]:
    """Return the wall clock time, CPU time and peak memory of a merge in a new process."""
    command = [sys.executable, "-m", "anole", "merge", *builds]
    began_s = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - began_s
    if status:
        raise SystemExit(f"{' '.join(command[:4])} ended with status {status}")
    return f"{wall_s:.2f}", f"{usage.ru_utime + usage.ru_stime:.2f}", f"{usage.ru_maxrss / 1024:.0f}"


def views(database: Path, repeats: int) -> Iterator[tuple[object, ...]]:
    """Yield the time to read each view, for one task by key and by label, and for all tasks."""
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        rng = random.Random(0)
        known = connection.execute("select key, label from task order by key").fetchall()
        tasks = rng.sample(known, repeats)
        columns = {view: [row[1] for row in connection.execute(f"pragma table_info({view})")] for view in VIEWS}
        for view in VIEWS:
            if "task_key" in columns[view]:
                yield _read(connection, view, "one task by key", "where task_key = ?", [key for key, _ in tasks])
                yield _read(connection, view, "one task by label", "where label = ?", [label for _, label in tasks])
            yield _read(connection, view, "all", "where ? is null", [None] * repeats)
        for view in OTHERS:
            yield _read(connection, view, "all", "where ? is null", [None] * repeats)


def _read(
    connection: sqlite3.Connection, view: str, of: str, where: str, values: Sequence[str | None]
) -> tuple[object, ...]:
    wall, processor, n_rows = [], [], 0
    for value in values:
        began_s, busy_s = time.perf_counter(), time.process_time()
        n_rows = sum(1 for _ in connection.execute(f"select * from {view} {where}", [value]))
        wall.append(time.perf_counter() - began_s)
        processor.append(time.process_time() - busy_s)
    return view, of, f"{statistics.median(wall):.4f}", f"{statistics.median(processor):.4f}", "", n_rows


def pages(database: Path) -> Iterator[tuple[object, ...]]:
    """Yield the time to load the page of each table, view and query."""
    with TemporaryDirectory() as folder, closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        written = Path(folder, "metadata.json")
        command = [*serving(database, written), "--port", str(port)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                _loaded(port, "/-/versions.json", tries=600)
                described = json.loads(written.read_text())["databases"][database.stem]
                for name, table in described["tables"].items():
                    began_s = time.perf_counter()
                    _loaded(port, f"/{database.stem}/{name}")
                    wall_s = time.perf_counter() - began_s
                    counted = json.loads(_loaded(port, f"/{database.stem}/{name}.json"))["facet_results"]
                    facets = f"{len(counted)} of {len(table.get('facets', ()))} facets"
                    yield f"page of {name}", facets, f"{wall_s:.2f}", "", "", ""
                for name in described["queries"]:
                    began_s = time.perf_counter()
                    try:
                        _loaded(port, f"/{database.stem}/{name}")
                        of = "query"
                    except urllib.error.HTTPError as error:
                        of = f"query: {error.code}"
                    yield f"page of {name}", of, f"{time.perf_counter() - began_s:.2f}", "", "", ""
            finally:
                process.terminate()


def _loaded(port: int, path: str, tries: int = 1) -> bytes:
    """Return the content of a page, retrying until the server answers."""
    for left in reversed(range(tries)):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=120) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError:
            raise
        except OSError:
            if not left:
                raise
            time.sleep(0.1)
    raise AssertionError("there is at least one try")


if __name__ == "__main__":
    main()
