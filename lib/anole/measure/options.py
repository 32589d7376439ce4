"""Settings for measuring: numbers of runs and of parallel builds, time limits and retries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from anole.search.roles import Evaluator


@dataclass(frozen=True)
class Limits:
    """Wall-clock limits; a process that exceeds one is killed.

    Attributes:
        build_s: one build: AutoTVM's ten seconds, doubled because all cores build in parallel.
        run_s: loading, checking and timing a candidate together.
        lease_s: duration for which a session with a remote device accepts candidates.
        connect_s: opening a session.
    """

    build_s: float = 20.0
    run_s: float = 10.0
    lease_s: float = 30.0
    connect_s: float = 30.0

    @property
    def session_s(self) -> float:
        """Seconds after which a server ends a session, even one that hangs."""
        return self.lease_s + self.run_s


@dataclass(frozen=True)
class Retries:
    """Exponential backoff: the wait starts at `first_s` and doubles up to `longest_s`, for `total_s` in total."""

    first_s: float = 0.5
    longest_s: float = 30.0
    total_s: float = 300.0

    def waits(self) -> Iterator[float]:
        """Yield the seconds to wait before each further attempt."""
        wait_s, left_s = self.first_s, self.total_s
        while left_s > 0:
            wait_s = min(wait_s, self.longest_s, left_s)
            yield wait_s
            left_s -= wait_s
            wait_s *= 2


@dataclass(frozen=True)
class MeasureOptions:
    """Settings for measuring the candidates of a task.

    Attributes:
        evaluator: decides how often a kernel runs.
        n_builders: number of parallel builds; by default one per thread of the target if building disturbs timing,
            otherwise one per core.
        retries: the waits for remote devices.
    """

    evaluator: Evaluator
    n_builders: int | None = None
    limits: Limits = Limits()
    retries: Retries = Retries()
