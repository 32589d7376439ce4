"""Serve the database with Datasette, with its metadata, templates and plugins."""

from __future__ import annotations

import json
import signal
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory

from anole.errors import AnoleError, StoreError
from anole.report.explore.metadata import STATIC, metadata

_REQUIRED_MODULES = ("datasette", "datasette_dashboards")

_SETTINGS = {
    "sql_time_limit_ms": 30_000,
    "facet_time_limit_ms": 30_000,
    "suggest_facets": "off",
    "default_page_size": 50,
    "max_returned_rows": 5000,
    "truncate_cells_html": 120,
}
"""The metadata defines facets: suggesting them would read a million trials once for each column."""

_LARGEST_TASK = """
select task.label from task join run on run.task_key = task.key
group by task.label order by count(*) desc, max(run.started_at) desc limit 1
"""


class ExploreError(AnoleError):
    """Datasette is not installed, or exited with an error."""


def explore(database: Path, options: Sequence[str]) -> None:
    """Serve the database, with further options of ``datasette serve``, until the user ends it.

    Raises:
        ExploreError: Datasette is not installed, or exited with an error.
        StoreError: there is no database.
    """
    missing = [name for name in _REQUIRED_MODULES if find_spec(name) is None]
    if missing:
        raise ExploreError(
            f"{missing[0].replace('_', '-')} is not installed; run `pip install 'anole[explore]'`, or `make explore` "
            "in a checkout"
        )
    with TemporaryDirectory() as folder:
        command = serving(database, Path(folder, "metadata.json"))
        code = _run([*command, *options])
    if code > 0:
        raise ExploreError(f"datasette failed with exit code {code}")


def _run(command: Sequence[str]) -> int:
    """Run a program until it exits or this process is stopped; return its exit code."""
    with Popen(command) as process:
        old_handler = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        try:
            return process.wait()
        except KeyboardInterrupt:
            # The terminal interrupts both processes.
            process.wait()
            return 0
        finally:
            signal.signal(signal.SIGTERM, old_handler)


def serving(database: Path, metadata_path: Path) -> list[str]:
    """Write the metadata of a database to a file, and return the command that serves the database.

    Raises:
        StoreError: there is no database.
    """
    if not database.is_file():
        raise StoreError(f"{database}: there is no such database; `anole merge` creates it")
    try:
        with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            names = [name for (name,) in connection.execute("select name from sqlite_master where type <> 'index'")]
            columns = {
                name: [row[1] for row in connection.execute("select * from pragma_table_xinfo(?)", [name])]
                for name in names
            }
            task = connection.execute(_LARGEST_TASK).fetchone() if {"task", "run"} <= set(names) else None
    except sqlite3.Error as error:
        raise StoreError(f"{database}: {error}; `anole merge` repairs it") from error
    metadata_path.write_text(json.dumps(metadata(database.stem, columns, task and str(task[0]))), encoding="utf-8")
    command = [sys.executable, "-m", "datasette", "serve", str(database), "--metadata", str(metadata_path)]
    folder = Path(__file__).parent
    command += ["--template-dir", str(folder / "templates"), "--plugins-dir", str(folder / "plugins")]
    command += ["--static", f"{STATIC}:{folder / 'static'}"]
    for name, value in _SETTINGS.items():
        command += ["--setting", name, str(value)]
    return command
