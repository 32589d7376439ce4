"""The timing of instructions: the modules that run them, the tokens they wait for, and their durations."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from anole.targets.vta.geometry import Geometry, Memory
from anole.targets.vta.isa import Alu, Finish, Gemm, Instruction, Load, Store
from anole.targets.vta.simulator.read_channel import Bursts, bursts_of


class Module(IntEnum):
    """The modules that run instructions."""

    LOAD = 0
    COMPUTE = 1
    STORE = 2


class Token(IntEnum):
    """The queues of tokens, from one module to another."""

    LOAD_TO_COMPUTE = 0
    COMPUTE_TO_LOAD = 1
    COMPUTE_TO_STORE = 2
    STORE_TO_COMPUTE = 3


@dataclass(frozen=True)
class Clock:
    """Timing parameters of the hardware, in cycles.

    Attributes:
        latency: cycles from a request at an empty memory queue to its first beat.
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


CLOCK = Clock()
"""The timing of VTA as it is generated today."""


def module_of(instruction: Instruction) -> Module:
    """Returns the module that runs an instruction."""
    if isinstance(instruction, Store):
        return Module.STORE
    if isinstance(instruction, Load) and instruction.memory in (Memory.INP, Memory.WGT):
        return Module.LOAD
    return Module.COMPUTE


_CLIENT = {Memory.UOP: 1, Memory.INP: 2, Memory.WGT: 3, Memory.ACC: 4}
"""The loads' priorities at the memory; the instruction fetch comes first."""

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

_NOTHING = Bursts((), 0)


@dataclass(frozen=True, slots=True)
class Step:
    """The timing of an instruction.

    Attributes:
        module: the module that runs it.
        pops, pushes: tokens that it waits for and leaves.
        cycles: its duration if nothing else affects it; 0 for loads.
        client, requested, gap: its priority at the memory, the cycles until its first request, and between requests.
        bursts: the bursts that it reads or writes.
        delay: cycles from its last beat until that is written.
        border: border elements in the first rows, beside the data, and in the last rows.
        passing: number of rows without border elements beside the data.
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

    def end(self, start: int, last_beat_end: int) -> int:
        """Returns when a load ends, given the end of its last beat.

        A single port writes the data, a few cycles after the beats. In the cycles between these it writes the border,
        from its first row to its last. A row without a border of its own takes a cycle to pass.
        """
        written = last_beat_end + self.delay
        first, beside, last = self.border
        if not (first or beside or last):
            return written + 1
        cycle, free_until = start + 1, written - self.bursts.beats
        for n, passed in ((first, 0), (beside, self.passing), (last, 0)):
            between = min(n, max(0, free_until - cycle))
            cycle += between + passed
            if n > between:
                cycle = max(cycle, written) + n - between
        return max(cycle, written) + 1


class Steps:
    """The steps of instructions on an accelerator; instructions with equal timing share one object."""

    def __init__(self, geometry: Geometry, clock: Clock) -> None:
        self._geometry, self._clock = geometry, clock
        self._burst_bytes = geometry.burst_beats * geometry.bus_bytes
        self._known: dict[tuple[object, ...], Step] = {}
        self._same: dict[Step, Step] = {}

    def period(self, instruction: Load | Store) -> int:
        """Returns the distance in DRAM, in elements, after which an instruction's timing repeats."""
        return max(1, self._burst_bytes // self._geometry.element_bytes(_memory_of(instruction)))

    def of(self, instruction: Instruction, by: int = 0) -> Step:
        """Returns the step of an instruction moved in DRAM by `by` elements."""
        if isinstance(instruction, (Load, Store)):
            memory = _memory_of(instruction)
            address = (instruction.dram_base + by) * self._geometry.element_bytes(memory) % self._burst_bytes
            shape = instruction[3:] if isinstance(instruction, Load) else instruction[2:]
            key: tuple[object, ...] = (memory, address, *shape)
        else:
            address, key = 0, instruction
        step = self._known.get(key)
        if step is None:
            step = self._step(instruction, address)
            self._known[key] = step = self._same.setdefault(step, step)
        return step

    def _step(self, instruction: Instruction, address: int) -> Step:
        module, flags = module_of(instruction), instruction.dependence
        pops, pushes = (
            tuple(token for token, wanted in zip(tokens[module], asked, strict=True) if wanted and token is not None)
            for tokens, asked in (
                (_POPS, (flags.pop_prev, flags.pop_next)),
                (_PUSHES, (flags.push_prev, flags.push_next)),
            )
        )
        if isinstance(instruction, (Gemm, Alu)):
            return Step(module, pops, pushes, self._clock.compute(instruction))
        if isinstance(instruction, Finish) or not instruction.x_size:
            return Step(module, pops, pushes, 1)
        if isinstance(instruction, Store):
            bursts = self._bursts(instruction, Memory.OUT, address)
            return Step(module, pops, pushes, self._store_cycles(bursts), bursts=bursts)
        memory = instruction.memory
        wide = self._geometry.element_bytes(memory) <= self._geometry.bus_bytes
        beside = instruction.x_pad_0 + instruction.x_pad_1
        border = (
            instruction.y_pad_0 * instruction.columns,
            instruction.y_size * beside,
            instruction.y_pad_1 * instruction.columns,
        )
        return Step(
            module,
            pops,
            pushes,
            0,
            client=_CLIENT[memory],
            requested=1 + instruction.y_pad_0,
            gap=2 if wide else 1,
            bursts=self._bursts(instruction, memory, address),
            delay=1 if wide else 2,
            border=border,
            passing=0 if beside else instruction.y_size,
        )

    def _store_cycles(self, bursts: Bursts) -> int:
        beats_each = self._geometry.element_bytes(Memory.OUT) // self._geometry.bus_bytes
        if beats_each > 1:
            return 3 * len(bursts.lengths) + bursts.beats + bursts.beats // beats_each
        return 4 * len(bursts.lengths) + bursts.beats

    def _bursts(self, tile: Load | Store, memory: Memory, address: int) -> Bursts:
        size = self._geometry.element_bytes(memory)
        row, stride = tile.x_size * size, tile.x_stride * size
        return bursts_of(address, row, stride, tile.y_size, self._geometry.bus_bytes, self._burst_bytes)


def _memory_of(instruction: Load | Store) -> Memory:
    return instruction.memory if isinstance(instruction, Load) else Memory.OUT
