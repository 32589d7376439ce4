"""The terminal output of the workflow: finished jobs, progress and, at the end, latencies."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from anole.documents import layout
from anole.documents.evaluation import is_off, judged_error
from anole.documents.log import explanations, is_warning, last_result, messages
from anole.errors import AnoleError
from anole.report.pages.database import Database
from anole.report.tables import facts_grid, plain_table
from anole.text_format import NONE, milliseconds, times

_NOTHING_TO_DO = "Nothing to be done"

_KEY_DIGITS = 64

_MAX_SHOWN_JOBS = 3
"""The maximum number of running jobs shown below the progress bar; on a cluster, hundreds may run."""

_UNLIMITED_SIZE = 10_000
"""More columns and lines than any table has, which disables wrapping."""

_LATENCIES = """
select * from model_latency order by build, reference desc
"""
_REFERENCE_NAMES = {"onnxruntime": "ONNX Runtime"}


@dataclass(frozen=True)
class Job:
    """A job that was started, or submitted to a cluster, at `started_s` on the clock `time.monotonic`."""

    rule: str
    wildcards: Sequence[str]
    outputs: Sequence[str]
    logs: Sequence[Path]
    started_s: float

    def __str__(self) -> str:
        arguments = "" if any(len(wildcard) == _KEY_DIGITS for wildcard in self.wildcards) else " ".join(self.wildcards)
        return f"{self.rule} {last_result(self.logs) or arguments}"


class ProgressView:
    """A display of a run's jobs and messages on standard error.

    Args:
        no_color: whether to omit colors, as is done if ``NO_COLOR`` is set or if there is no terminal.
    """

    def __init__(self, no_color: bool = False) -> None:
        # Without a terminal, rich would wrap at 80 columns; it ignores a width without a height if TERM is dumb.
        size = None if sys.stderr.isatty() else _UNLIMITED_SIZE
        self._console = Console(stderr=True, no_color=no_color or None, highlight=False, width=size, height=size)
        self._running: dict[int, Job] = {}
        self._began_at_s, self._has_run, self._has_nothing_to_do = time.time(), False, False
        self._done, self._total = 0, 0
        self._pace: tuple[float, int] | None = None
        self._left_s: tuple[float, float] | None = None
        self._live = Live(get_renderable=self.progress, console=self._console, transient=True, refresh_per_second=4)

    def start(
        self,
        job_id: int,
        rule: str,
        wildcards: Sequence[str],
        outputs: Sequence[str],
        logs: Sequence[str],
        adds_jobs: bool = False,
    ) -> None:
        """Show a started job, which has no outputs if its rule only requests files.

        The remaining time is extrapolated from the start of the first job that adds no other jobs.
        """
        job = Job(rule, wildcards, outputs, [Path(log) for log in logs], time.monotonic())
        self._running[job_id] = job
        if not adds_jobs and self._pace is None:
            self._pace = job.started_s, self._done
        # Standard error may be a file even if colors are forced, as in many CI logs.
        if self._console.is_interactive and self._console.file.isatty():
            self._live.start()

    def finish(self, job_id: int) -> None:
        """Show the result of a job, and the warnings in its log."""
        job = self._running.pop(job_id, None)
        if job is None:
            return
        self._has_run = True
        if not job.outputs:
            return
        subject, _, result = (last_result(job.logs) or ", ".join(job.outputs)).partition(": ")
        spent = f"{time.monotonic() - job.started_s:.1f} s"
        line = Text.assemble((f"{job.rule:8}", "bold green"), f"  {subject:30}  {result:28}  ", (f"{spent:>7}", "dim"))
        self._print(line)
        for warning in filter(is_warning, messages(job.logs)):
            self.tell(warning, logging.WARNING)

    def fail(self, job_id: int, message: str) -> None:
        """Show why a job failed: its log or, if that has no error message, Snakemake's message."""
        job = self._running.pop(job_id, None)
        texts = [path.read_text(errors="replace").strip() for path in job.logs if path.is_file()] if job else []
        if job and explanations(job.logs):
            message = "\n".join([f"{job.rule} failed: {', '.join(map(str, job.logs))}:", *texts])
        self.tell(message, logging.ERROR)

    def advance(self, done: int, total: int) -> None:
        """Update the number of finished jobs and of known jobs."""
        self._done, self._total, now_s = done, total, time.monotonic()
        if self._pace is not None and done > self._pace[1]:
            began_s, done_before = self._pace
            self._left_s = now_s, (now_s - began_s) / (done - done_before) * (total - done)

    def tell(self, message: str, level: int) -> None:
        """Show a message in full."""
        self._has_nothing_to_do |= message.startswith(_NOTHING_TO_DO)
        style = "red" if level >= logging.ERROR else "yellow" if level >= logging.WARNING else "dim"
        if message:
            self._print(Text(message, style))

    def close(self) -> None:
        """Stop the progress display, and show the latencies of all builds if they are merged."""
        self._live.stop()
        is_new = layout.DATABASE.exists() and layout.DATABASE.stat().st_mtime >= self._began_at_s
        if not (self._has_run and is_new) and not (self._has_nothing_to_do and layout.DATABASE.exists()):
            return
        try:
            with self._console.capture() as captured:
                self._console.print(render_results(layout.DATABASE))
        except AnoleError as error:
            self.tell(str(error), logging.WARNING)
        else:
            # Strip the trailing padding of lines.
            for line in captured.get().splitlines():
                print(line.rstrip(), file=sys.stderr)

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)

    def progress(self) -> RenderableType:
        """Render the bottom lines: the progress, the time left, and the newest jobs."""
        status = f"{self._done}/{self._total} jobs" if self._total else ""
        if self._left_s is not None:
            estimated_at_s, estimate_s = self._left_s
            left_s = int(estimate_s - (time.monotonic() - estimated_at_s))
            status += f", about {timedelta(seconds=left_s)} left" if left_s > 0 else ""
        overall = Table.grid(padding=(0, 1))
        overall.add_row(ProgressBar(total=self._total or None, completed=self._done, width=20), status)
        newest = list(self._running.values())[-_MAX_SHOWN_JOBS:]
        return Group(overall, *(Text(str(job), "dim", no_wrap=True, overflow="ellipsis") for job in newest))


def render_results(database: Path) -> RenderableType:
    """Render the latencies of the builds in a database, and the commands to try next.

    Raises:
        StoreError: the database is missing or cannot be read.
    """
    with Database(database) as db:
        rows = db.query(_LATENCIES).records()
    if not rows:
        return Group()
    build = layout.build_path(rows[0]["build"])
    steps = {"anole report": "write an HTML report", f"anole run {build} --random": "run the network on random inputs"}
    return Group("", render_latencies(rows), "", Text("Next:", "bold"), facts_grid(steps.items()))


def render_latencies(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Render latencies of builds: rows with the columns of the table model_latency, one for each reference."""
    builds = dict.fromkeys(row["build"] for row in rows)
    references = dict.fromkeys(row["reference"] for row in rows)
    rows_by_build = [{row["reference"]: row for row in rows if row["build"] == build} for build in builds]
    titles = ("in", "ms", *(_REFERENCE_NAMES.get(name, name) for name in references), "error")
    table = plain_table(("build",), titles, (_row(by_reference, references) for by_reference in rows_by_build))
    return Group(table, Text("ms per run and its precision; in brackets, the speedup of the build", "dim"))


def _row(by_reference: Mapping[str, Mapping[str, Any]], references: Iterable[str]) -> tuple[str, ...]:
    """Return the cells of a build, given its row for each reference."""
    any_row = next(iter(by_reference.values()))
    error = judged_error(any_row["exact_error"], (row["relative_error"] for row in by_reference.values()))
    cells = [NONE if row is None else _reference_cell(row, error) for row in map(by_reference.get, references)]
    error_cell = f"{error:.1e}" if error else "0"
    build = str(layout.build_path(any_row["build"])), any_row["precision"] or NONE, milliseconds(any_row["latency_s"])
    return *build, *cells, error_cell


def _reference_cell(row: Mapping[str, Any], error: float) -> str:
    """Return a reference's latency, its precision if it differs, the build's speedup, and its error if it is off."""
    precision = f" {row['reference_precision']}" if row["reference_precision"] != row["precision"] else ""
    off = f", off by {row['relative_error']:.1e}" if is_off(row["relative_error"], error) else ""
    return f"{milliseconds(row['reference_latency_s'])}{precision} ({times(row['speedup'])}{off})"
