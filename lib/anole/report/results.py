"""The latencies of all builds beside their references, as a table for a terminal, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from anole.documents import layout
from anole.report.pages.database import Database
from anole.report.tables import facts_of, table_of
from anole.words import NONE, milliseconds, times

_LATENCIES = """
select build, reference, latency_s, reference_latency_s, speedup, relative_error
from model_latency
order by build, reference desc
"""
_NAMES = {"onnxruntime": "ONNX Runtime"}


def render_results(database: Path) -> RenderableType:
    """Returns the table of the builds that a database has latencies of, and the commands that may come next.

    Args:
        database: the project's database.

    Raises:
        StoreError: the database is missing or cannot be read.
    """
    with Database(database) as opened:
        rows = opened.query(_LATENCIES).records()
    builds = dict.fromkeys(row["build"] for row in rows)
    references = dict.fromkeys(row["reference"] for row in rows)
    if not builds:
        return Group()
    of_builds = [{row["reference"]: row for row in rows if row["build"] == build} for build in builds]
    titles = ("ms", *(_NAMES.get(name, name) for name in references), "error")
    table = table_of(("build",), titles, (_row(beside, references) for beside in of_builds))
    meaning = Text("ms of one run; in brackets, how many times as fast the build is", "dim")
    first = layout.build_path(next(iter(builds)))
    steps = {"anole report": "a page about all of this", f"anole run {first} --random": "the network on random inputs"}
    return Group("", table, meaning, "", Text("Next:", "bold"), facts_of(steps.items()))


def _row(beside: Mapping[str, Mapping[str, Any]], references: Iterable[str]) -> tuple[str, ...]:
    """Returns the cells of a build, from its row beside each of its references."""
    any_of = next(iter(beside.values()))
    cells = [_beside(beside[name]) if name in beside else NONE for name in references]
    error = max(row["relative_error"] for row in beside.values())
    shown = f"{error:.1e}" if error else "0"
    return str(layout.build_path(any_of["build"])), milliseconds(any_of["latency_s"]), *cells, shown


def _beside(row: Mapping[str, Any]) -> str:
    return f"{milliseconds(row['reference_latency_s'])} ({times(row['speedup'])})"
