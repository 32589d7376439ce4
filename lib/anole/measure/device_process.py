"""The process in which candidates run; it recovers from the loss of the process or of its device."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Self

from anole.errors import DeviceBusyError, DeviceLostError, MachineError, MeasureError
from anole.measure.limits import Limits, Patience
from anole.measure.site import Site
from anole.measure.worker import START_TIMEOUT_S, CallFailed, CallTimedOut, Worker, WorkerDied, WorkerTimeout
from anole.targets.base import Device

logger = logging.getLogger(__name__)

_MOST_LOSSES = 3
_BUSY_LOOKS_S = 0.5
_SILENCE_S = 10.0
_GRACE_S = 5.0


class DeviceProcess:
    """A process with a device, which runs one call at a time; a context manager that ends it.

    When a remote device is lost, the process waits for it and repeats the call; a call that loses the device several
    times is assumed to crash it.

    Args:
        site: the device's place.
        target: the device's target.
        start: called in the process; returns the function that handles the calls.
        limits: time limits of a call.
        patience: how long to wait for a lost device.
    """

    def __init__(
        self, site: Site, target: Device, start: Callable[[], Callable[..., Any]], limits: Limits, patience: Patience
    ) -> None:
        self._site, self._target, self._start = site, target, start
        self._limits, self._patience = limits, patience
        self._process: Worker | None = None
        self._is_sent, self._sent_s, self._timeout_s = False, 0.0, 0.0

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
            try:
                yield
            finally:
                if self._site.remote is not None:
                    self.end()

    def end(self) -> None:
        """Ends the process; the next call starts another one."""
        if self._process is not None:
            self._process.end()

    @property
    def connections(self) -> list[Connection]:
        """Connections that become readable when the call has ended."""
        return [self._worker.connection] if self._is_sent else []

    @property
    def left_s(self) -> float:
        """Seconds until the call's limit; zero if it could not even be submitted."""
        return max(0.0, self._timeout_s - self.spent_s) if self._is_sent else 0.0

    @property
    def spent_s(self) -> float:
        """Seconds since the call was submitted."""
        return time.perf_counter() - self._sent_s

    def submit(self, *arguments: Any, timeout_s: float) -> None:
        """Submits a call; if the device is not available at once, `result` waits for it.

        Raises:
            MeasureError: the process does not start.
            TargetError: there is no such device.
        """
        self._arguments = arguments
        # A remote server enforces the call's limit itself; this limit only detects that the server is silent.
        self._timeout_s = timeout_s if self._site.remote is None else self._limits.session_s + _SILENCE_S
        self._is_sent, self._sent_s = False, time.perf_counter()
        try:
            self._send()
        except (DeviceBusyError, DeviceLostError):
            pass

    def result(self) -> Any:
        """Waits for the submitted call and returns its result.

        Raises:
            CallFailed, WorkerDied, WorkerTimeout: the call itself is at fault.
            DeviceLostError: the call lost the device several times.
            MeasureError: the device is lost and does not come back.
        """
        losses = 0
        while True:
            if not self._is_sent:
                self._send_patiently()
            try:
                return self._receive()
            except DeviceLostError as error:
                self.end()
                losses += 1
                if losses == _MOST_LOSSES:
                    raise DeviceLostError(f"its device was lost {losses} times while it ran: {error}") from error
                logger.warning("%s; running the candidate again", error)

    def _receive(self) -> Any:
        left_s, self._is_sent = self.left_s, False
        try:
            return self._worker.result(left_s)
        except (CallFailed, CallTimedOut):
            # Damage that a kernel does to a GPU context lasts as long as the process.
            if not self._site.is_disturbed:
                self.end()
            raise
        except MachineError as error:
            if self._site.remote is None:
                raise
            raise MachineError(f"{self._site.remote}: {error}") from error
        except (WorkerDied, WorkerTimeout) as error:
            if self._site.remote is None:
                raise
            raise DeviceLostError(f"{self._site.remote} gives no answer: {error}") from error

    def _send(self) -> None:
        try:
            self._worker.submit(*self._arguments)
        except (DeviceBusyError, DeviceLostError, MachineError):
            raise
        except MeasureError as error:
            if self._site.remote is None:
                raise
            raise DeviceLostError(f"{self._site.remote} gives no answer: {error}") from error
        self._is_sent, self._sent_s = True, time.perf_counter()

    def _send_patiently(self) -> None:
        waits, is_told = self._patience.waits(), False
        while True:
            try:
                self._send()
                return
            except DeviceBusyError as error:
                if not is_told:
                    logger.info("%s; waiting for it", error)
                waits, is_told = self._patience.waits(), True
                time.sleep(_BUSY_LOOKS_S)
            except DeviceLostError as error:
                wait_s = next(waits, None)
                if wait_s is None:
                    raise MeasureError(f"{error}; gave up after {self._patience.total_s:g} s") from error
                logger.warning("%s; trying again in %g s", error, wait_s)
                time.sleep(wait_s)

    @property
    def _worker(self) -> Worker:
        if self._process is None:
            is_here = self._site.remote is None
            self._process = Worker(
                self._start,
                preload=self._target.preload,
                environment={**self._target.environment(), **self._site.environment()},
                lifetime_s=None if is_here else self._limits.lease_s,
                start_timeout_s=START_TIMEOUT_S if is_here else self._limits.connect_s,
                grace_s=0.0 if is_here else _GRACE_S,
            )
        return self._process
