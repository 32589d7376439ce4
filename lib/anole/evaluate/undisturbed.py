"""Times runs of an engine and tells those that nothing disturbed: no thread waited for a processor meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

_UNDISTURBED = 0.01
"""The share of a run that all threads together may wait."""

_FASTEST, _FEWEST = 0.1, 3
"""The share of runs, and their least number, whose mean is the latency."""


class WaitMeter:
    """Reads how long the threads of this process have waited for a processor; a context manager that closes its files.

    It reads what Linux counts for each thread in ``/proc``. Threads that begin later are not noticed. Where the system
    does not count, nothing has ever waited.
    """

    def __enter__(self) -> Self:
        self._files: list[int] = []
        for task in Path("/proc/self/task").glob("*"):
            with suppress(OSError):
                self._files.append(os.open(task / "schedstat", os.O_RDONLY | os.O_CLOEXEC))
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            os.close(file)

    def waited_s(self) -> float:
        """Returns the seconds that all threads together have waited since they began."""
        waited_ns = 0
        for file in self._files:
            with suppress(OSError, IndexError, ValueError):  # the thread has ended
                waited_ns += int(os.pread(file, 64, 0).split()[1])
        return waited_ns * 1e-9


def timed(run: Callable[[], object], number: int, meter: WaitMeter) -> tuple[float, float]:
    """Runs an engine `number` times; returns the seconds that it took, and those that its threads waited meanwhile."""
    waited_s, began_s = meter.waited_s(), time.perf_counter()
    for _ in range(number):
        run()
    took_s = time.perf_counter() - began_s
    return took_s, meter.waited_s() - waited_s


def undisturbed(runs: Sequence[tuple[float, float]]) -> NDArray[np.float64]:
    """Returns the seconds of those runs, as `timed` returns them, that nothing disturbed."""
    times_s, waits_s = np.array(runs).reshape(-1, 2).T
    return np.asarray(times_s[waits_s <= _UNDISTURBED * times_s])


def latency_s(runs: Sequence[tuple[float, float]]) -> float:
    """Returns the mean of the fastest tenth of the undisturbed runs, or of all, if hardly any is undisturbed.

    The choice does not look at the times, so that it favours nobody. Within it, the fastest are those in which the rest
    of the machine, such as its caches and its host, disturbed least.
    """
    found = undisturbed(runs)
    if len(found) < _FEWEST:
        found = np.array(runs)[:, 0]
    return float(np.sort(found)[: max(_FEWEST, round(_FASTEST * len(found)))].mean())
