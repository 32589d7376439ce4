"""Runners of candidates in an RPC session: remote or, for a device of this machine, local."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import rpc

from anole.errors import DeviceLostError, cause
from anole.record import Config
from anole.targets.base import Template
from anole.targets.rpc.address import Server
from anole.targets.shared.reference import Example
from anole.task import Workload

_CONNECT_TIMEOUT_S = 5.0


def open_session(server: Server, session_s: float) -> rpc.RPCSession:
    """Open an exclusive session with a server; wait while another client uses it.

    After `session_s` seconds, the server ends the session and everything that runs in it.

    Raises:
        DeviceLostError: the server does not answer, or the tracker has meanwhile assigned it to another client.
    """
    try:
        if not server.match_key:
            # TVM does not report why it cannot connect. A server with a tracker would take this socket for its client.
            socket.create_connection((server.host, server.port), timeout=_CONNECT_TIMEOUT_S).close()
        return rpc.connect(server.host, server.port, server.match_key, session_timeout=session_s)
    except (OSError, RuntimeError, ValueError) as error:
        raise DeviceLostError(f"the RPC server {server} cannot be reached: {cause(error)}") from error


@contextmanager
def convert_session_errors(session: rpc.RPCSession) -> Iterator[None]:
    """Convert errors that a lost session, not the candidate, causes.

    Raises:
        TimeoutError: the server ended the session because its time was up.
        DeviceLostError: the session was lost.
    """
    try:
        yield
    except tvm.error.RPCSessionTimeoutError as error:
        raise TimeoutError("the server ended the session because it took too long") from error
    except RuntimeError as error:
        try:
            session.get_function("runtime.NumThreads")()
        except RuntimeError:
            raise DeviceLostError(f"the connection to the device was lost: {cause(error)}") from error
        raise


@dataclass(frozen=True)
class Conditions:
    """Conditions under which candidates are timed.

    Attributes:
        before_each: settings of TVM's `time_evaluator` for the untimed work before each run.
        warm_up_s: seconds for which the first candidate runs before anything is timed, to raise the clock rate.
    """

    before_each: Mapping[str, Any] = field(default_factory=dict, hash=False)
    warm_up_s: float = 0.0


class SessionRunner:
    """A runner of candidates of one workload on the same inputs, which are sent once."""

    def __init__(
        self, template: Template, workload: Workload, session: rpc.RPCSession, device: Any, conditions: Conditions
    ) -> None:
        self._template, self._workload = template, workload
        self.session, self._device, self._conditions = session, device, conditions
        self.example, self._is_warm = Example.draw(workload), False
        with convert_session_errors(session):
            self._data, self._more = self._send(self.example.data), list(map(self._send, self.example.more))

    def load(self, artifact: Path, config: Config) -> SessionKernel:
        """Send and load a shared library that the builder wrote."""
        packed = self._template.pack_weight(self._workload, config, self.example.weight)
        with convert_session_errors(self.session):
            self.session.upload(str(artifact))
            library = self.session.load_module(artifact.name)
            self.session.remove(artifact.name)
            out = self._send(self.example.unwritten())
            arguments = (self._data, self._send(packed), *self._more, out)
        return SessionKernel(self, library, arguments)

    def latency_s(self, library: Any, arguments: tuple[Any, ...], number: int) -> float:
        """Run a kernel `number` times and return the mean seconds of one run, by the device's own clock."""
        if not self._is_warm:
            end_s = time.perf_counter() + self._conditions.warm_up_s
            while time.perf_counter() < end_s:
                self._time(library, arguments, 10)
            self._is_warm = True
        return self._time(library, arguments, number)

    def _time(self, library: Any, arguments: tuple[Any, ...], number: int) -> float:
        # TVM does the untimed work once for each repeat, so each run is a repeat.
        settings = {"number": 1, "repeat": number, **self._conditions.before_each}
        return float(library.time_evaluator("main", self._device, **settings)(*arguments).mean)

    def _send(self, array: Any) -> Any:
        return tvm.runtime.tensor(np.ascontiguousarray(array), self._device)


@dataclass(frozen=True, eq=False)
class SessionKernel:
    """One candidate with its arguments, on the runner's device."""

    runner: SessionRunner
    library: Any
    arguments: tuple[Any, ...]

    def relative_error(self) -> float:
        """Run the candidate once and return the relative L2 distance from the reference."""
        with convert_session_errors(self.runner.session):
            self.library["main"](*self.arguments)
            return self.runner.example.relative_error(self.arguments[-1].numpy())

    def __call__(self, number: int) -> float:
        """Run the candidate `number` times and return the mean seconds of one run."""
        with convert_session_errors(self.runner.session):
            return self.runner.latency_s(self.library, self.arguments, number)
