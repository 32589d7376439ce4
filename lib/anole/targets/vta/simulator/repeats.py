"""Skips repetitions in a program: from an equal state, equal activities take equal cycles."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable
from typing import NamedTuple

from anole.targets.vta.geometry import Geometry
from anole.targets.vta.simulator.activity import Module
from anole.targets.vta.simulator.clockwork import Clockwork, ProgramProgress, State
from anole.targets.vta.simulator.streams import Streams

_GLANCE = 4
"""Number of upcoming loads that are compared to find earlier visits that may have continued alike."""

_TRIED = 8
"""The most such earlier visits that are tried."""


class _Visit(NamedTuple):
    """One point of the simulation."""

    at: ProgramProgress
    state: State


class Skipper(Clockwork):
    """A clockwork that skips what it has run before; the resulting cycles are the same.

    The state and the upcoming activities decide everything that happens. Whenever a store ends, the relative state is
    looked up. If it occurred before, the program continues from the latest visit up to which the activities now equal
    those then, because everything in between would happen as it did then.
    """

    def __init__(self, streams: Streams, geometry: Geometry) -> None:
        super().__init__(streams, geometry)
        self.skipped = 0
        """Number of skipped instructions."""
        self._visits: list[_Visit] = []
        self._seen: dict[Hashable, list[int]] = {}

    def _end(self, cycle: int, module: int) -> None:
        super()._end(cycle, module)
        if module != Module.STORE:
            return
        at = self.progress(cycle)
        here: _Visit | None = _Visit(at, self.state(at))
        while here is not None:
            here = self._skip(here)

    def _skip(self, here: _Visit) -> _Visit | None:
        """Skips a known repetition; returns the visit that it leads to, or None if there is none."""
        loads, n = self.streams.activities[Module.LOAD], here.at.ended[Module.LOAD]
        # Equal activities are the same object, so their ids identify them.
        tried = self._seen.setdefault((here.state, *map(id, loads[n : n + _GLANCE])), [])
        self._visits.append(here)
        beyond = (self._beyond(before, here) for before in tried[-_TRIED:])
        there = max(beyond, default=here, key=lambda visit: visit.at.cycle)
        if there is here:
            tried.append(len(self._visits) - 1)
            return None
        self.skipped += sum(there.at.ended) - sum(here.at.ended)
        self.resume(*there)
        return there

    def _beyond(self, before: int, here: _Visit) -> _Visit:
        """Returns the visit reached by repeating from here what followed an earlier visit; `here` if none did."""
        until = self._last_in_common(before, here.at)
        if until == before:
            return here
        return _Visit(_moved(self._visits[until].at, self._visits[before].at, here.at), self._visits[until].state)

    def _last_in_common(self, before: int, here: ProgramProgress) -> int:
        """Returns the last visit up to which the activities after an earlier visit equal those after `here`."""
        last = len(self._visits) - 1
        if not self._follows(before, before + 1, here):
            return before
        if self._follows(before, last, here):
            return last
        ends = range(before + 2, last)
        return before + 1 + bisect_left(ends, True, key=lambda until: not self._follows(before, until, here))

    def _follows(self, before: int, until: int, here: ProgramProgress) -> bool:
        """Returns whether everything examined between two visits comes again after `here`."""
        (begin, state), (end, end_state) = self._visits[before], self._visits[until]
        further = here.first - begin.first
        for activities, a, b, c in zip(self.streams.activities, begin.ended, end.ended, here.ended, strict=True):
            # A module's next activity is examined too.
            if activities[a : b + 1] != activities[c : c + b - a + 1]:
                return False
        if state.dispatched is None:
            looked_at = end.first + max(end_state.heads) + 1
        elif end_state.dispatched is None or end_state.fetched is None:
            return False
        else:
            if end.first + end_state.fetched + further > len(self.streams.modules):
                return False
            # The dispatch also examines the module of the next instruction, whose queue must have room.
            looked_at = end.first + end_state.dispatched + 1
        modules = self.streams.modules
        return modules[begin.first : looked_at] == modules[here.first : looked_at + further]


def _moved(there: ProgramProgress, before: ProgramProgress, here: ProgramProgress) -> ProgramProgress:
    """Returns `here` moved by the distance from `before` to `there`."""
    return ProgramProgress(
        there.cycle + here.cycle - before.cycle,
        there.first + here.first - before.first,
        tuple(a + c - b for a, b, c in zip(there.ended, before.ended, here.ended, strict=True)),
    )
