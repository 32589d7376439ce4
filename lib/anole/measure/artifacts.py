"""Keeps the artifacts of the fastest candidates, so that confirming them needs no second build."""

from __future__ import annotations

from heapq import heappush, heappushpop
from itertools import count

from anole.keys import canonical_json
from anole.measure.builders import Built
from anole.record import Config

_MOST = 64
"""The most candidates that can be confirmed."""


class Artifacts:
    """The artifacts of the fastest candidates that have run; all others are removed.

    Args:
        most: number of artifacts to keep.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most, self._numbers = most, count()
        self._kept: dict[str, Built] = {}
        self._slowest_first: list[tuple[float, int, str]] = []

    def take(self, candidate: Built, latency_s: float | None) -> None:
        """Keeps a candidate's artifact as long as it is among the fastest; that of a failed one is removed."""
        name = canonical_json(dict(candidate.config))
        if name in self._kept:
            return
        if latency_s is None:
            candidate.artifact.unlink(missing_ok=True)
            return
        self._kept[name] = candidate
        entry = (-latency_s, next(self._numbers), name)
        if len(self._slowest_first) < self._most:
            heappush(self._slowest_first, entry)
        else:
            slowest = heappushpop(self._slowest_first, entry)[-1]
            self._kept.pop(slowest).artifact.unlink(missing_ok=True)

    @property
    def fastest(self) -> Built | None:
        """The built candidate that ran fastest; None if none has worked."""
        return self._kept[max(self._slowest_first)[-1]] if self._slowest_first else None

    def find(self, config: Config) -> Built | None:
        """Returns the built candidate of a config, or None if its artifact is not kept."""
        return self._kept.get(canonical_json(dict(config)))
