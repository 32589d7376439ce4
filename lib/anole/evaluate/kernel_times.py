"""The time of every kernel of a compiled build, taken while the whole network runs."""

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
"""What an instrument of TVM's virtual machine answers for a call to take place."""

_TICK_S = 1e-9
"""The clock's resolution, and the least that a kernel takes."""

_FEWEST_SLOW_RUNS = 3
_LIMIT_S = 60.0
"""After which a network is slow, and has no more runs than these."""

_FASTEST = 0.1
"""The share of the runs that counts: those that other programs disturbed least."""


@dataclass(frozen=True)
class KernelTimes:
    """What one run of a network takes.

    Attributes:
        kernels_s: by the kernel's name, the seconds of all of its calls together.
        whole_s: the seconds of a run that is not watched.
    """

    kernels_s: Mapping[str, float]
    whole_s: float


def time_kernels(
    folder: Path, inputs: Sequence[NDArray[Any]], threads: int, seconds: float, fewest_runs: int = 20
) -> KernelTimes:
    """Times the kernels of a build for the processor, with the arguments and the caches of a real run.

    Runs that are watched, call by call, take turns with runs that are not. Only the fastest tenth of either counts,
    and of these the median.

    Args:
        folder: of the build.
        inputs: what it is run on.
        threads: of the processor.
        seconds: how long is measured, at least.
        fewest_runs: of either kind, unless they take more than a minute.

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
            lambda: plain(*arguments), lambda: watched(*arguments), stopwatch, seconds, fewest_runs
        )
    kernels_s: dict[str, float] = {}
    for name, lap_s in zip(stopwatch.names, _typical(laps_s), strict=True):
        kernels_s[name] = kernels_s.get(name, 0.0) + float(lap_s)
    return KernelTimes(kernels_s, float(_typical(whole_s)[0]))


class _Stopwatch:
    """What the virtual machine calls before and after every call; its own calls, of memory and shapes, do not count.

    Asking takes time: the machine wraps all arguments anew. How long, it has just shown when it asked before the
    call, and that is subtracted.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.laps_s: list[float] = []
        self._asking_s = self._answered_s = 0.0

    def start(self) -> None:
        """Forgets the last run."""
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
    plain: Callable[[], object],
    watched: Callable[[], object],
    stopwatch: _Stopwatch,
    seconds: float,
    fewest_runs: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the seconds of runs, shape (n_runs, 1), and of the watched ones' kernels, shape (n_runs, n_calls)."""
    whole_s: list[list[float]] = []
    laps_s: list[list[float]] = []
    first_s = time.perf_counter()

    def is_enough() -> bool:
        spent_s = time.perf_counter() - first_s
        return spent_s >= seconds and len(whole_s) >= (fewest_runs if spent_s < _LIMIT_S else _FEWEST_SLOW_RUNS)

    while not is_enough():
        began_s = time.perf_counter()
        plain()
        whole_s.append([time.perf_counter() - began_s])
        stopwatch.start()
        watched()
        laps_s.append(stopwatch.laps_s)
    return np.array(whole_s), np.array(laps_s)


def _typical(runs_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the median of the fastest runs, given shape (n_runs, n_parts)."""
    order = np.argsort(runs_s.sum(axis=1))
    return np.asarray(np.median(runs_s[order[: max(3, int(_FASTEST * len(runs_s)))]], axis=0))
