"""What a candidate may take before it counts as a failure, and how long a lost device is waited for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Wall-clock seconds after which its processes are killed.

    Attributes:
        build_s: of building; AutoTVM's ten seconds, doubled because all cores build at once.
        run_s: of loading, checking and timing.
        lease_s: so long a session with another machine's device takes candidates, before the next one is opened.
        connect_s: of opening a session.
    """

    build_s: float = 20.0
    run_s: float = 10.0
    lease_s: float = 30.0
    connect_s: float = 30.0

    @property
    def session_s(self) -> float:
        """After so many seconds a server ends a session, and whatever hangs in it."""
        return self.lease_s + self.run_s


@dataclass(frozen=True)
class Patience:
    """Waits between attempts, each twice as long as the one before.

    Attributes:
        first_s: the first wait.
        longest_s: no wait is longer.
        total_s: all waits together; then it is given up.
    """

    first_s: float = 0.5
    longest_s: float = 30.0
    total_s: float = 300.0

    def waits(self) -> Iterator[float]:
        """Yields the seconds to wait before each further attempt."""
        wait_s, left_s = self.first_s, self.total_s
        while left_s > 0:
            wait_s = min(wait_s, self.longest_s, left_s)
            yield wait_s
            left_s -= wait_s
            wait_s *= 2
