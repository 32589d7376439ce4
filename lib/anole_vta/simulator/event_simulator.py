"""Event-driven simulation of the accelerator's modules and instruction fetch; cycles without events are skipped."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from anole_vta.geometry import INSTRUCTION_BYTES, Geometry
from anole_vta.isa import StreamError
from anole_vta.simulator.activity import Activity, Module, Token
from anole_vta.simulator.read_channel import ChannelState, Read, ReadChannel
from anole_vta.simulator.streams import Streams

NEVER = 1 << 62
"""A cycle beyond any simulation: no event."""

_FETCH_REQUEST = 2
"""Cycles from the start of a fetch to its request."""

_READ_LATENCY = 18
"""Cycles from a request at an empty memory queue to its first beat."""

_MAX_TOKENS = 255

_RECEIVER = (1, 0, 2, 1)
"""The module that waits for each kind of token."""

_LOADER = (None, 1, 0, 0, 1)
"""The module that runs the loads of each memory client; the first client is the instruction fetch."""

_COMPUTE = int(Module.COMPUTE)

_FETCHED, _ENDED, _DISPATCH, _TEST = 0, 1, 4, 5
"""Kinds of events, in their order within a cycle. Each of three modules has its own end and test events."""

_EVENTS = 8


Cursor: TypeAlias = tuple[int, int]
"""A position in the program: a passage, and an offset in it, which for a module counts only its own instructions."""


class Progress(NamedTuple):
    """The progress of a program when COMPUTE has ended all instructions before a passage.

    Attributes:
        heads: for every module, the position of the first instruction that it has not ended, or after its last.
        dispatched: the position of the next instruction to dispatch.
    """

    cycle: int
    passage: int
    heads: tuple[Cursor, ...]
    dispatched: Cursor


class State(NamedTuple):
    """The state that, together with the program, determines the rest of the simulation; relative to its progress.

    Attributes:
        due: cycles until each kind of event.
        running: for every module that runs an instruction, its relative start cycle, passage and offset.
        pops: for every other module, the tokens for which its first instruction waits; None if its queue is empty.
        waiting: the length of each queue; None if all instructions have been dispatched, when it no longer matters.
        dispatch: the next instruction's offset in its passage, and the number fetched; None if all are dispatched.
        run: the relative first cycle of the current uninterrupted dispatch, and its modules; None if it has ended.
        stalled_by: the module whose full queue stalls the dispatch, if any.
    """

    due: tuple[int, ...]
    running: tuple[tuple[int, int, int] | None, ...]
    pops: tuple[tuple[int, ...] | None, ...]
    waiting: tuple[int, ...] | None
    dispatch: tuple[int, int] | None
    run: tuple[int, bytes] | None
    stalled_by: int | None
    tokens: tuple[int, ...]
    channel: ChannelState


class EventSimulator:
    """An event-driven simulator of a program, given as the activities of its modules.

    An instruction starts when it is at the head of its module's queue and the tokens that it waits for are present.
    """

    def __init__(self, streams: Streams, geometry: Geometry) -> None:
        self.streams = streams
        self._n = int(streams.firsts[-1])
        self._queue_entries = geometry.queue_entries
        self._bus_bytes = geometry.bus_bytes
        self._chunk = geometry.burst_beats * geometry.bus_bytes // INSTRUCTION_BYTES
        if geometry.bus_bytes >= INSTRUCTION_BYTES:
            self._chunk = min(self._chunk, 16)
        self._due = [NEVER] * _EVENTS
        # For every module: position of the first instruction that has not ended, and the activities of that passage.
        self._passages, self._offsets = [0] * 3, [0] * 3
        self._activities = list(streams.part(0).activities)
        self._started, self._waiting = [0] * 3, [0] * 3
        self._tokens = [0] * len(Token)
        self._fetched = self._dispatched = 0
        self._run_first = self._run_cycle = self._run_end = 0
        self._stalled_by: int | None = None
        self._channel = ReadChannel(_READ_LATENCY)

    def run(self) -> int:
        """Run the program and return the cycle in which FINISH starts; raise StreamError at a deadlock."""
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
        if self._dispatched < self._n or self._waiting[Module.COMPUTE]:
            raise StreamError(self._deadlock())
        return self._started[Module.COMPUTE]

    def _first_to_end(self, cycle: int, module: int) -> int:
        """Return the module whose instruction comes first in the program, among those that end in a cycle."""
        due = self._due
        if due.count(cycle) == 1:
            return module
        return min([other for other in range(3) if due[_ENDED + other] == cycle], key=self._number)

    def _fetch(self, cycle: int) -> None:
        """Start reading the next instructions, at most a burst."""
        n = min(self._chunk, self._n - self._fetched)
        if n:
            self._fetched += n
            beats = -(-n * INSTRUCTION_BYTES // self._bus_bytes)
            self._read(Read(0, cycle + _FETCH_REQUEST, (beats,), beats))

    def _dispatch(self, cycle: int) -> None:
        """Dispatch the fetched instructions to the modules' queues, one per cycle, while there is room."""
        begin, waiting, due = self._dispatched, self._waiting, self._due
        fetched = self.streams.modules(begin, self._fetched)
        accepted = fetched[: self._n_that_fit(fetched)]
        for module in range(3):
            if count := accepted.count(module):
                if not waiting[module]:
                    due[_TEST + module] = cycle + 1 + accepted.index(module)
                waiting[module] += count
        end = cycle + len(accepted)
        self._run_first, self._run_cycle, self._run_end = begin, cycle, end
        self._dispatched = begin + len(accepted)
        if len(accepted) == len(fetched):
            self._fetch(end)
        else:
            self._stalled_by = fetched[len(accepted)]

    def _n_that_fit(self, modules: bytes) -> int:
        """Return the number of next instructions, given by their modules, that fit the queues."""
        if max(self._waiting) + len(modules) <= self._queue_entries:
            return len(modules)
        room = [self._queue_entries - waiting for waiting in self._waiting]
        for number, module in enumerate(modules):
            if not room[module]:
                return number
            room[module] -= 1
        return len(modules)

    def _head(self, module: int) -> Activity:
        """Return the first activity in a module's queue, which must not be empty."""
        activities, offset = self._activities[module], self._offsets[module]
        while offset == len(activities):
            offset = self._offsets[module] = 0
            self._passages[module] = passage = self._passages[module] + 1
            activities = self._activities[module] = self.streams.part(passage).activities[module]
        return activities[offset]

    def _number(self, module: int) -> int:
        """Return the index in the program of the first instruction in a module's queue."""
        passage = self._passages[module]
        offset = self.streams.part(passage).numbers[module][self._offsets[module]]
        return int(self.streams.firsts[passage]) + offset

    def _test(self, cycle: int, module: int) -> None:
        """Start the first instruction in a module's queue if its tokens are present."""
        due, tokens = self._due, self._tokens
        if due[_ENDED + module] < NEVER or not self._waiting[module]:
            return
        activity = self._head(module)
        if cycle < self._run_end:
            earliest = self._run_cycle + 1 + self._number(module) - self._run_first
            if earliest > cycle:
                due[_TEST + module] = earliest
                return
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
        for planned in self._channel.add(read):
            module = _LOADER[planned.client]
            if module is None:
                self._due[_FETCHED] = planned.end
            else:
                activity = self._head(module)
                self._due[_ENDED + module] = activity.end(self._started[module], planned.end)

    def _end(self, cycle: int, module: int) -> None:
        """End a module's instruction and push its tokens."""
        due, activity = self._due, self._head(module)
        due[_ENDED + module] = NEVER
        self._waiting[module] -= 1
        self._offsets[module] += 1
        finished_passage = self._passages[module] if self._offsets[module] == len(self._activities[module]) else None
        if self._stalled_by == module:
            self._stalled_by = None
            due[_DISPATCH] = max(cycle, self._run_end)
        if self._waiting[module]:
            self._test(cycle, module)
        tokens = self._tokens
        for token in activity.pushes:
            if tokens[token] < _MAX_TOKENS:
                tokens[token] += 1
            receiver = _RECEIVER[token]
            if due[_ENDED + receiver] == NEVER:
                self._test(cycle, receiver)
        if finished_passage is not None and module == _COMPUTE:
            self._on_passage_end(cycle, finished_passage)

    def _on_passage_end(self, cycle: int, passage: int) -> None:
        """Hook: COMPUTE has ended its last instruction of a passage."""

    def progress(self, cycle: int, passage: int) -> Progress:
        """Return the program's progress in a cycle, relative to a passage."""
        for module, waiting in enumerate(self._waiting):
            if waiting:
                self._head(module)
        heads = tuple(zip(self._passages, self._offsets, strict=True))
        dispatching = self.streams.passage_of(self._dispatched)
        offset = self._dispatched - int(self.streams.firsts[dispatching])
        return Progress(cycle, passage, heads, (dispatching, offset))

    def state(self, at: Progress) -> State:
        """Return the state that determines the rest of the simulation."""
        cycle, passage, heads, (_, dispatched) = at
        due, is_dispatched, is_over = self._due, self._dispatched == self._n, self._run_end <= cycle
        running: list[tuple[int, int, int] | None] = [None] * 3
        pops: list[tuple[int, ...] | None] = [None] * 3
        for module, waiting in enumerate(self._waiting):
            if due[_ENDED + module] < NEVER:
                running[module] = (self._started[module] - cycle, heads[module][0] - passage, heads[module][1])
            elif waiting:
                pops[module] = self._head(module).pops
        return State(
            tuple([event - cycle if event < NEVER else NEVER for event in due]),
            tuple(running),
            tuple(pops),
            None if is_dispatched and is_over else tuple(self._waiting),
            None if is_dispatched else (dispatched, self._fetched - self._dispatched),
            None if is_over else (self._run_cycle - cycle, self.streams.modules(self._run_first, self._dispatched)),
            self._stalled_by,
            tuple(self._tokens),
            self._channel.state(cycle + _FETCH_REQUEST),
        )

    def resume(self, at: Progress, state: State) -> None:
        """Continue from a state at the given progress."""
        cycle, _, heads, dispatched = at
        streams = self.streams
        self._due[:] = [event + cycle if event < NEVER else NEVER for event in state.due]
        self._tokens[:] = state.tokens
        for module, (head, running) in enumerate(zip(heads, state.running, strict=True)):
            self._passages[module], self._offsets[module] = head
            self._activities[module] = streams.part(head[0]).activities[module]
            if running is not None:
                self._started[module] = running[0] + cycle
        self._dispatched = self._fetched = self._n
        if state.dispatch is not None:
            self._dispatched = int(streams.firsts[dispatched[0]]) + dispatched[1]
            self._fetched = self._dispatched + state.dispatch[1]
        self._waiting[:] = state.waiting or [streams.left(module, *head) for module, head in enumerate(heads)]
        run_cycle, run = state.run or (0, b"")
        self._run_cycle, self._run_end = cycle + run_cycle, cycle + run_cycle + len(run)
        self._run_first = self._dispatched - len(run)
        self._stalled_by = state.stalled_by
        self._channel.resume(state.channel, cycle + _FETCH_REQUEST)

    def _deadlock(self) -> str:
        """Return an error message with the waiting instructions and the missing tokens."""
        waiting = []
        for module in Module:
            if self._waiting[module]:
                missing = [Token(token) for token in self._head(module).pops if not self._tokens[token]]
                names = " and ".join(token.name.lower().replace("_", " ") for token in missing)
                waiting.append(f"instruction {self._number(module)} ({module.name.lower()}) waits for {names}")
        return f"deadlock: {'; '.join(waiting)}"
