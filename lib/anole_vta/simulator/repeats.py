"""Skips repetitions in a program: from an equal state, equal activities take equal cycles."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from anole_vta.geometry import Geometry
from anole_vta.simulator.activity import Module
from anole_vta.simulator.event_simulator import Cursor, EventSimulator, Progress, State
from anole_vta.simulator.streams import Streams

_GLANCE = 2
"""Number of upcoming passages that are compared to find earlier visits that may have continued alike."""

_TRIED = 2
"""The most such earlier visits that are tried."""

_PATIENCE = 32
"""Visits without a repetition after which there is one only when a tile ends."""


class _Visit(NamedTuple):
    """One point of the simulation."""

    at: Progress
    state: State


class FastForwardSimulator(EventSimulator):
    """A clockwork that skips what it has run before; the resulting cycles are the same.

    The state and the upcoming activities decide everything that happens. Whenever COMPUTE has ended a passage, the
    relative state is looked up. If it occurred before, the program continues from the latest point up to which the
    activities now equal those then, because everything in between would happen as it did then.
    """

    def __init__(self, streams: Streams, geometry: Geometry) -> None:
        super().__init__(streams, geometry)
        self.skipped = 0
        """Number of skipped passages."""
        self._max_waiting = self._fruitful = 0
        self._visits: list[_Visit] = []
        self._seen: dict[Hashable, list[int]] = {}

    def _passed(self, cycle: int, passage: int) -> None:
        # While the queues fill, no state comes again.
        waiting = sum(self._waiting)
        if self._dispatched < self._n and waiting > self._max_waiting:
            self._max_waiting = waiting
            return
        # Where little comes again, it does so by whole tiles.
        if len(self._visits) - self._fruitful > _PATIENCE and not self.streams.part(passage).activities[Module.STORE]:
            return
        at = self.progress(cycle, passage + 1)
        here: _Visit | None = _Visit(at, self.state(at))
        while here is not None:
            here = self._skip(here)

    def _skip(self, here: _Visit) -> _Visit | None:
        """Skip a known repetition; return the visit that it leads to, or None if there is none."""
        streams, passage, dispatched = self.streams, here.at.passage, here.at.dispatched[0]
        glance = streams.kinds[passage : passage + _GLANCE], streams.patterns[dispatched : dispatched + _GLANCE]
        tried = self._seen.setdefault((here.state, *(each.tobytes() for each in glance)), [])
        self._visits.append(here)
        beyond = (_Repetition(self.streams, self._visits, before).end() for before in tried[-_TRIED:])
        there = max(beyond, default=here, key=lambda visit: visit.at.cycle)
        if there is here:
            tried.append(len(self._visits) - 1)
            return None
        self.skipped += there.at.passage - passage
        self._fruitful = len(self._visits)
        self.resume(*there)
        return there


class _Repetition:
    """What followed an earlier visit and comes again, once or more often, from the last one with the same state on.

    Modules that are equally far ahead of both visits come to equal instructions as long as the passages are alike. Any
    other module has to rest: its next instruction lacks the same tokens as then. The dispatch must be equally far
    ahead, until all is dispatched.
    """

    def __init__(self, streams: Streams, visits: Sequence[_Visit], number: int) -> None:
        self._streams, self._visits, self._number = streams, visits, number
        self._before, self._here = before, here = visits[number], visits[-1]
        self._by = by = here.at.passage - before.at.passage
        self._ahead: list[int] = []
        self._resting: list[int] = []
        for module, (then, now) in enumerate(zip(before.at.heads, here.at.heads, strict=True)):
            (self._ahead if now == _moved(then, by) else self._resting).append(module)
        first = min([before.at.passage, *[before.at.heads[module][0] for module in self._ahead]])
        self._alike_until, self._dispatched_until = _alike_until(streams.kinds, first, by), 0
        if here.at.dispatched == _moved(before.at.dispatched, by):
            self._dispatched_until = _alike_until(streams.patterns, before.at.dispatched[0], by)

    def end(self) -> _Visit:
        """Return the last visit that it leads to; the last of all if there is none."""
        visits, begin = self._visits, self._number + 1
        if self._times(visits[begin]) < 1:
            return self._here
        times = max(0, self._times(self._here)) + 1
        beyond = bisect_left(visits, True, begin, len(visits) - 1, key=lambda visit: self._times(visit) < times)
        return self._here if times == 1 and beyond == begin else self._again(visits[beyond - 1], times)

    def _times(self, until: _Visit) -> int:
        """Return how many times in a row everything examined between the earlier visit and another comes again."""
        at, by, streams = until.at, self._by, self._streams
        for module in self._resting:
            if at.heads[module] != self._before.at.heads[module] or until.state.running[module]:
                return 0
        last = max([at.passage - 1, *[at.heads[module][0] for module in self._ahead]])
        times = (self._alike_until - last - 1) // by + 1
        if self._before.state.dispatch is None:
            return times
        if until.state.dispatch is None:
            return 0
        # The dispatch also examines the module of the next instruction, whose queue must have room.
        times = min(times, (self._dispatched_until - at.dispatched[0] - 1) // by + 1)
        # The program must not end within what is fetched.
        within = streams.passage_of(int(streams.firsts[-1]) - sum(until.state.dispatch))
        return min(times, (within - at.dispatched[0]) // by)

    def _again(self, until: _Visit, times: int) -> _Visit:
        """Return what another visit leads to when everything comes again for the given time."""
        (cycle, passage, heads, dispatched), further = until.at, times * self._by
        cycle += times * (self._here.at.cycle - self._before.at.cycle)
        resting = self._here.at.heads
        heads = tuple(_moved(heads[n], further) if n in self._ahead else resting[n] for n in range(3))
        if until.state.dispatch is not None:
            dispatched = _moved(dispatched, further)
        return _Visit(Progress(cycle, passage + further, heads, dispatched), until.state)


def _alike_until(numbers: NDArray[np.int64], begin: int, by: int) -> int:
    """Return the first position from `begin` on at which numbers differ from those `by` further on."""
    differ = numbers[begin:-by] != numbers[begin + by :]
    return begin + (int(differ.argmax()) if differ.any() else len(differ))


def _moved(cursor: Cursor, by: int) -> Cursor:
    return cursor[0] + by, cursor[1]
