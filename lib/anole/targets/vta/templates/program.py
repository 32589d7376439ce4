"""A program for the accelerator while it is written: tokens, micro-operations and where things lie in DRAM."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anole.errors import ConfigError
from anole.targets.vta.geometry import INSTRUCTION_BYTES, Geometry, Memory
from anole.targets.vta.isa import Dependence, Finish, Instruction, Load, Store, Uop
from anole.targets.vta.simulator.steps import Module, module_of
from anole.targets.vta.templates.code import Code, Passage, Placed

_PAGE_BYTES = 4096
_FIRST_ADDRESS = 0x100000
_MOST_INSTRUCTIONS = (4 << 20) // INSTRUCTION_BYTES


@dataclass(frozen=True)
class Region:
    """A buffer in DRAM, in bytes."""

    address: int
    size_bytes: int

    def element(self, size_bytes: int) -> int:
        """Returns its address in elements of a size."""
        return self.address // size_bytes


@dataclass(frozen=True)
class Program:
    """What the accelerator runs.

    Attributes:
        geometry: what it is written for.
        instructions: in the order in which they are fetched.
        uops: in the order in which they lie in the region ``uop``.
        regions: the buffers in DRAM, by name.
    """

    geometry: Geometry
    instructions: Sequence[Instruction]
    uops: tuple[Uop, ...]
    regions: Mapping[str, Region]


class _Written(NamedTuple):
    """A passage, the places at which it was written, and for which tokens modules wait behind it."""

    passage: Passage
    places: tuple[int, ...]
    waits_prev: tuple[bool, ...]
    waits_next: tuple[bool, ...]


class ProgramWriter:
    """Writes a program as VTA's runtime does, so that its streams come out the same.

    A token is waited for by the module's next instruction, and left by its last one if nothing was written since;
    otherwise an instruction that does nothing else carries it.

    Args:
        geometry: of the accelerator.
        sizes_bytes: of the buffers in DRAM, in their order; each begins on a page of its own.
    """

    def __init__(self, geometry: Geometry, sizes_bytes: Mapping[str, int]) -> None:
        self.geometry = geometry
        self._passages: list[Placed] = []
        self._written: dict[Hashable, _Written] = {}
        self._open: list[Instruction] = []
        self._located: list[tuple[int, int]] = []
        self.regions: dict[str, Region] = {}
        address = _FIRST_ADDRESS
        for name, size_bytes in sizes_bytes.items():
            self.regions[name] = Region(address, size_bytes)
            address += -(-size_bytes // _PAGE_BYTES) * _PAGE_BYTES
        self._uop_address = address
        self._uops: list[Uop] = []
        self._cached: dict[Hashable, int] = {}
        self._cache_end = 0
        self._waits_prev = [False, False, False]
        self._waits_next = [False, False, False]

    def base(self, name: str, memory: Memory) -> int:
        """Returns the address of a buffer in elements of a memory."""
        return self.regions[name].element(self.geometry.element_bytes(memory))

    def passage(self, name: Hashable, places: tuple[int, ...], write: Callable[[], None]) -> None:
        """Writes what `write` does, or the same again at other places.

        Args:
            name: of the passage; those of the same name differ in nothing but their places.
            places: where in DRAM it is at work, in elements from anywhere; `add` says which instructions are at which.
            write: adds its instructions.
        """
        if self._open:
            self._close()
        situation = (name, tuple(self._waits_prev), tuple(self._waits_next), len(self._uops))
        again = self._written.get(situation)
        if again is not None:
            self._passages.append(Placed(again.passage, tuple(map(int.__sub__, places, again.places))))
            self._waits_prev, self._waits_next = list(again.waits_prev), list(again.waits_next)
            return
        n_before = len(self._passages)
        write()
        # What loads micro-operations, or has changed what was there before, is not the same when written again.
        if len(self._uops) == situation[-1] and len(self._passages) == n_before:
            waits = tuple(self._waits_prev), tuple(self._waits_next)
            self._written[situation] = _Written(self._close(), places, *waits)

    def _close(self) -> Passage:
        """Ends the passage that is being written."""
        passage = Passage(tuple(self._open), tuple(self._located))
        self._passages.append(Placed(passage))
        self._open, self._located = [], []
        return passage

    def _reopen(self) -> None:
        """Goes on with the last passage, which then has one place only."""
        if self._passages:
            last = self._passages.pop()
            self._open = last.passage.moved(last.by)

    def add(self, instruction: Instruction, place: int | None = None) -> None:
        """Appends an instruction, which waits for what its module is to wait for.

        Args:
            instruction: as it is here.
            place: which of its passage's places it is at, if it moves with that.
        """
        module = module_of(instruction)
        prev, next_ = self._waits_prev[module], self._waits_next[module]
        if prev or next_:
            self._waits_prev[module] = self._waits_next[module] = False
            instruction = instruction._replace(dependence=Dependence(prev, next_))
        if place is not None:
            self._located.append((len(self._open), place))
        self._open.append(instruction)

    def wait(self, module: Module, of: Module) -> None:
        """Lets a module's next instruction wait for a token of a neighbour."""
        waits = self._waits_prev if of < module else self._waits_next
        if waits[module]:
            self._commit(module)
        waits[module] = True

    def signal(self, module: Module, to: Module) -> None:
        """Leaves a token for a neighbour when what a module was last given is done."""
        self._commit(module)
        flag = "push_next" if module < to else "push_prev"
        if not self._open:
            self._reopen()
        last = self._open[-1] if self._open else None
        if last is None or module_of(last) != module or _is_noop(last) or getattr(last.dependence, flag):
            last = _noop(module)
            self._open.append(last)
        self._open[-1] = last._replace(dependence=last.dependence._replace(**{flag: True}))

    def kernel(self, name: Hashable, uops: Iterable[Uop]) -> tuple[int, int]:
        """Returns the range of micro-operations in the buffer, after loading them if they are not there.

        VTA knows them by the name of their kernel; VTA++ shares what is equal.

        Raises:
            ConfigError: they exceed the buffer.
        """
        wanted = tuple(uops)
        key = wanted if self.geometry.variant == "vta++" else name
        begin = self._cached.get(key)
        if begin is None:
            depth = self.geometry.depth(Memory.UOP)
            if len(wanted) > depth:
                raise ConfigError(f"scratchpad overflow uop {len(wanted)}")
            if self._cache_end + len(wanted) > depth:
                self._cached, self._cache_end = {}, 0
            begin = self._cached[key] = self._cache_end
            dram_base = self._uop_address // self.geometry.element_bytes(Memory.UOP) + len(self._uops)
            self.add(Load(Memory.UOP, begin, dram_base, 1, len(wanted), len(wanted)))
            self._uops += wanted
            self._cache_end += len(wanted)
        return begin, begin + len(wanted)

    def finish(self) -> Program:
        """Returns the program, which ends when all that was stored is in DRAM.

        Raises:
            ConfigError: it is longer than one run may be.
        """
        self.signal(Module.STORE, Module.COMPUTE)
        self.signal(Module.LOAD, Module.COMPUTE)
        self.wait(Module.COMPUTE, Module.STORE)
        self.wait(Module.COMPUTE, Module.LOAD)
        self._commit(Module.COMPUTE)
        self._open.append(Finish())
        self._close()
        code = Code(self._passages)
        if len(code) > _MOST_INSTRUCTIONS:
            raise ConfigError(f"stream of {len(code)} instructions; {_MOST_INSTRUCTIONS} fit")
        uop_bytes = self.geometry.element_bytes(Memory.UOP) * len(self._uops)
        regions = {**self.regions, "uop": Region(self._uop_address, uop_bytes)}
        return Program(self.geometry, code, tuple(self._uops), regions)

    def _commit(self, module: Module) -> None:
        if self._waits_prev[module] or self._waits_next[module]:
            self.add(_noop(module))


def _noop(module: Module) -> Instruction:
    """Returns what does nothing but wait and signal."""
    if module == Module.STORE:
        return Store()
    return Load(Memory.INP if module == Module.LOAD else Memory.UOP)


def _is_noop(instruction: Instruction) -> bool:
    return isinstance(instruction, (Load, Store)) and not instruction.x_size
