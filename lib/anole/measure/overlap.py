"""Builds candidates while others run, for a device that building does not disturb."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait

from anole.measure.bench import Bench
from anole.measure.builders import Builders, Built
from anole.record import Config, Measurement

_AHEAD = 2


class Overlap:
    """Yields the measurements of configs in order, each as soon as it is known.

    Candidates run as soon as they are built, so that the device never waits while one is ready. At most twice as many
    candidates as there are builders are built ahead of the device.

    Args:
        builders: build the candidates.
        bench: runs the candidates.
        configs: the configs to measure.
    """

    def __init__(self, builders: Builders, bench: Bench, configs: Sequence[Config]) -> None:
        self._builders, self._bench, self._n = builders, bench, len(configs)
        self._waiting = deque(enumerate(configs))
        self._ready: dict[int, Built] = {}
        self._known: dict[int, Measurement] = {}

    def __iter__(self) -> Iterator[Measurement]:
        try:
            self._feed()
            for position in range(self._n):
                while position not in self._known:
                    self._advance()
                yield self._known.pop(position)
        finally:
            self._builders.abandon()
            self._bench.abandon()

    def _advance(self) -> None:
        """Waits for the first builder or run to end, takes its result, and gives idle ones new work."""
        left_s = min(self._builders.left_s, self._bench.left_s)
        readable = wait([*self._builders.connections, *self._bench.connections], left_s)
        for candidate in self._builders.collect(readable):
            if candidate.failure is None:
                self._ready[candidate.position] = candidate
            else:
                self._known[candidate.position] = candidate.failure
        if self._bench.has_ended(readable):
            position, measurement = self._bench.finish()
            self._known[position] = measurement
        self._feed()

    def _feed(self) -> None:
        builders = self._builders
        while self._waiting and builders.n_busy < builders.n and self._n_ahead < _AHEAD * builders.n:
            builders.begin(*self._waiting.popleft())
        if self._ready and not self._bench.is_busy:
            self._bench.begin(self._ready.pop(min(self._ready)))

    @property
    def _n_ahead(self) -> int:
        return self._builders.n_busy + len(self._ready)
