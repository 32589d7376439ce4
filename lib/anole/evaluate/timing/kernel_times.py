"""Timing of every kernel of a compiled build while the entire network runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.evaluate.engines import load_machine
from anole.host.cores import keep_caller_on_separate_core

_CONTINUE = 0
"""An instrument's return value that lets TVM's virtual machine execute the call."""

_TICK_S = 1e-9
"""The clock's resolution in seconds, and the minimum time of a kernel."""

_MIN_SLOW_RUNS = 3
_LIMIT_S = 60.0
"""Seconds after which `_MIN_SLOW_RUNS` runs suffice."""

_FASTEST_SHARE = 0.1
"""The share of runs that is used: the fastest, which other programs disturbed least."""


@dataclass(frozen=True)
class KernelTimes:
    """The seconds of one run of a network: in all calls of each kernel, and in total without the instrument."""

    kernels_s: Mapping[str, float]
    whole_s: float


def time_kernels(
    folder: Path, inputs: Sequence[NDArray[Any]], threads: int, seconds: float, min_runs: int = 20
) -> KernelTimes:
    """Time the kernels of a build for the CPU, with the arguments and caches of a real run.

    Instrumented runs alternate with plain ones, for at least `seconds` and `min_runs` runs of each kind. After a
    minute, three runs of each kind suffice. The result is the median of the fastest tenth, at least three.

    Raises:
        BuildError: the build cannot be loaded.
    """
    import tvm

    tensors = [tvm.runtime.tensor(array) for array in inputs]
    plain, machine = load_machine(folder, "cpu", threads)["main"], load_machine(folder, "cpu", threads)
    stopwatch = _Stopwatch()
    machine.set_instrument(stopwatch)
    profiled = machine["main"]
    with keep_caller_on_separate_core():
        totals_s, laps_s = _alternate(lambda: plain(*tensors), lambda: profiled(*tensors), stopwatch, seconds, min_runs)
    kernels_s: dict[str, float] = {}
    for name, lap_s in zip(stopwatch.names, _median_of_fastest(laps_s), strict=True):
        kernels_s[name] = kernels_s.get(name, 0.0) + float(lap_s)
    return KernelTimes(kernels_s, float(_median_of_fastest(totals_s)[0]))


class _Stopwatch:
    """An instrument that the virtual machine calls before and after every call; `vm.` calls are skipped.

    The instrument itself takes time, because the virtual machine wraps all arguments again. This overhead is measured
    before each call and subtracted.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.laps_s: list[float] = []
        self._overhead_s = self._returned_s = 0.0

    def start(self) -> None:
        """Discard the times of the last run."""
        self.names, self.laps_s = [], []

    def __call__(self, func: Any, name: str, before: bool, result: Any, *arguments: Any) -> int:
        called_s = time.perf_counter()
        if before:
            self._overhead_s = called_s - self._returned_s
        elif not name.startswith("vm."):
            self.laps_s.append(max(_TICK_S, called_s - self._returned_s - self._overhead_s))
            self.names.append(name)
        self._returned_s = time.perf_counter()
        return _CONTINUE


def _alternate(
    plain: Callable[[], object], timed: Callable[[], object], stopwatch: _Stopwatch, seconds: float, min_runs: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return plain run times, shape (n_runs, 1), and kernel times, shape (n_runs, n_calls), in seconds."""
    totals_s: list[list[float]] = []
    laps_s: list[list[float]] = []
    first_s = time.perf_counter()

    def is_enough() -> bool:
        spent_s = time.perf_counter() - first_s
        return spent_s >= seconds and len(totals_s) >= (min_runs if spent_s < _LIMIT_S else _MIN_SLOW_RUNS)

    while not is_enough():
        began_s = time.perf_counter()
        plain()
        totals_s.append([time.perf_counter() - began_s])
        stopwatch.start()
        timed()
        laps_s.append(stopwatch.laps_s)
    return np.array(totals_s), np.array(laps_s)


def _median_of_fastest(runs_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median of the fastest runs; the argument has shape (n_runs, n_parts)."""
    order = np.argsort(runs_s.sum(axis=1))
    return np.asarray(np.median(runs_s[order[: max(3, int(_FASTEST_SHARE * len(runs_s)))]], axis=0))
