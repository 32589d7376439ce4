"""What repeats in a program is run once: where all is as it was before, and so is what follows, that is skipped."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable
from typing import NamedTuple

from anole.targets.vta.geometry import Geometry
from anole.targets.vta.simulator.clockwork import Clockwork
from anole.targets.vta.simulator.state import ProgramProgress, State
from anole.targets.vta.simulator.steps import Module
from anole.targets.vta.simulator.streams import Streams

_GLANCE = 4
"""How many of the loads to come are looked at to find where what follows may have been the same."""

_TRIED = 8
"""How many earlier visits are tried, of those after which that may be so."""


class _Visit(NamedTuple):
    """Where a program has been, and what decided how it went on."""

    at: ProgramProgress
    state: State


class Skipper(Clockwork):
    """A clockwork that does not run again what it has run before; its cycles are the same.

    What happens is decided by a state and by the steps to come. Whenever a store ends, the state is looked at as it is
    seen from there. If it was the same before, the program goes on from the last of the later visits up to which its
    steps are now what they were then: all between would happen as it did then.

    Args:
        streams: the program.
        geometry: of the accelerator.
        latency: of its memory.
    """

    def __init__(self, streams: Streams, geometry: Geometry, latency: int) -> None:
        super().__init__(streams, geometry, latency)
        self.skipped = 0
        """How many instructions were skipped."""
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
        """Skips what has happened before; returns where that leads, or None if there is nothing of the kind."""
        loads, n = self.streams.steps[Module.LOAD], here.at.ended[Module.LOAD]
        # Equal steps are one and the same.
        tried = self._seen.setdefault((here.state, *map(id, loads[n : n + _GLANCE])), [])
        self._visits.append(here)
        there = max((self._beyond(before, here) for before in tried[-_TRIED:]), default=here, key=_cycle)
        if there is here:
            tried.append(len(self._visits) - 1)
            return None
        self.skipped += sum(there.at.ended) - sum(here.at.ended)
        self.resume(*there)
        return there

    def _beyond(self, before: int, here: _Visit) -> _Visit:
        """Returns where what followed an earlier visit leads from here, as far as it follows; or else `here`."""
        until = self._last_in_common(before, here.at)
        if until == before:
            return here
        return _Visit(_moved(self._visits[until].at, self._visits[before].at, here.at), self._visits[until].state)

    def _last_in_common(self, before: int, here: ProgramProgress) -> int:
        """Returns the last visit up to which what followed an earlier one is what follows here."""
        last = len(self._visits) - 1
        if not self._follows(before, before + 1, here):
            return before
        if self._follows(before, last, here):
            return last
        ends = range(before + 2, last)
        return before + 1 + bisect_left(ends, True, key=lambda until: not self._follows(before, until, here))

    def _follows(self, before: int, until: int, here: ProgramProgress) -> bool:
        """Returns whether all that was looked at between two visits comes again from here on."""
        (begin, state), (end, end_state) = self._visits[before], self._visits[until]
        further = here.first - begin.first
        for steps, a, b, c in zip(self.streams.steps, begin.ended, end.ended, here.ended, strict=True):
            # A module's next step is looked at, too.
            if steps[a : b + 1] != steps[c : c + b - a + 1]:
                return False
        if state.dispatched is None:
            looked_at = end.first + max(end_state.heads) + 1
        elif end_state.dispatched is None or end_state.fetched is None:
            return False
        else:
            if end.first + end_state.fetched + further > len(self.streams.modules):
                return False
            # Whose queue must have room for the next one is looked at, too.
            looked_at = end.first + end_state.dispatched + 1
        modules = self.streams.modules
        return modules[begin.first : looked_at] == modules[here.first : looked_at + further]


def _cycle(visit: _Visit) -> int:
    return visit.at.cycle


def _moved(there: ProgramProgress, before: ProgramProgress, here: ProgramProgress) -> ProgramProgress:
    """Returns what is as far from `here` as `there` is from `before`."""
    return ProgramProgress(
        there.cycle + here.cycle - before.cycle,
        there.first + here.first - before.first,
        tuple(a + c - b for a, b, c in zip(there.ended, before.ended, here.ended, strict=True)),
    )
