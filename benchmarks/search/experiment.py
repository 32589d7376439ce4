"""Resumable experiments: lists of jobs that append their rows to a file."""

from __future__ import annotations

import csv
import io
import logging
import lzma
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from anole.errors import cause
from anole.files import write_atomically
from anole.keys import content_key
from benchmarks.common.rows import open_csv, read_rows

Job = tuple[str, ...]
"""A job: a string for each key of its experiment."""
Row = Mapping[str, Any]

FOLDER = Path("docs/results/data/search")
"""The folder of the files of experiments on search methods."""

LOG_EVERY_S = 60.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Experiment:
    """A list of jobs, and a function that runs one.

    Attributes:
        name: the name of the experiment and its file.
        keys: the columns that identify a job. The last one is the version: rows of the same job in another version are
            replaced. Other rows stay, even if this machine cannot run their jobs.
        columns: the other columns.
        jobs: returns all jobs in order of importance, so an interrupted experiment still allows comparisons.
        run: runs a job in another process and returns its rows, without the keys.
        is_timed: whether jobs measure time, which excludes parallel jobs.
        suffix: the suffix of its file; ``.csv.xz`` is compressed.
    """

    name: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    jobs: Callable[[], Iterable[Job]]
    run: Callable[[Job], Sequence[Row]]
    is_timed: bool = False
    suffix: str = ".csv"


@dataclass
class Progress:
    """A progress log with a line per minute; jobs of earlier calls count as done."""

    name: str
    n_done: int
    n_jobs: int
    _began_s: float = field(default_factory=time.monotonic)
    _logged_s: float = field(default_factory=time.monotonic)
    _fresh: int = 0

    def advance(self) -> None:
        """Count one more job."""
        self.n_done += 1
        self._fresh += 1
        if time.monotonic() > self._logged_s + LOG_EVERY_S:
            self.report()

    def report(self) -> None:
        """Log the progress, and an estimate of the remaining time."""
        self._logged_s = time.monotonic()
        each_s = (self._logged_s - self._began_s) / max(1, self._fresh)
        left = f", about {each_s * (self.n_jobs - self.n_done) / 60:.0f} minutes left" if self._fresh else ""
        logger.info("%s: %d of %d runs%s", self.name, self.n_done, self.n_jobs, left)


def run_experiment(
    experiment: Experiment, path: Path, ends_s: float, processes: int = 1, only: Collection[str] = ()
) -> bool:
    """Run the jobs that are missing in a file until the time is up, and return whether all are done.

    All rows of a job are appended when it ends, so an interruption loses only running jobs. Failed jobs are logged, and
    append no rows.

    Args:
        experiment: the experiment.
        path: its file, created if missing.
        ends_s: the time of the monotonic clock after which no job is started.
        processes: the number of parallel jobs; timed experiments run one at a time.
        only: run only jobs that have all of these among their keys.
    """
    jobs = list(dict.fromkeys(experiment.jobs()))
    done = _drop_stale_rows(experiment, path, set(jobs))
    progress = Progress(experiment.name, len(jobs) - sum(job not in done for job in jobs), len(jobs))
    missing = [job for job in jobs if job not in done and set(only) <= set(job)]
    progress.report()
    for job, rows in _run_jobs(experiment, missing, ends_s, 1 if experiment.is_timed else processes):
        with open_csv(path, "at") as file:
            file.write(_format(experiment, [dict(zip(experiment.keys, job, strict=True)) | dict(row) for row in rows]))
        progress.advance()
    if missing and path.suffix == ".xz":
        # Rows that are appended one by one are compressed poorly.
        _write(experiment, path, read_rows(path))
    progress.report()
    return progress.n_done == progress.n_jobs


def version_of(*parts: Any) -> str:
    """Return a version, a hash of the given parts."""
    return content_key(list(parts))[:12]


def _drop_stale_rows(experiment: Experiment, path: Path, jobs: set[Job]) -> set[Job]:
    """Rewrite the file with its header and without outdated rows, and return the jobs that have rows."""
    names = {*experiment.keys, *experiment.columns}
    rows, versioned = read_rows(path), {job[:-1] for job in jobs}

    def stays(row: Mapping[str, str]) -> bool:
        # A column that is newer than a row stays empty.
        if not set(experiment.keys) <= set(row) <= names:
            return False
        job = _job(experiment, row)
        return job in jobs or job[:-1] not in versioned

    kept = list(filter(stays, rows))
    if len(kept) < len(rows):
        logger.info("%s: %d rows are outdated and will be replaced", experiment.name, len(rows) - len(kept))
    if len(kept) < len(rows) or not path.exists() or any(len(row) < len(names) for row in kept[:1]):
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(experiment, path, kept)
    return {_job(experiment, row) for row in kept}


def _write(experiment: Experiment, path: Path, rows: Iterable[Row]) -> None:
    content = (",".join([*experiment.keys, *experiment.columns]) + "\r\n" + _format(experiment, rows)).encode()
    write_atomically(path, lzma.compress(content, preset=9) if path.suffix == ".xz" else content)


def _job(experiment: Experiment, row: Mapping[str, str]) -> Job:
    return tuple(row[key] for key in experiment.keys)


def _format(experiment: Experiment, rows: Iterable[Row]) -> str:
    text = io.StringIO()
    csv.DictWriter(text, [*experiment.keys, *experiment.columns]).writerows(rows)
    return text.getvalue()


def _run_jobs(
    experiment: Experiment, jobs: Sequence[Job], ends_s: float, processes: int
) -> Iterator[tuple[Job, Sequence[Row]]]:
    """Run jobs in other processes, and yield each with its rows as soon as it is done."""
    waiting = iter(jobs)
    running: dict[Future[Sequence[Row]], Job] = {}
    with ProcessPoolExecutor(processes, get_context("fork")) as pool:
        while True:
            while len(running) < processes and time.monotonic() < ends_s and (job := next(waiting, None)) is not None:
                running[pool.submit(experiment.run, job)] = job
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                try:
                    rows = future.result()
                except BrokenProcessPool:
                    raise
                except Exception as error:
                    logger.error("%s: %s failed: %s", experiment.name, ", ".join(job), cause(error))
                else:
                    yield job, rows
