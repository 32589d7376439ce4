"""The activities of modules that run instructions: tokens, bursts and cycles."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from anole_vta.geometry import Geometry, Memory
from anole_vta.isa import Alu, Finish, Gemm, Instruction, Load, Store
from anole_vta.simulator.read_channel import Bursts, bursts_of


class Module(IntEnum):
    """A module that runs instructions."""

    LOAD = 0
    COMPUTE = 1
    STORE = 2


class Token(IntEnum):
    """A queue of tokens from one module to another."""

    LOAD_TO_COMPUTE = 0
    COMPUTE_TO_LOAD = 1
    COMPUTE_TO_STORE = 2
    STORE_TO_COMPUTE = 3


def module_of(instruction: Instruction) -> Module:
    """Return the module that runs an instruction."""
    if isinstance(instruction, Store):
        return Module.STORE
    if isinstance(instruction, Load) and instruction.memory in (Memory.INP, Memory.WGT):
        return Module.LOAD
    return Module.COMPUTE


_CLIENT = {Memory.UOP: 1, Memory.INP: 2, Memory.WGT: 3, Memory.ACC: 4}
"""The memory priorities of loads; the instruction fetch has priority 0."""

_TOKENS = {
    Module.LOAD: (None, Token.COMPUTE_TO_LOAD, None, Token.LOAD_TO_COMPUTE),
    Module.COMPUTE: (
        *(Token.LOAD_TO_COMPUTE, Token.STORE_TO_COMPUTE),
        *(Token.COMPUTE_TO_LOAD, Token.COMPUTE_TO_STORE),
    ),
    Module.STORE: (Token.COMPUTE_TO_STORE, None, Token.STORE_TO_COMPUTE, None),
}
"""The token that each flag of a `Dependence` pops or pushes, by module."""

_NOTHING = Bursts((), 0)


@dataclass(frozen=True, slots=True)
class Activity:
    """The work of a module for one instruction.

    Attributes:
        pops, pushes: tokens that the module waits for and pushes; plain integers for speed.
        cycles: the duration if independent of other modules; 0 for loads.
        client, requested, gap: the memory priority, cycles until the first request, and cycles between requests.
        bursts: the bursts that the module reads or writes.
        delay: cycles from the last beat until the data is written.
        border: border elements in the rows above the data, left and right of it, and in the rows below.
        passing: rows of data without border elements at their sides.
    """

    module: Module
    pops: tuple[int, ...]
    pushes: tuple[int, ...]
    cycles: int
    client: int = 0
    requested: int = 0
    gap: int = 1
    bursts: Bursts = _NOTHING
    delay: int = 0
    border: tuple[int, int, int] = (0, 0, 0)
    passing: int = 0

    def end(self, start: int, last_beat_end: int) -> int:
        """Return the cycle in which a load ends, given the end of its last beat.

        A single port writes the data a few cycles after the beats, and the border, from the first row to the last, in
        the cycles between. It takes a cycle to pass a row without border elements.
        """
        data_end = last_beat_end + self.delay
        first, sides, last = self.border
        if not (first or sides or last):
            return data_end + 1
        cycle, free_until = start + 1, data_end - self.bursts.beats
        for n, n_passed in ((first, 0), (sides, self.passing), (last, 0)):
            n_between = min(n, max(0, free_until - cycle))
            cycle += n_between + n_passed
            if n > n_between:
                cycle = max(cycle, data_end) + n - n_between
        return max(cycle, data_end) + 1


class Activities:
    """The activities of instructions on an accelerator; equal activities are the same object."""

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry
        self._burst_bytes = geometry.burst_beats * geometry.bus_bytes
        self._cache: dict[tuple[object, ...], Activity] = {}
        self._same: dict[Activity, Activity] = {}

    def period(self, instruction: Load | Store) -> int:
        """Return the number of elements in DRAM after which an instruction's timing repeats."""
        return max(1, self._burst_bytes // self._geometry.element_bytes(_memory_of(instruction)))

    def of(self, instruction: Instruction, by: int = 0) -> Activity:
        """Return the activity of an instruction moved in DRAM by `by` elements."""
        if isinstance(instruction, (Load, Store)):
            memory = _memory_of(instruction)
            address = (instruction.dram_base + by) * self._geometry.element_bytes(memory) % self._burst_bytes
            shape = instruction[3:] if isinstance(instruction, Load) else instruction[2:]
            key: tuple[object, ...] = (memory, address, *shape)
        else:
            address, key = 0, instruction
        activity = self._cache.get(key)
        if activity is None:
            activity = self._activity(instruction, address)
            self._cache[key] = activity = self._same.setdefault(activity, activity)
        return activity

    def _activity(self, instruction: Instruction, address: int) -> Activity:
        module = module_of(instruction)
        tokens = [token if flag else None for token, flag in zip(_TOKENS[module], instruction.dependence, strict=True)]
        pops, pushes = (tuple(int(token) for token in half if token is not None) for half in (tokens[:2], tokens[2:]))
        if isinstance(instruction, (Gemm, Alu)):
            return Activity(module, pops, pushes, _cycles(instruction))
        if isinstance(instruction, Finish) or not instruction.x_size:
            return Activity(module, pops, pushes, 1)
        if isinstance(instruction, Store):
            bursts = self._bursts(instruction, Memory.OUT, address)
            return Activity(module, pops, pushes, self._store_cycles(bursts), bursts=bursts)
        memory = instruction.memory
        fits_bus = self._geometry.element_bytes(memory) <= self._geometry.bus_bytes
        sides, columns = instruction.x_pad_0 + instruction.x_pad_1, instruction.columns
        return Activity(
            *(module, pops, pushes, 0),
            client=_CLIENT[memory],
            requested=1 + instruction.y_pad_0,
            gap=2 if fits_bus else 1,
            bursts=self._bursts(instruction, memory, address),
            delay=1 if fits_bus else 2,
            border=(instruction.y_pad_0 * columns, instruction.y_size * sides, instruction.y_pad_1 * columns),
            passing=0 if sides else instruction.y_size,
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


def _cycles(instruction: Gemm | Alu) -> int:
    n = instruction.iter_out * instruction.iter_in * max(0, instruction.uop_end - instruction.uop_begin)
    # GEMM and ALU start a micro-operation per cycle; one that reads two accumulators takes two cycles.
    return n + 6 if isinstance(instruction, Gemm) or instruction.use_imm else 2 * n + 6


def _memory_of(instruction: Load | Store) -> Memory:
    return instruction.memory if isinstance(instruction, Load) else Memory.OUT
