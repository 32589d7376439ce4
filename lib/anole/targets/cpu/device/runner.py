"""Candidates loaded into this process, checked against a reference and timed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import tvm

from anole.record import Config
from anole.targets.base import Template
from anole.targets.cpu.device.weights import WeightCopies
from anole.targets.shared.reference import Example
from anole.task import Workload

_COLD_BYTES = 48 << 20
"""So much is read before a weight is met again: in a network, the other layers' weights drive it out of the cache."""


class CpuRunner:
    """Runs candidates of one workload on the same inputs.

    Data is what the layer before has just written, and warm; weights come from memory, as they do in a network: a
    kernel reads another copy of them in every run. Where both operands are computed, both are warm.

    Args:
        template: of the workload.
        workload: whose candidates are run.
        cold_bytes: how much is read before the same copy of a weight is met again; 0 times warm weights.
    """

    def __init__(self, template: Template, workload: Workload, cold_bytes: int = _COLD_BYTES) -> None:
        self._example = Example.draw(workload)
        cold_bytes = cold_bytes if workload.constant_weight else 0
        self._weights = WeightCopies(template, workload, self._example.weight, cold_bytes)
        self._data, bias = tvm.runtime.tensor(self._example.data), self._example.bias
        self._bias = () if bias is None else (tvm.runtime.tensor(bias),)

    def load(self, artifact: Path, config: Config) -> LoadedKernel:
        """Loads a shared library that the builder wrote."""
        kernel = tvm.runtime.load_module(str(artifact))["main"]
        out = tvm.runtime.tensor(self._example.unwritten())
        constant = [repeat(argument) for argument in (*self._bias, out)]
        return LoadedKernel(kernel, zip(repeat(self._data), self._weights.of(config), *constant), out, self._example)


class LoadedKernel:
    """One candidate with its arguments for each run, of which the last is the output."""

    def __init__(self, kernel: Any, arguments: Iterator[tuple[Any, ...]], out: Any, example: Example) -> None:
        self._kernel, self._arguments, self._out, self._example = kernel, arguments, out, example

    def relative_error(self) -> float:
        """Runs it once and returns the relative L2 distance from the reference."""
        self._kernel(*next(self._arguments))
        return self._example.relative_error(self._out.numpy())

    def __call__(self, number: int) -> float:
        """Runs it `number` times back to back and returns the mean seconds of one run."""
        kernel, arguments = self._kernel, self._arguments
        began_s = time.perf_counter()
        for _ in range(number):
            kernel(*next(arguments))
        return (time.perf_counter() - began_s) / number
