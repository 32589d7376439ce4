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

_MAX_MISSES = 32
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
        self._max_waiting = self._last_hit = 0
        self._visits: list[_Visit] = []
        self._seen: dict[Hashable, list[int]] = {}

    def _on_passage_end(self, cycle: int, passage: int) -> None:
        # While the queues fill, no state recurs.
        waiting = sum(self._waiting)
        if self._dispatched < self._n and waiting > self._max_waiting:
            self._max_waiting = waiting
            return
        # If repetitions are rare, they begin at ends of tiles.
        if len(self._visits) - self._last_hit > _MAX_MISSES and not self.streams.part(passage).activities[Module.STORE]:
            return
        at = self.progress(cycle, passage + 1)
        visit: _Visit | None = _Visit(at, self.state(at))
        while visit is not None:
            visit = self._skip(visit)

    def _skip(self, visit: _Visit) -> _Visit | None:
        """Skip a repetition; return the visit at its end, or None if there is none."""
        streams, passage, dispatched = self.streams, visit.at.passage, visit.at.dispatched[0]
        upcoming = streams.kinds[passage : passage + _N_AHEAD], streams.patterns[dispatched : dispatched + _N_AHEAD]
        earlier_visits = self._seen.setdefault((visit.state, *(numbers.tobytes() for numbers in upcoming)), [])
        self._visits.append(visit)
        ends = (_Repetition(self.streams, self._visits, before).end() for before in earlier_visits[-_MAX_TRIED_VISITS:])
        farthest = max(ends, default=visit, key=lambda end: end.at.cycle)
        if farthest is visit:
            earlier_visits.append(len(self._visits) - 1)
            return None
        self.skipped += farthest.at.passage - passage
        self._last_hit = len(self._visits)
        self.resume(*farthest)
        return farthest


class _Repetition:
    """One or more repetitions, from the latest visit on, of the passages after an earlier visit with the same state.

    Modules equally far ahead of both visits reach equal instructions while the passages are equal. Every other
    module must rest, its next instruction waiting for the same tokens at both visits. The dispatch must be equally
    far ahead, until everything is dispatched.
    """

    def __init__(self, streams: Streams, visits: Sequence[_Visit], number: int) -> None:
        self._streams, self._visits, self._number = streams, visits, number
        self._earlier, self._latest = earlier, latest = visits[number], visits[-1]
        self._by = by = latest.at.passage - earlier.at.passage
        self._ahead: list[int] = []
        self._resting: list[int] = []
        for module, (then, now) in enumerate(zip(earlier.at.heads, latest.at.heads, strict=True)):
            (self._ahead if now == _move(then, by) else self._resting).append(module)
        first = min([earlier.at.passage, *[earlier.at.heads[module][0] for module in self._ahead]])
        self._equal_until, self._dispatched_until = _equal_until(streams.kinds, first, by), 0
        if latest.at.dispatched == _move(earlier.at.dispatched, by):
            self._dispatched_until = _equal_until(streams.patterns, earlier.at.dispatched[0], by)

    def end(self) -> _Visit:
        """Return the visit at its end, or the latest visit if nothing repeats."""
        visits, begin = self._visits, self._number + 1
        if self._n_repetitions(visits[begin]) < 1:
            return self._latest
        times = max(0, self._n_repetitions(self._latest)) + 1
        end = bisect_left(visits, True, begin, len(visits) - 1, key=lambda visit: self._n_repetitions(visit) < times)
        return self._latest if times == 1 and end == begin else self._shift_visit(visits[end - 1], times)

    def _n_repetitions(self, until: _Visit) -> int:
        """Return the number of consecutive repetitions of everything between the earlier visit and another one."""
        at, by, streams = until.at, self._by, self._streams
        for module in self._resting:
            if at.heads[module] != self._earlier.at.heads[module] or until.state.running[module]:
                return 0
        last = max([at.passage - 1, *[at.heads[module][0] for module in self._ahead]])
        times = (self._equal_until - last - 1) // by + 1
        if self._earlier.state.dispatch is None:
            return times
        if until.state.dispatch is None:
            return 0
        # The dispatch also examines the module of the next instruction, whose queue must have room.
        times = min(times, (self._dispatched_until - at.dispatched[0] - 1) // by + 1)
        # The program must not end within the fetched instructions.
        within = streams.passage_of(int(streams.firsts[-1]) - sum(until.state.dispatch))
        return min(times, (within - at.dispatched[0]) // by)

    def _shift_visit(self, until: _Visit, times: int) -> _Visit:
        """Return a visit shifted by a number of repetitions."""
        (cycle, passage, heads, dispatched), further = until.at, times * self._by
        cycle += times * (self._latest.at.cycle - self._earlier.at.cycle)
        resting = self._latest.at.heads
        heads = tuple(_move(heads[n], further) if n in self._ahead else resting[n] for n in range(3))
        if until.state.dispatch is not None:
            dispatched = _move(dispatched, further)
        return _Visit(Progress(cycle, passage + further, heads, dispatched), until.state)


def _equal_until(numbers: NDArray[np.int64], begin: int, by: int) -> int:
    """Return the first position from `begin` on at which the element `by` positions later differs."""
    differ = numbers[begin:-by] != numbers[begin + by :]
    return begin + (int(differ.argmax()) if differ.any() else len(differ))


def _move(cursor: Cursor, by: int) -> Cursor:
    return cursor[0] + by, cursor[1]
