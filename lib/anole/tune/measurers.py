"""The measurers of tasks that are tuned together; only a few tasks' processes are alive at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from anole.measure.cautious import AnyMeasurer

_MOST_OPEN = 8


class Measurers:
    """Keeps the most recently used measurers open, and closes the others until they are needed again.

    A context manager; leaving it closes all of them.
    """

    def __init__(self) -> None:
        self._open: dict[str, AnyMeasurer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._keep(0)

    def of(self, task_key: str, start: Callable[[], AnyMeasurer]) -> AnyMeasurer:
        """Returns the open measurer of a task; if it has none, enters one that `start` makes."""
        opened = self._open.pop(task_key, None)
        if opened is None:
            self._keep(_MOST_OPEN - 1)
            opened = start()
            opened.__enter__()
        self._open[task_key] = opened
        return opened

    def _keep(self, n: int) -> None:
        """Closes all measurers except the n most recently used ones."""
        while len(self._open) > n:
            self._open.pop(next(iter(self._open))).__exit__()
