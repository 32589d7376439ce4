"""Progress of a long stage: a bar on a terminal; elsewhere log lines at growing intervals, and one at the end."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from math import inf
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Column

logger = logging.getLogger(__name__)

_LOG_EVERY_S = 1.0
_LOG_EVERY_SHARE = 0.05
"""Interval between two lines as a share of the elapsed time; it keeps the log of a long job short."""


class Progress:
    """A display of trials, best speed, failures and remaining time on standard error.

    Both `done` and `total` include the trials of an interrupted run.
    """

    def __init__(self, label: str, total: int) -> None:
        self.label, self.total = label, total
        console = Console(stderr=True)
        self._on_terminal = console.is_terminal
        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TextColumn("best {task.fields[best]:.1f} GFLOP/s, {task.fields[failures]} failed,"),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            TextColumn("left"),
            console=console,
            disable=not self._on_terminal,
        )
        self._task = self._bar.add_task(label, total=total, best=0.0, failures=0)
        self._has_state = False
        self._logged_done: int | None = None
        self._began_at_s, self._logged_at_s = time.monotonic(), float("-inf")

    def update(self, done: int, best_gflops: float, failures: int, max_total: float = inf) -> None:
        """Show the current state; `max_total` lowers the total if the space has fewer programs."""
        self.total = int(min(self.total, max_total))
        self._bar.update(self._task, total=self.total, completed=done, best=best_gflops, failures=failures)
        self._has_state = True
        now_s = time.monotonic()
        due_s = self._logged_at_s + max(_LOG_EVERY_S, _LOG_EVERY_SHARE * (now_s - self._began_at_s))
        if not self._on_terminal and done < self.total and done != self._logged_done and now_s >= due_s:
            self._log()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        if not self._on_terminal and self._has_state and self._logged_done != self._done:
            self._log()

    @property
    def _done(self) -> int:
        return int(self._bar.tasks[0].completed)

    def _log(self) -> None:
        task = self._bar.tasks[0]
        parts = [f"{self._done}/{self.total}"]
        if task.fields["best"] > 0:
            parts.append(f"best {task.fields['best']:.1f} GFLOP/s")
        if self._done > 0:
            parts.append(f"{task.fields['failures']} failed")
        if task.time_remaining:
            parts.append(f"{timedelta(seconds=int(task.time_remaining))} left")
        logger.info("%s: %s", self.label, ", ".join(parts))
        self._logged_done, self._logged_at_s = self._done, time.monotonic()
