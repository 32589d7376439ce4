"""Builds candidates while others run, for devices that building does not disturb."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait

from anole.measure.bench import Runs
from anole.measure.builders import Builders, Built
from anole.record import Config, Measurement

_AHEAD = 2
_LONGEST_WAIT_S = 60.0


class Overlap:
    """Yields the measurements of configs in order, each as soon as it is known.

    Candidates run as soon as they are built, so that no device waits while one is ready. At most twice as many
    candidates as there are builders are built ahead of the devices, or more, so that there is one for each device.

    Args:
        builders: build the candidates.
        bench: runs the candidates.
        configs: the configs to measure.
    """

    def __init__(self, builders: Builders, bench: Runs, configs: Sequence[Config]) -> None:
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
        left_s = min(self._builders.left_s, self._bench.left_s, _LONGEST_WAIT_S)
        readable = wait([*self._builders.connections, *self._bench.connections], left_s)
        for candidate in self._builders.collect(readable):
            if candidate.failure is None:
                self._ready[candidate.position] = candidate
            else:
                self._known[candidate.position] = candidate.failure
        self._known.update(self._bench.collect(readable))
        self._feed()

    def _feed(self) -> None:
        builders = self._builders
        most = max(_AHEAD * builders.n, builders.n + self._bench.n_lanes)
        while self._waiting and builders.n_busy < builders.n and self._n_ahead < most:
            builders.begin(*self._waiting.popleft())
        while self._ready and self._bench.has_room:
            self._bench.begin(self._ready.pop(min(self._ready)))

    @property
    def _n_ahead(self) -> int:
        return self._builders.n_busy + len(self._ready)
