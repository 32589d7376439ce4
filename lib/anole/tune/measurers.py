"""A pool of measurers for tasks that are tuned together; it limits the number of open measurers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

from anole.measure.fault_filter import AnyMeasurer

_MAX_OPEN_MEASURERS = 8


class Measurers(AbstractContextManager["Measurers"]):
    """An LRU cache of open measurers.

    A context manager; leaving it closes all measurers, even if closing one raises an error.
    """

    def __init__(self) -> None:
        self._open: dict[str, AnyMeasurer] = {}

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            for measurer in self._open.values():
                stack.push(measurer)

    def of(self, task_key: str, start: Callable[[], AnyMeasurer]) -> AnyMeasurer:
        """Return the open measurer of a task; if there is none, enter the measurer that `start` returns."""
        measurer = self._open.pop(task_key, None)
        if measurer is None:
            if len(self._open) == _MAX_OPEN_MEASURERS:
                self._open.pop(next(iter(self._open))).__exit__()
            measurer = start()
            measurer.__enter__()
        self._open[task_key] = measurer
        return measurer
