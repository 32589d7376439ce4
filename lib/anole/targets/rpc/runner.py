"""Runs candidates through an RPC session: with a remote device or, in a local session, with one of this machine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import rpc

from anole.record import Config
from anole.targets.base import Template
from anole.targets.rpc.sessions import telling_loss
from anole.targets.shared.reference import Example
from anole.task import Workload


@dataclass(frozen=True)
class Conditions:
    """Conditions under which candidates are timed.

    Attributes:
        before_each: settings of TVM's `time_evaluator` for the untimed work before each run.
        warm_up_s: seconds for which the first candidate runs before anything is timed, so that clocks rise.
    """

    before_each: Mapping[str, Any] = field(default_factory=dict, hash=False)
    warm_up_s: float = 0.0


class SessionRunner:
    """Runs candidates of one workload on the same inputs, which are sent once."""

    def __init__(
        self, template: Template, workload: Workload, session: rpc.RPCSession, device: Any, conditions: Conditions
    ) -> None:
        self._template, self._workload = template, workload
        self._session, self._device, self._conditions = session, device, conditions
        self._example, self._is_warm = Example.draw(workload), False
        with telling_loss(session):
            self._data, bias = self._send(self._example.data), self._example.bias
            self._bias = () if bias is None else (self._send(bias),)

    def load(self, artifact: Path, config: Config) -> SessionKernel:
        """Sends and loads a shared library that the builder wrote."""
        packed = self._template.pack_weight(self._workload, config, self._example.weight)
        with telling_loss(self._session):
            self._session.upload(str(artifact))
            library = self._session.load_module(artifact.name)
            self._session.remove(artifact.name)
            out = self._send(self._example.unwritten())
            arguments = (self._data, self._send(packed), *self._bias, out)
        return SessionKernel(self, library, arguments)

    def relative_error(self, library: Any, arguments: tuple[Any, ...]) -> float:
        """Runs a kernel once and returns the relative L2 distance from the reference."""
        with telling_loss(self._session):
            library["main"](*arguments)
            return self._example.relative_error(arguments[-1].numpy())

    def latency_s(self, library: Any, arguments: tuple[Any, ...], number: int) -> float:
        """Runs a kernel `number` times and returns the mean seconds of one run, by the device's own clock."""
        with telling_loss(self._session):
            if not self._is_warm:
                self._warm_up(library, arguments)
            return self._time(library, arguments, number)

    def _warm_up(self, library: Any, arguments: tuple[Any, ...]) -> None:
        ends_s = time.perf_counter() + self._conditions.warm_up_s
        while time.perf_counter() < ends_s:
            self._time(library, arguments, 10)
        self._is_warm = True

    def _time(self, library: Any, arguments: tuple[Any, ...], number: int) -> float:
        # TVM prepares once for every repeat, so each run is a repeat of its own.
        settings = {"number": 1, "repeat": number, **self._conditions.before_each}
        return float(library.time_evaluator("main", self._device, **settings)(*arguments).mean)

    def _send(self, array: Any) -> Any:
        return tvm.runtime.tensor(np.ascontiguousarray(array), self._device)


class SessionKernel:
    """One candidate with its arguments, on the runner's device."""

    def __init__(self, runner: SessionRunner, library: Any, arguments: tuple[Any, ...]) -> None:
        self._runner, self._library, self._arguments = runner, library, arguments

    def relative_error(self) -> float:
        """Runs the candidate once and returns the relative L2 distance from the reference."""
        return self._runner.relative_error(self._library, self._arguments)

    def __call__(self, number: int) -> float:
        """Runs the candidate `number` times and returns the mean seconds of one run."""
        return self._runner.latency_s(self._library, self._arguments, number)
