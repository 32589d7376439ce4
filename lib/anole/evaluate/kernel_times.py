"""Times every kernel of a compiled build while the whole network runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.evaluate.engines import load_machine
from anole.host.cores import caller_apart

_RUN = 0
"""An instrument's answer that lets TVM's virtual machine carry out a call."""

_TICK_S = 1e-9
"""The clock's resolution in seconds, and the least time of a kernel."""

_MIN_SLOW_RUNS = 3
_LIMIT_S = 60.0
"""Seconds after which no runs beyond the first ones are taken of a slow network."""

_FASTEST = 0.1
"""The share of runs that counts: the fastest, which other programs disturbed least."""


@dataclass(frozen=True)
class KernelTimes:
    """The seconds of one run of a network: of all calls of each kernel, and of a run without the instrument."""

    kernels_s: Mapping[str, float]
    whole_s: float


def time_kernels(
    folder: Path, inputs: Sequence[NDArray[Any]], threads: int, seconds: float, min_runs: int = 20
) -> KernelTimes:
    """Time the kernels of a build for the CPU, with the arguments and caches of a real run.

    Instrumented runs alternate with plain ones, for so many seconds and so many runs of either kind at least, unless
    these take more than a minute. Only the fastest tenth of either kind counts; the median of these is the result.

    Raises:
        BuildError: the build cannot be loaded.
    """
    import tvm

    arguments = [tvm.runtime.tensor(array) for array in inputs]
    plain, machine = load_machine(folder, "cpu", threads)["main"], load_machine(folder, "cpu", threads)
    stopwatch = _Stopwatch()
    machine.set_instrument(stopwatch)
    watched = machine["main"]
    with caller_apart():
        whole_s, laps_s = _take_turns(
            lambda: plain(*arguments), lambda: watched(*arguments), stopwatch, seconds, min_runs
        )
    kernels_s: dict[str, float] = {}
    for name, lap_s in zip(stopwatch.names, _typical(laps_s), strict=True):
        kernels_s[name] = kernels_s.get(name, 0.0) + float(lap_s)
    return KernelTimes(kernels_s, float(_typical(whole_s)[0]))


class _Stopwatch:
    """Instrument that the virtual machine calls around every call; its own memory and shape calls are skipped.

    The instrument itself takes time, because the machine wraps all arguments anew. Its cost is measured before each
    call and subtracted.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.laps_s: list[float] = []
        self._asking_s = self._answered_s = 0.0

    def start(self) -> None:
        """Forget the last run."""
        self.names, self.laps_s = [], []

    def __call__(self, func: Any, name: str, before: bool, result: Any, *arguments: Any) -> int:
        asked_s = time.perf_counter()
        if before:
            self._asking_s = asked_s - self._answered_s
        elif not name.startswith("vm."):
            self.laps_s.append(max(_TICK_S, asked_s - self._answered_s - self._asking_s))
            self.names.append(name)
        self._answered_s = time.perf_counter()
        return _RUN


def _take_turns(
    plain: Callable[[], object], watched: Callable[[], object], stopwatch: _Stopwatch, seconds: float, min_runs: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return plain run times, shape (n_runs, 1), and kernel times, shape (n_runs, n_calls), in seconds."""
    whole_s: list[list[float]] = []
    laps_s: list[list[float]] = []
    first_s = time.perf_counter()

    def is_enough() -> bool:
        spent_s = time.perf_counter() - first_s
        return spent_s >= seconds and len(whole_s) >= (min_runs if spent_s < _LIMIT_S else _MIN_SLOW_RUNS)

    while not is_enough():
        began_s = time.perf_counter()
        plain()
        whole_s.append([time.perf_counter() - began_s])
        stopwatch.start()
        watched()
        laps_s.append(stopwatch.laps_s)
    return np.array(whole_s), np.array(laps_s)


def _typical(runs_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median of the fastest runs; the argument has shape (n_runs, n_parts)."""
    order = np.argsort(runs_s.sum(axis=1))
    return np.asarray(np.median(runs_s[order[: max(3, int(_FASTEST * len(runs_s)))]], axis=0))
