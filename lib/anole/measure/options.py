"""How candidates are measured: how often they run, how many are built at once, and how long all of that may take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from anole.search.roles import Evaluator


@dataclass(frozen=True)
class Limits:
    """Wall-clock limits in seconds; a process that exceeds one is killed.

    Attributes:
        build_s: limit of a build; AutoTVM's ten seconds, doubled because all cores build at once.
        run_s: limit of loading, checking and timing together.
        lease_s: seconds for which a session with a remote device takes candidates before the next session is opened.
        connect_s: limit of opening a session.
    """

    build_s: float = 20.0
    run_s: float = 10.0
    lease_s: float = 30.0
    connect_s: float = 30.0

    @property
    def session_s(self) -> float:
        """Seconds after which a server ends a session, and whatever hangs in it."""
        return self.lease_s + self.run_s


@dataclass(frozen=True)
class Retries:
    """Seconds to wait between attempts: `first_s`, each time twice as long up to `longest_s`, `total_s` altogether."""

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
    """How candidates of a task are measured.

    Attributes:
        evaluator: decides how often a kernel is run.
        n_builders: how many candidates are built at once; None for one for each of the target's threads where building
            disturbs measurements, and else for one for each core.
        retries: how long to wait for remote devices while there is none.
    """

    evaluator: Evaluator
    n_builders: int | None = None
    limits: Limits = Limits()
    retries: Retries = Retries()
