"""Event-driven simulation of the accelerator's modules and its instruction fetch; cycles without events are skipped."""

from __future__ import annotations

from typing import NamedTuple

from anole.targets.vta.geometry import INSTRUCTION_BYTES, Geometry
from anole.targets.vta.isa import StreamError
from anole.targets.vta.simulator.activity import Activity, Module, Token
from anole.targets.vta.simulator.read_channel import ChannelState, Read, ReadChannel
from anole.targets.vta.simulator.streams import Streams

NEVER = 1 << 62
"""A cycle that is never reached."""

_FETCH_REQUEST = 2
"""Cycles from the start of a fetch to its request."""

_READ_LATENCY = 18
"""Cycles from a request at an empty memory queue to its first beat."""

_MOST_TOKENS = 255

_RECEIVER = (Module.COMPUTE, Module.LOAD, Module.STORE, Module.COMPUTE)
"""The module that waits for each kind of token."""

_LOADER = (None, Module.COMPUTE, Module.LOAD, Module.LOAD, Module.COMPUTE)
"""The module that runs the loads of each memory client; the first client is the instruction fetch."""

_FETCHED, _ENDED, _DISPATCH, _TEST = 0, 1, 4, 5
"""Kinds of events, in their order within a cycle. Instructions end, and are tested, in each of three modules."""

_EVENTS = 8


class ProgramProgress(NamedTuple):
    """How far a program has come: the first instruction that has not ended, and how many have, by module."""

    cycle: int
    first: int
    ended: tuple[int, ...]


class State(NamedTuple):
    """The state that, together with the program, decides what a clockwork does next; relative to its progress.

    Attributes:
        due: cycles until each kind of event.
        started: for every module that runs an instruction, its relative start cycle; otherwise 0.
        heads: position of each queue's first instruction, relative to `ProgramProgress.first`; -1 if it is empty.
        waiting: number of instructions in each queue; None if all have been dispatched, when it does not matter.
        dispatched, fetched: relative position of the next instruction to dispatch and to fetch; or None likewise.
        run: relative position and cycle of the first instruction of the current uninterrupted dispatch; None if it is
            over.
        stalled_by: the module whose full queue stalls the dispatch, if any.
    """

    due: tuple[int, ...]
    started: tuple[int, ...]
    heads: tuple[int, ...]
    waiting: tuple[int, ...] | None
    dispatched: int | None
    fetched: int | None
    run: tuple[int, int] | None
    stalled_by: int | None
    tokens: tuple[int, ...]
    channel: ChannelState


class Clockwork:
    """Runs a program given as the activities of its modules.

    An instruction starts when it is at the head of its module's queue and the tokens that it waits for are present.
    """

    def __init__(self, streams: Streams, geometry: Geometry) -> None:
        self.streams = streams
        self._n = len(streams.modules)
        self._queue_entries = geometry.queue_entries
        self._bus_bytes = geometry.bus_bytes
        self._chunk = geometry.burst_beats * geometry.bus_bytes // INSTRUCTION_BYTES
        if geometry.bus_bytes >= INSTRUCTION_BYTES:
            self._chunk = min(self._chunk, 16)
        self._due = [NEVER] * _EVENTS
        self._ended, self._given, self._started = [0] * 3, [0] * 3, [0] * 3
        self._tokens = [0] * len(Token)
        self._fetched = self._dispatched = 0
        self._run_first = self._run_cycle = 0
        self._stalled_by: int | None = None
        self._channel = ReadChannel(_READ_LATENCY)

    def run(self) -> int:
        """Runs the program and returns the cycle in which FINISH starts; raises StreamError at a deadlock."""
        due = self._due
        self._fetch(1)
        while (cycle := min(due)) < NEVER:
            event = due.index(cycle)
            if _ENDED <= event < _DISPATCH:
                self._end(cycle, self._first_to_end(cycle, event - _ENDED))
                continue
            due[event] = NEVER
            if event >= _TEST:
                self._test(cycle, event - _TEST)
            else:
                self._dispatch(cycle)
        if self._ended[Module.COMPUTE] < len(self.streams.activities[Module.COMPUTE]):
            raise StreamError(self._deadlock())
        return self._started[Module.COMPUTE]

    def _first_to_end(self, cycle: int, module: int) -> int:
        """Returns the module whose ending instruction comes first in the program, among those that end in a cycle."""
        due = self._due
        if due.count(cycle) == 1:
            return module
        tied = [each for each in Module if due[_ENDED + each] == cycle]
        return min(tied, key=lambda each: self.streams.numbers[each][self._ended[each]])

    def _fetch(self, cycle: int) -> None:
        """Starts reading the next instructions: a whole burst, or a part of one."""
        n = min(self._chunk, self._n - self._fetched)
        if n:
            self._fetched += n
            beats = -(-n * INSTRUCTION_BYTES // self._bus_bytes)
            self._read(Read(0, cycle + _FETCH_REQUEST, (beats,), beats))

    def _dispatch(self, cycle: int) -> None:
        """Dispatches the fetched instructions to the modules' queues, one per cycle, while there is room."""
        modules, given, ended, entries = self.streams.modules, self._given, self._ended, self._queue_entries
        number, now, due = self._dispatched, cycle, self._due
        self._run_first, self._run_cycle = number, cycle
        while number < self._fetched:
            module = modules[number]
            waiting = given[module] - ended[module]
            if waiting >= entries:
                self._dispatched = number
                if cycle > now:
                    due[_DISPATCH] = cycle
                else:
                    self._stalled_by = module
                return
            cycle += 1
            number += 1
            given[module] += 1
            if not waiting:
                due[_TEST + module] = cycle
        self._dispatched = number
        self._fetch(cycle)

    def _test(self, cycle: int, module: int) -> None:
        """Starts the first instruction of a module's queue if its tokens are present."""
        due, place = self._due, self._ended[module]
        if due[_ENDED + module] < NEVER or place == self._given[module]:
            return
        since_run = self.streams.numbers[module][place] - self._run_first
        if since_run >= 0 and (testable := self._run_cycle + 1 + since_run) > cycle:
            due[_TEST + module] = testable
            return
        activity, tokens = self.streams.activities[module][place], self._tokens
        for token in activity.pops:
            if not tokens[token]:
                return
        for token in activity.pops:
            tokens[token] -= 1
        self._started[module] = start = cycle + 1
        if activity.cycles:
            due[_ENDED + module] = start + activity.cycles
        elif activity.bursts.beats:
            ready, bursts = start + activity.requested, activity.bursts
            self._read(Read(activity.client, ready, bursts.lengths, bursts.beats, gap=activity.gap))
        else:
            due[_ENDED + module] = activity.end(start, start)

    def _read(self, read: Read) -> None:
        for changed in self._channel.add(read):
            module = _LOADER[changed.client]
            if module is None:
                self._due[_FETCHED] = changed.end
            else:
                activity = self.streams.activities[module][self._ended[module]]
                self._due[_ENDED + module] = activity.end(self._started[module], changed.end)

    def _end(self, cycle: int, module: int) -> None:
        """Ends a module's instruction and hands out its tokens."""
        activity = self._running(module)
        self._due[_ENDED + module] = NEVER
        self._ended[module] += 1
        if self._stalled_by == module:
            self._stalled_by = None
            self._due[_DISPATCH] = cycle
        self._test(cycle, module)
        for token in activity.pushes:
            self._tokens[token] = min(_MOST_TOKENS, self._tokens[token] + 1)
            self._test(cycle, _RECEIVER[token])

    def progress(self, cycle: int) -> ProgramProgress:
        """Returns the program's progress in a cycle."""
        heads = [numbers[n] for numbers, n in zip(self.streams.numbers, self._ended, strict=True) if n < len(numbers)]
        return ProgramProgress(cycle, min(heads, default=self._n), tuple(self._ended))

    def state(self, at: ProgramProgress) -> State:
        """Returns the state that decides everything from here on."""
        cycle, first, ended = at
        due, whole = self._due, self._dispatched == self._n
        queues = zip(self.streams.numbers, ended, self._given, strict=True)
        running = self._run_cycle + self._dispatched - self._run_first > cycle
        return State(
            tuple([each - cycle if each < NEVER else NEVER for each in due]),
            tuple([self._started[module] - cycle if due[_ENDED + module] < NEVER else 0 for module in range(3)]),
            tuple([numbers[n] - first if n < given else -1 for numbers, n, given in queues]),
            None if whole else tuple([given - n for given, n in zip(self._given, ended, strict=True)]),
            None if whole else self._dispatched - first,
            None if whole else self._fetched - first,
            (self._run_first - first, self._run_cycle - cycle) if running else None,
            self._stalled_by,
            tuple(self._tokens),
            self._channel.state(cycle + _FETCH_REQUEST),
        )

    def resume(self, at: ProgramProgress, state: State) -> None:
        """Continues from a state at the given progress."""
        cycle, first, ended = at
        self._due[:] = [each + cycle if each < NEVER else NEVER for each in state.due]
        self._ended[:], self._tokens[:] = ended, state.tokens
        for module in Module:
            if self._due[_ENDED + module] < NEVER:
                self._started[module] = state.started[module] + cycle
        if state.waiting is None or state.dispatched is None or state.fetched is None:
            self._given[:] = [len(stream) for stream in self.streams.activities]
            self._dispatched = self._fetched = self._n
        else:
            self._given[:] = [a + b for a, b in zip(ended, state.waiting, strict=True)]
            self._dispatched, self._fetched = first + state.dispatched, first + state.fetched
        run_first, run_cycle = state.run or (self._n, 0)
        self._run_first, self._run_cycle = first + run_first, cycle + run_cycle
        self._stalled_by = state.stalled_by
        self._channel.resume(state.channel, cycle + _FETCH_REQUEST)

    def _running(self, module: int) -> Activity:
        return self.streams.activities[module][self._ended[module]]

    def _deadlock(self) -> str:
        """Describes which instructions wait for which tokens."""
        waiting = []
        for module, ended, given in zip(Module, self._ended, self._given, strict=True):
            if ended < given:
                lacking = [token for token in self._running(module).pops if not self._tokens[token]]
                names = " and ".join(token.name.lower().replace("_", " ") for token in lacking)
                number = self.streams.numbers[module][ended]
                waiting.append(f"instruction {number} ({module.name.lower()}) waits for {names}")
        return f"deadlock: {'; '.join(waiting)}"
