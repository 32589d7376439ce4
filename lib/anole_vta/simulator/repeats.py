"""Fast-forwarding of repetitions: from equal states, equal activities take equal cycles."""

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

_N_AHEAD = 2
"""The number of upcoming passages that are part of the key of a visit."""

_MAX_TRIED_VISITS = 2
"""The maximum number of earlier visits with the same key that are tried."""

_PATIENCE = 32
"""The number of visits without a repetition after which only ends of tiles are visited."""


class _Visit(NamedTuple):
    """The progress and state at one point of the simulation."""

    at: Progress
    state: State


class FastForwardSimulator(EventSimulator):
    """A simulator that skips repetitions without changing the resulting cycles.

    State and upcoming activities determine everything else. Whenever COMPUTE has ended a passage, the relative state
    is looked up. If it occurred before, the simulation jumps to the last point up to which the activities are equal,
    because everything in between would repeat.
    """

    def __init__(self, streams: Streams, geometry: Geometry) -> None:
        super().__init__(streams, geometry)
        self.skipped = 0
        """Number of skipped passages."""
        self._max_waiting = self._fruitful = 0
        self._visits: list[_Visit] = []
        self._seen: dict[Hashable, list[int]] = {}

    def _passed(self, cycle: int, passage: int) -> None:
        # While the queues fill, no state recurs.
        waiting = sum(self._waiting)
        if self._dispatched < self._n and waiting > self._max_waiting:
            self._max_waiting = waiting
            return
        # If repetitions are rare, they begin at ends of tiles.
        if len(self._visits) - self._fruitful > _PATIENCE and not self.streams.part(passage).activities[Module.STORE]:
            return
        at = self.progress(cycle, passage + 1)
        here: _Visit | None = _Visit(at, self.state(at))
        while here is not None:
            here = self._skip(here)

    def _skip(self, here: _Visit) -> _Visit | None:
        """Skip a repetition; return the visit at its end, or None if there is none."""
        streams, passage, dispatched = self.streams, here.at.passage, here.at.dispatched[0]
        upcoming = streams.kinds[passage : passage + _N_AHEAD], streams.patterns[dispatched : dispatched + _N_AHEAD]
        tried = self._seen.setdefault((here.state, *(each.tobytes() for each in upcoming)), [])
        self._visits.append(here)
        beyond = (_Repetition(self.streams, self._visits, before).end() for before in tried[-_MAX_TRIED_VISITS:])
        there = max(beyond, default=here, key=lambda visit: visit.at.cycle)
        if there is here:
            tried.append(len(self._visits) - 1)
            return None
        self.skipped += there.at.passage - passage
        self._fruitful = len(self._visits)
        self.resume(*there)
        return there


class _Repetition:
    """One or more repetitions, from the latest visit on, of the passages after an earlier visit with the same state.

    Modules equally far ahead of both visits reach equal instructions while the passages are equal. Every other
    module must rest, its next instruction waiting for the same tokens at both visits. The dispatch must be equally
    far ahead, until everything is dispatched.
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
        self._equal_until, self._dispatched_until = _equal_until(streams.kinds, first, by), 0
        if here.at.dispatched == _moved(before.at.dispatched, by):
            self._dispatched_until = _equal_until(streams.patterns, before.at.dispatched[0], by)

    def end(self) -> _Visit:
        """Return the visit at its end, or the latest visit if nothing repeats."""
        visits, begin = self._visits, self._number + 1
        if self._n_repetitions(visits[begin]) < 1:
            return self._here
        times = max(0, self._n_repetitions(self._here)) + 1
        beyond = bisect_left(visits, True, begin, len(visits) - 1, key=lambda visit: self._n_repetitions(visit) < times)
        return self._here if times == 1 and beyond == begin else self._shifted(visits[beyond - 1], times)

    def _n_repetitions(self, until: _Visit) -> int:
        """Return the number of consecutive repetitions of everything between the earlier visit and another one."""
        at, by, streams = until.at, self._by, self._streams
        for module in self._resting:
            if at.heads[module] != self._before.at.heads[module] or until.state.running[module]:
                return 0
        last = max([at.passage - 1, *[at.heads[module][0] for module in self._ahead]])
        times = (self._equal_until - last - 1) // by + 1
        if self._before.state.dispatch is None:
            return times
        if until.state.dispatch is None:
            return 0
        # The dispatch also examines the module of the next instruction, whose queue must have room.
        times = min(times, (self._dispatched_until - at.dispatched[0] - 1) // by + 1)
        # The program must not end within the fetched instructions.
        within = streams.passage_of(int(streams.firsts[-1]) - sum(until.state.dispatch))
        return min(times, (within - at.dispatched[0]) // by)

    def _shifted(self, until: _Visit, times: int) -> _Visit:
        """Return a visit shifted by a number of repetitions."""
        (cycle, passage, heads, dispatched), further = until.at, times * self._by
        cycle += times * (self._here.at.cycle - self._before.at.cycle)
        resting = self._here.at.heads
        heads = tuple(_moved(heads[n], further) if n in self._ahead else resting[n] for n in range(3))
        if until.state.dispatch is not None:
            dispatched = _moved(dispatched, further)
        return _Visit(Progress(cycle, passage + further, heads, dispatched), until.state)


def _equal_until(numbers: NDArray[np.int64], begin: int, by: int) -> int:
    """Return the first position from `begin` on at which the element `by` positions later differs."""
    differ = numbers[begin:-by] != numbers[begin + by :]
    return begin + (int(differ.argmax()) if differ.any() else len(differ))


def _moved(cursor: Cursor, by: int) -> Cursor:
    return cursor[0] + by, cursor[1]
