"""Candidates loaded into this process, checked against a reference and timed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from anole.record import Config
from anole.targets.base import Template
from anole.targets.reference import Example
from anole.task import Workload


class CpuRunner:
    """Runs candidates of one workload on the same inputs."""

    def __init__(self, template: Template, workload: Workload) -> None:
        self._template, self._workload = template, workload
        self._example = Example.draw(workload)
        self._data = tvm.runtime.tensor(self._example.data)
        self._bias = tvm.runtime.tensor(self._example.bias)

    def load(self, artifact: Path, config: Config) -> LoadedKernel:
        """Loads a shared library that the builder wrote."""
        packed = self._template.pack_weight(self._workload, config, self._example.weight)
        out = tvm.runtime.tensor(np.full_like(self._example.expected, np.nan))
        kernel = tvm.runtime.load_module(str(artifact))["main"]
        return LoadedKernel(kernel, (self._data, tvm.runtime.tensor(packed), self._bias, out), self._example)


class LoadedKernel:
    """One candidate with its arguments."""

    def __init__(self, kernel: Any, arguments: tuple[Any, ...], example: Example) -> None:
        self._kernel, self._arguments, self._example = kernel, arguments, example

    def relative_error(self) -> float:
        """Runs it once and returns the relative L2 distance from the reference."""
        self._kernel(*self._arguments)
        return self._example.relative_error(self._arguments[-1].numpy())

    def __call__(self, number: int) -> float:
        """Runs it `number` times back to back and returns the mean seconds of one run."""
        kernel, arguments = self._kernel, self._arguments
        began_s = time.perf_counter()
        for _ in range(number):
            kernel(*arguments)
        return (time.perf_counter() - began_s) / number
