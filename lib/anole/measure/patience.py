"""How long a device that was lost is waited for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


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
