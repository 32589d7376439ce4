"""The process of this machine in which candidates run; it is replaced when it is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Self

from anole.host.process import CallFailed, CallTimedOut, Worker
from anole.measure.site import Site
from anole.targets.base import Device


class DeviceProcess:
    """A process with a device of this machine, which runs one call at a time; a context manager that ends it.

    Args:
        site: the device's place.
        target: the device's target.
        start: called in the process; returns the function that handles the calls.
    """

    def __init__(self, site: Site, target: Device, start: Callable[[], Callable[..., Any]]) -> None:
        self._site, self._target, self._start = site, target, start
        self._process: Worker | None = None
        self._sent_s, self._timeout_s = 0.0, 0.0

    def __enter__(self) -> Self:
        if self._site.is_disturbed:
            self._worker.launch()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the device exclusively."""
        with self._site.timing():
            self._worker.launch()
            yield

    def end(self) -> None:
        """Ends the process; the next call starts another one."""
        if self._process is not None:
            self._process.end()

    @property
    def connections(self) -> list[Connection]:
        """Connections that become readable when the submitted call has ended."""
        return [self._worker.connection]

    @property
    def left_s(self) -> float:
        """Seconds until the submitted call's limit."""
        return max(0.0, self._timeout_s - self.spent_s)

    @property
    def spent_s(self) -> float:
        """Seconds since the call was submitted."""
        return time.perf_counter() - self._sent_s

    def submit(self, *arguments: Any, timeout_s: float) -> None:
        """Submits a call.

        Raises:
            MeasureError: the process does not start.
            TargetError: there is no such device.
        """
        self._timeout_s = timeout_s
        self._worker.submit(*arguments)
        self._sent_s = time.perf_counter()

    def result(self) -> Any:
        """Waits for the submitted call and returns its result.

        Raises:
            CallError: the call is at fault.
            MachineError: the machine is.
        """
        try:
            return self._worker.result(self.left_s)
        except (CallFailed, CallTimedOut):
            # Damage that a kernel does to a GPU context lasts as long as the process.
            if not self._site.is_disturbed:
                self.end()
            raise

    @property
    def _worker(self) -> Worker:
        if self._process is None:
            self._process = Worker(
                self._start,
                preload=self._target.preload,
                environment={**self._target.environment(), **self._site.environment()},
            )
        return self._process
