"""The timing simulator: when every instruction of a program starts and ends, by events and closed forms."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from anole.errors import StreamError
from anole.targets.vta.geometry import INSTRUCTION_BYTES, Geometry, Memory
from anole.targets.vta.isa import Alu, Finish, Gemm, Instruction, Load, Store
from anole.targets.vta.memory import Bursts, Read, ReadChannel, bursts_of


class Module(IntEnum):
    """Who runs an instruction."""

    LOAD = 0
    COMPUTE = 1
    STORE = 2


class Token(IntEnum):
    """The queues of tokens, from whom to whom."""

    LOAD_TO_COMPUTE = 0
    COMPUTE_TO_LOAD = 1
    COMPUTE_TO_STORE = 2
    STORE_TO_COMPUTE = 3


@dataclass(frozen=True)
class Clock:
    """How many cycles things take.

    Attributes:
        latency: from a request at an empty queue of the memory to its first beat.
        pipelined: whether GEMM and ALU begin a micro-operation in every cycle; VTA's first hardware did not.
    """

    latency: int = 18
    pipelined: bool = True

    def compute(self, instruction: Gemm | Alu) -> int:
        """Returns the cycles of a GEMM or ALU instruction."""
        n = instruction.iter_out * instruction.iter_in * max(0, instruction.uop_end - instruction.uop_begin)
        if isinstance(instruction, Gemm):
            return n + 6 if self.pipelined else 4 * n + 2
        if instruction.use_imm:
            return n + 6 if self.pipelined else 5 * n + 1
        return 2 * n + 6 if self.pipelined else 6 * n + 1


@dataclass(frozen=True)
class Timeline:
    """When every instruction was busy, in cycles from the launch.

    Attributes:
        cycles: what the hardware's counter shows: the cycle in which FINISH starts.
        start, end: of every instruction, in the order of the program; busy in [start, end).
        read_beats, read_bursts: of all loads, instructions not counted.
        write_beats, write_bursts: of all stores.
    """

    cycles: int
    start: tuple[int, ...]
    end: tuple[int, ...]
    read_beats: int
    read_bursts: int
    write_beats: int
    write_bursts: int


def module_of(instruction: Instruction) -> Module:
    """Returns who runs an instruction."""
    if isinstance(instruction, Store):
        return Module.STORE
    if isinstance(instruction, Load) and instruction.memory in (Memory.INP, Memory.WGT):
        return Module.LOAD
    return Module.COMPUTE


def simulate(program: Sequence[Instruction], geometry: Geometry, clock: Clock = Clock()) -> Timeline:
    """Returns when every instruction of a program runs.

    Args:
        program: in the order in which it is fetched, a FINISH last.
        geometry: of the accelerator.
        clock: how many cycles things take.

    Raises:
        StreamError: there is no FINISH, or the program waits for tokens that never come.
    """
    if not program or not isinstance(program[-1], Finish):
        raise StreamError("the program does not end with FINISH")
    return _Simulation(program, geometry, clock).run()


_FETCH_REQUEST = 2
"""Cycles from the beginning of a fetch to its request."""

_CLIENT = {Memory.UOP: 1, Memory.INP: 2, Memory.WGT: 3, Memory.ACC: 4}
"""The loads' priorities at the memory; fetching comes first."""

_MOST_TOKENS = 255

_POPS = {
    Module.LOAD: (None, Token.COMPUTE_TO_LOAD),
    Module.COMPUTE: (Token.LOAD_TO_COMPUTE, Token.STORE_TO_COMPUTE),
    Module.STORE: (Token.COMPUTE_TO_STORE, None),
}
_PUSHES = {
    Module.LOAD: (None, Token.LOAD_TO_COMPUTE),
    Module.COMPUTE: (Token.COMPUTE_TO_LOAD, Token.COMPUTE_TO_STORE),
    Module.STORE: (Token.STORE_TO_COMPUTE, None),
}
_RECEIVER = (Module.COMPUTE, Module.LOAD, Module.STORE, Module.COMPUTE)


class _Event(IntEnum):
    """What happens; in a cycle in this order."""

    FETCHED = 0
    ENDED = 1
    DISPATCH = 2
    TEST = 3


class _Simulation:
    def __init__(self, program: Sequence[Instruction], geometry: Geometry, clock: Clock) -> None:
        self.program, self.geometry, self.clock = program, geometry, clock
        self.modules = [module_of(instruction) for instruction in program]
        self.start, self.end = [0] * len(program), [0] * len(program)
        self.events: list[tuple[int, int, int]] = []
        self.queues: list[deque[tuple[int, int]]] = [deque(), deque(), deque()]
        self.running: list[int | None] = [None, None, None]
        self.tokens = [0, 0, 0, 0]
        self.channel = ReadChannel(clock.latency)
        self.reads: dict[Read, int] = {}
        self.fetching: Read | None = None
        self.fetched = self.dispatched = 0
        self.stalled_by: Module | None = None
        self.write_beats = self.write_bursts = self.fetch_beats = self.fetch_bursts = 0
        burst_bytes = geometry.burst_beats * geometry.bus_bytes
        self.burst_bytes = burst_bytes
        self.chunk = burst_bytes // INSTRUCTION_BYTES
        if geometry.bus_bytes >= INSTRUCTION_BYTES:
            self.chunk = min(self.chunk, 16)

    def run(self) -> Timeline:
        events = self.events
        self._fetch(1)
        while events:
            cycle, event, about = heapq.heappop(events)
            if event == _Event.TEST:
                self._test(cycle, about)
            elif event == _Event.ENDED:
                if self.end[about] == cycle and self.running[self.modules[about]] == about:
                    self._ended(cycle, about)
            elif event == _Event.DISPATCH:
                self._dispatch(cycle)
            elif self.fetching is not None and self.fetching.end == cycle:
                self.fetching = None
                self._dispatch(cycle)
        if not self.start[-1]:
            raise StreamError(self._deadlock())
        return Timeline(
            self.start[-1],
            tuple(self.start),
            tuple(self.end),
            self.channel.beats - self.fetch_beats,
            self.channel.bursts - self.fetch_bursts,
            self.write_beats,
            self.write_bursts,
        )

    def _fetch(self, cycle: int) -> None:
        """Begins to read the next instructions."""
        n = min(self.chunk, len(self.program) - self.fetched)
        if not n:
            return
        address = self.fetched * INSTRUCTION_BYTES % self.burst_bytes
        bursts = self._bursts(address, n * INSTRUCTION_BYTES, 0, 1)
        self.fetch_beats += bursts.beats
        self.fetch_bursts += len(bursts.lengths)
        self.fetched += n
        self.fetching = Read(0, cycle + _FETCH_REQUEST, bursts.lengths, bursts.beats)
        self._read(self.fetching)

    def _dispatch(self, cycle: int) -> None:
        """Hands the fetched instructions to their modules, one in a cycle, while there is room."""
        now = cycle
        while self.dispatched < self.fetched:
            module = self.modules[self.dispatched]
            queue = self.queues[module]
            if len(queue) >= self.geometry.queue_entries:
                if cycle > now:
                    heapq.heappush(self.events, (cycle, _Event.DISPATCH, 0))
                else:
                    self.stalled_by = module
                return
            queue.append((self.dispatched, cycle + 1))
            if len(queue) == 1:
                heapq.heappush(self.events, (cycle + 1, _Event.TEST, module))
            self.dispatched += 1
            cycle += 1
        self._fetch(cycle)

    def _test(self, cycle: int, module: int) -> None:
        """Starts the first instruction of a module's queue, if it may."""
        queue = self.queues[module]
        if self.running[module] is not None or not queue:
            return
        number, testable = queue[0]
        if testable > cycle:
            heapq.heappush(self.events, (testable, _Event.TEST, module))
            return
        instruction = self.program[number]
        flags, tokens = instruction.dependence, self.tokens
        prev, next_ = _POPS[Module(module)]
        pops_prev, pops_next = flags.pop_prev and prev is not None, flags.pop_next and next_ is not None
        if (pops_prev and not tokens[prev]) or (pops_next and not tokens[next_]):  # type: ignore[index]
            return
        if pops_prev:
            tokens[prev] -= 1  # type: ignore[index]
        if pops_next:
            tokens[next_] -= 1  # type: ignore[index]
        self.running[module] = number
        self.start[number] = cycle + 1
        self._execute(number, instruction, cycle + 1)

    def _execute(self, number: int, instruction: Instruction, start: int) -> None:
        """Plans when an instruction ends."""
        if isinstance(instruction, (Gemm, Alu)):
            self._end_at(number, start + self.clock.compute(instruction))
        elif isinstance(instruction, Finish) or not instruction.x_size:
            self._end_at(number, start + 1)
        elif isinstance(instruction, Store):
            self._end_at(number, start + self._store_cycles(instruction))
        else:
            bursts = self._tile(instruction, instruction.memory)
            if bursts.beats:
                wide = self.geometry.element_bytes(instruction.memory) <= self.geometry.bus_bytes
                client, ready = _CLIENT[instruction.memory], start + 1 + instruction.y_pad_0
                read = Read(client, ready, bursts.lengths, bursts.beats, gap=2 if wide else 1)
                self.reads[read] = number
                self._read(read)
            else:
                self._end_at(number, self._load_end(number, start))

    def _read(self, read: Read) -> None:
        for changed in self.channel.add(read):
            if changed is self.fetching:
                heapq.heappush(self.events, (changed.end, _Event.FETCHED, 0))
            elif changed in self.reads:
                number = self.reads[changed]
                self._end_at(number, self._load_end(number, changed.end))

    def _load_end(self, number: int, last_beat_end: int) -> int:
        """Returns when a load ends whose last beat has come.

        A single port writes the data, a few cycles after the beats, and in the cycles between these the border, from
        its first row to its last. A row without a border of its own takes a cycle to pass.
        """
        load = self.program[number]
        assert isinstance(load, Load)
        start, beats = self.start[number], self._tile(load, load.memory).beats
        delay = 2 if self.geometry.element_bytes(load.memory) > self.geometry.bus_bytes else 1
        written = last_beat_end + delay
        cycle, free = start + 1, written - start - 1 - beats
        beside = load.x_pad_0 + load.x_pad_1
        for n, passing in (
            (load.y_pad_0 * load.columns, 0),
            (load.y_size * beside, 0 if beside else load.y_size),
            (load.y_pad_1 * load.columns, 0),
        ):
            between = min(n, max(0, start + 1 + free - cycle))
            cycle += between + passing
            if n > between:
                cycle = max(cycle, written) + n - between
        return max(cycle, written) + 1

    def _store_cycles(self, store: Store) -> int:
        bursts = self._tile(store, Memory.OUT)
        self.write_beats += bursts.beats
        self.write_bursts += len(bursts.lengths)
        beats_each = self.geometry.element_bytes(Memory.OUT) // self.geometry.bus_bytes
        if beats_each > 1:
            return 3 * len(bursts.lengths) + bursts.beats + bursts.beats // beats_each
        return 4 * len(bursts.lengths) + bursts.beats

    def _tile(self, instruction: Load | Store, memory: Memory) -> Bursts:
        size = self.geometry.element_bytes(memory)
        address = instruction.dram_base * size % self.burst_bytes
        return self._bursts(address, instruction.x_size * size, instruction.x_stride * size, instruction.y_size)

    def _bursts(self, address: int, row_bytes: int, stride_bytes: int, rows: int) -> Bursts:
        return bursts_of(address, row_bytes, stride_bytes, rows, self.geometry.bus_bytes, self.burst_bytes)

    def _end_at(self, number: int, cycle: int) -> None:
        self.end[number] = cycle
        heapq.heappush(self.events, (cycle, _Event.ENDED, number))

    def _ended(self, cycle: int, number: int) -> None:
        """Frees the module of an instruction and hands out its tokens."""
        module = self.modules[number]
        self.running[module] = None
        self.queues[module].popleft()
        if self.stalled_by == module:
            self.stalled_by = None
            heapq.heappush(self.events, (cycle, _Event.DISPATCH, 0))
        heapq.heappush(self.events, (cycle, _Event.TEST, module))
        flags = self.program[number].dependence
        for pushed, token in zip((flags.push_prev, flags.push_next), _PUSHES[module], strict=True):
            if pushed and token is not None:
                self.tokens[token] = min(_MOST_TOKENS, self.tokens[token] + 1)
                heapq.heappush(self.events, (cycle, _Event.TEST, _RECEIVER[token]))

    def _deadlock(self) -> str:
        """Says which instructions wait for which tokens."""
        waiting = []
        for module, queue in zip(Module, self.queues, strict=True):
            if queue:
                number = queue[0][0]
                flags = self.program[number].dependence
                lacking = [
                    token.name.lower().replace("_", " ")
                    for pops, token in zip((flags.pop_prev, flags.pop_next), _POPS[module], strict=True)
                    if pops and token is not None and not self.tokens[token]
                ]
                waiting.append(f"instruction {number} ({module.name.lower()}) waits for {' and '.join(lacking)}")
        return f"deadlock: {'; '.join(waiting)}"
