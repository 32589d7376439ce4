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


_FETCHED, _ENDED, _DISPATCH, _TEST = range(4)
"""What happens; in a cycle in this order."""

_NOTHING = Bursts((), 0)


@dataclass(frozen=True, slots=True)
class _Step:
    """What matters of an instruction.

    Attributes:
        module: who runs it.
        pops, pushes: tokens that it waits for and leaves.
        cycles: how long it takes, where nothing else has a say in that; 0 for what reads memory.
        client, requested, gap: its priority at the memory, the cycles until its first request, and to the next.
        bursts: what it reads or writes.
        delay: cycles from its last beat until that is written.
        border: its elements of border: in the first rows, beside the data, and in the last rows; `passing` is how
            many rows have none beside the data.
    """

    module: Module
    pops: tuple[Token, ...]
    pushes: tuple[Token, ...]
    cycles: int
    client: int = 0
    requested: int = 0
    gap: int = 1
    bursts: Bursts = _NOTHING
    delay: int = 0
    border: tuple[int, int, int] = (0, 0, 0)
    passing: int = 0


class _Simulation:
    def __init__(self, program: Sequence[Instruction], geometry: Geometry, clock: Clock) -> None:
        self.program, self.geometry, self.clock = program, geometry, clock
        self.burst_bytes = geometry.burst_beats * geometry.bus_bytes
        self.chunk = self.burst_bytes // INSTRUCTION_BYTES
        if geometry.bus_bytes >= INSTRUCTION_BYTES:
            self.chunk = min(self.chunk, 16)
        known: dict[Instruction, _Step] = {}
        self.steps = [known.get(each) or known.setdefault(each, self._step(each)) for each in program]
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

    def run(self) -> Timeline:
        events = self.events
        self._fetch(1)
        while events:
            cycle, event, about = heapq.heappop(events)
            if event == _ENDED:
                if self.end[about] == cycle and self.running[self.steps[about].module] == about:
                    self._ended(cycle, about)
            elif event == _TEST:
                self._test(cycle, about)
            elif event == _DISPATCH:
                self._dispatch(cycle)
            elif self.fetching is not None and self.fetching.end == cycle:
                self.fetching = None
                self._dispatch(cycle)
        if not self.start[-1]:
            raise StreamError(self._deadlock())
        read = [step.bursts for step in self.steps if step.client]
        written = [step.bursts for step in self.steps if step.module == Module.STORE]
        return Timeline(
            self.start[-1],
            tuple(self.start),
            tuple(self.end),
            *(sum(bursts.beats for bursts in read), sum(len(bursts.lengths) for bursts in read)),
            *(sum(bursts.beats for bursts in written), sum(len(bursts.lengths) for bursts in written)),
        )

    def _step(self, instruction: Instruction) -> _Step:
        """Returns what matters of an instruction."""
        module, flags = module_of(instruction), instruction.dependence
        pops, pushes = (
            tuple(token for token, wanted in zip(tokens[module], asked, strict=True) if wanted and token is not None)
            for tokens, asked in (
                (_POPS, (flags.pop_prev, flags.pop_next)),
                (_PUSHES, (flags.push_prev, flags.push_next)),
            )
        )
        if isinstance(instruction, (Gemm, Alu)):
            return _Step(module, pops, pushes, self.clock.compute(instruction))
        if isinstance(instruction, Finish) or not instruction.x_size:
            return _Step(module, pops, pushes, 1)
        if isinstance(instruction, Store):
            bursts = self._tile(instruction, Memory.OUT)
            return _Step(module, pops, pushes, self._store_cycles(bursts), bursts=bursts)
        memory = instruction.memory
        wide = self.geometry.element_bytes(memory) <= self.geometry.bus_bytes
        beside = instruction.x_pad_0 + instruction.x_pad_1
        border = (
            instruction.y_pad_0 * instruction.columns,
            instruction.y_size * beside,
            instruction.y_pad_1 * instruction.columns,
        )
        return _Step(
            module,
            pops,
            pushes,
            0,
            client=_CLIENT[memory],
            requested=1 + instruction.y_pad_0,
            gap=2 if wide else 1,
            bursts=self._tile(instruction, memory),
            delay=1 if wide else 2,
            border=border,
            passing=0 if beside else instruction.y_size,
        )

    def _fetch(self, cycle: int) -> None:
        """Begins to read the next instructions."""
        n = min(self.chunk, len(self.program) - self.fetched)
        if not n:
            return
        address = self.fetched * INSTRUCTION_BYTES % self.burst_bytes
        bursts = self._bursts(address, n * INSTRUCTION_BYTES, 0, 1)
        self.fetched += n
        self.fetching = Read(0, cycle + _FETCH_REQUEST, bursts.lengths, bursts.beats)
        self._read(self.fetching)

    def _dispatch(self, cycle: int) -> None:
        """Hands the fetched instructions to their modules, one in a cycle, while there is room."""
        now = cycle
        while self.dispatched < self.fetched:
            module = self.steps[self.dispatched].module
            queue = self.queues[module]
            if len(queue) >= self.geometry.queue_entries:
                if cycle > now:
                    heapq.heappush(self.events, (cycle, _DISPATCH, 0))
                else:
                    self.stalled_by = module
                return
            cycle += 1
            queue.append((self.dispatched, cycle))
            if len(queue) == 1:
                heapq.heappush(self.events, (cycle, _TEST, module))
            self.dispatched += 1
        self._fetch(cycle)

    def _test(self, cycle: int, module: int) -> None:
        """Starts the first instruction of a module's queue, if it may."""
        queue = self.queues[module]
        if self.running[module] is not None or not queue:
            return
        number, testable = queue[0]
        if testable > cycle:
            heapq.heappush(self.events, (testable, _TEST, module))
            return
        step, tokens = self.steps[number], self.tokens
        for token in step.pops:
            if not tokens[token]:
                return
        for token in step.pops:
            tokens[token] -= 1
        self.running[module] = number
        self.start[number] = start = cycle + 1
        if step.cycles:
            self._end_at(number, start + step.cycles)
        elif step.bursts.beats:
            read = Read(step.client, start + step.requested, step.bursts.lengths, step.bursts.beats, gap=step.gap)
            self.reads[read] = number
            self._read(read)
        else:
            self._end_at(number, self._load_end(step, start, start))

    def _read(self, read: Read) -> None:
        for changed in self.channel.add(read):
            if changed is self.fetching:
                heapq.heappush(self.events, (changed.end, _FETCHED, 0))
            elif changed in self.reads:
                number = self.reads[changed]
                self._end_at(number, self._load_end(self.steps[number], self.start[number], changed.end))

    def _load_end(self, step: _Step, start: int, last_beat_end: int) -> int:
        """Returns when a load ends whose last beat has come.

        A single port writes the data, a few cycles after the beats, and in the cycles between these the border, from
        its first row to its last. A row without a border of its own takes a cycle to pass.
        """
        written = last_beat_end + step.delay
        if not any(step.border):
            return written + 1
        first, beside, last = step.border
        cycle, free_until = start + 1, written - step.bursts.beats
        for n, passed in ((first, 0), (beside, step.passing), (last, 0)):
            between = min(n, max(0, free_until - cycle))
            cycle += between + passed
            if n > between:
                cycle = max(cycle, written) + n - between
        return max(cycle, written) + 1

    def _store_cycles(self, bursts: Bursts) -> int:
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
        heapq.heappush(self.events, (cycle, _ENDED, number))

    def _ended(self, cycle: int, number: int) -> None:
        """Frees the module of an instruction and hands out its tokens."""
        step = self.steps[number]
        module, tokens = step.module, self.tokens
        self.running[module] = None
        self.queues[module].popleft()
        if self.stalled_by == module:
            self.stalled_by = None
            heapq.heappush(self.events, (cycle, _DISPATCH, 0))
        self._test(cycle, module)
        for token in step.pushes:
            tokens[token] = min(_MOST_TOKENS, tokens[token] + 1)
            self._test(cycle, _RECEIVER[token])

    def _deadlock(self) -> str:
        """Says which instructions wait for which tokens."""
        waiting = []
        for module, queue in zip(Module, self.queues, strict=True):
            if queue:
                number = queue[0][0]
                lacking = [token for token in self.steps[number].pops if not self.tokens[token]]
                names = " and ".join(token.name.lower().replace("_", " ") for token in lacking)
                waiting.append(f"instruction {number} ({module.name.lower()}) waits for {names}")
        return f"deadlock: {'; '.join(waiting)}"
