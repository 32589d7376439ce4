"""A writer of accelerator programs, which manages tokens, micro-operations and DRAM addresses."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anole.errors import ConfigError
from anole_vta.geometry import INSTRUCTION_BYTES, Geometry, Memory
from anole_vta.isa import FREE, Dependence, Finish, Instruction, Load, Store, Uop
from anole_vta.simulator.activity import Module, module_of
from anole_vta.simulator.streams import N_BASE_ADDRESSES, Code, Passage

_PAGE_BYTES = 4096
_FIRST_ADDRESS = 0x100000
_MAX_INSTRUCTIONS = (4 << 20) // INSTRUCTION_BYTES


@dataclass(frozen=True)
class Region:
    """A buffer in DRAM, in bytes."""

    address: int
    size_bytes: int


@dataclass(frozen=True)
class Program:
    """A program for an accelerator with this geometry; its micro-operations are in the region ``uop``."""

    geometry: Geometry
    instructions: Sequence[Instruction]
    uops: tuple[Uop, ...]
    regions: Mapping[str, Region]


@dataclass(frozen=True)
class _WrittenPassages:
    """A written sequence of passages, its base addresses, and the tokens that modules wait for at its end."""

    order: NDArray[np.int64]
    by: NDArray[np.int64]
    bases: NDArray[np.int64]
    waits: tuple[Dependence, ...]


class ProgramWriter:
    """A writer that emits the same instruction streams as VTA's runtime.

    A module's next instruction pops a token. Its last instruction pushes a token if nothing was written since;
    otherwise a no-op carries the token. Each buffer in DRAM begins on its own page.
    """

    def __init__(self, geometry: Geometry, sizes_bytes: Mapping[str, int]) -> None:
        self.geometry = geometry
        self._passages: list[Passage] = []
        # Closed passages, in pieces; the first `_unchanged` pieces were not reopened since the current passage began.
        self._order: list[NDArray[np.int64]] = []
        self._by: list[NDArray[np.int64]] = []
        self._unchanged = 0
        self._written: dict[Hashable, _WrittenPassages] = {}
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
        self._waits = (FREE,) * len(Module)

    def base(self, name: str, memory: Memory) -> int:
        """Return the base address of a buffer, in elements of a memory."""
        return self.regions[name].address // self.geometry.element_bytes(memory)

    def passages(self, names: Sequence[Hashable], bases: NDArray[np.int64], write: Callable[[int], None]) -> None:
        """Write passages by calling `write` with their indices, or repeat earlier passages with equal names.

        Passages with the same name differ only in their base addresses `bases`, shape (n, N_BASE_ADDRESSES), in
        elements from any origin; `add` assigns instructions to these. A passage may consist of other passages.
        """
        if self._open:
            self._close()
        repeated: list[_WrittenPassages] = []
        for number, name in enumerate(names):
            key = (name, self._waits, len(self._uops))
            previous = self._written.get(key)
            if previous is not None:
                repeated.append(previous)
                self._waits = previous.waits
                continue
            self._repeat(repeated, bases[number - len(repeated) : number])
            repeated = []
            n_before, outer_unchanged = len(self._order), self._unchanged
            self._unchanged = n_before
            write(number)
            if self._open:
                self._close()
            # A passage that loads micro-operations, or changes earlier instructions, cannot be repeated.
            if len(self._uops) == key[-1] and self._unchanged == n_before:
                order, by = (np.concatenate(pieces[n_before:]) for pieces in (self._order, self._by))
                self._written[key] = _WrittenPassages(order, by, bases[number], self._waits)
            self._unchanged = min(outer_unchanged, self._unchanged)
        self._repeat(repeated, bases[len(bases) - len(repeated) :])

    def _repeat(self, repeated: Sequence[_WrittenPassages], bases: NDArray[np.int64]) -> None:
        """Repeat written passages with other base addresses."""
        if repeated:
            offsets = bases - np.array([part.bases for part in repeated])
            self._order.append(np.concatenate([part.order for part in repeated]))
            lengths = [len(part.order) for part in repeated]
            self._by.append(np.concatenate([part.by for part in repeated]) + np.repeat(offsets, lengths, axis=0))

    def _close(self) -> None:
        """End the open passage."""
        self._order.append(np.array([len(self._passages)]))
        self._by.append(np.zeros((1, N_BASE_ADDRESSES), np.int64))
        self._passages.append(Passage(tuple(self._open), tuple(self._located)))
        self._open, self._located = [], []

    def _reopen(self) -> None:
        """Reopen the last passage."""
        order, by = self._order.pop(), self._by.pop()
        self._order.append(order[:-1])
        self._by.append(by[:-1])
        self._unchanged = min(self._unchanged, len(self._order) - 1)
        passage = self._passages[order[-1]]
        self._open, self._located = passage.relocate(by[-1].tolist()), list(passage.located)

    def add(self, instruction: Instruction, base_index: int | None = None) -> None:
        """Append an instruction, which pops the tokens that its module waits for.

        `base_index` is the index of the base address in the passage with which the instruction is relocated, if any.
        """
        module = module_of(instruction)
        if self._waits[module] is not FREE:
            instruction = instruction._replace(dependence=self._waits[module])
            self._wait(module, FREE)
        if base_index is not None:
            self._located.append((len(self._open), base_index))
        self._open.append(instruction)

    def wait(self, module: Module, of: Module) -> None:
        """Make a module's next instruction wait for a token from a neighboring module."""
        flag = "pop_prev" if of < module else "pop_next"
        if getattr(self._waits[module], flag):
            self._commit(module)
        self._wait(module, self._waits[module]._replace(**{flag: True}))

    def _wait(self, module: Module, tokens: Dependence) -> None:
        self._waits = (*self._waits[:module], tokens, *self._waits[module + 1 :])

    def signal(self, module: Module, to: Module) -> None:
        """Make a module's last instruction push a token for a neighboring module."""
        self._commit(module)
        flag = "push_next" if module < to else "push_prev"
        if not self._open and self._order:
            self._reopen()
        last = self._open[-1] if self._open else None
        if last is None or module_of(last) != module or _is_noop(last) or getattr(last.dependence, flag):
            last = _noop(module)
            self._open.append(last)
        self._open[-1] = last._replace(dependence=last.dependence._replace(**{flag: True}))

    def kernel(self, name: Hashable, uops: Iterable[Uop]) -> tuple[int, int]:
        """Return the range of micro-operations in the buffer, loading them first if necessary.

        VTA identifies micro-operations by the name of their kernel; VTA++ shares equal ones. Raise ConfigError if the
        micro-operations exceed the buffer.
        """
        kernel_uops = tuple(uops)
        key = kernel_uops if self.geometry.variant == "vta++" else name
        begin = self._cached.get(key)
        if begin is None:
            depth = self.geometry.depth(Memory.UOP)
            if len(kernel_uops) > depth:
                raise ConfigError(f"scratchpad overflow uop {len(kernel_uops)}")
            if self._cache_end + len(kernel_uops) > depth:
                self._cached, self._cache_end = {}, 0
            begin = self._cached[key] = self._cache_end
            dram_base = self._uop_address // self.geometry.element_bytes(Memory.UOP) + len(self._uops)
            self.add(Load(Memory.UOP, begin, dram_base, 1, len(kernel_uops), len(kernel_uops)))
            self._uops += kernel_uops
            self._cache_end += len(kernel_uops)
        return begin, begin + len(kernel_uops)

    def finish(self) -> Program:
        """Return the program, which ends when all stores have reached DRAM; raise ConfigError if it is too long."""
        self.signal(Module.STORE, Module.COMPUTE)
        self.signal(Module.LOAD, Module.COMPUTE)
        self.wait(Module.COMPUTE, Module.STORE)
        self.wait(Module.COMPUTE, Module.LOAD)
        self._commit(Module.COMPUTE)
        self._open.append(Finish())
        self._close()
        code = Code(self._passages, np.concatenate(self._order), np.concatenate(self._by))
        if len(code) > _MAX_INSTRUCTIONS:
            raise ConfigError(f"stream of {len(code)} instructions; {_MAX_INSTRUCTIONS} fit")
        uop_bytes = self.geometry.element_bytes(Memory.UOP) * len(self._uops)
        regions = {**self.regions, "uop": Region(self._uop_address, uop_bytes)}
        return Program(self.geometry, code, tuple(self._uops), regions)

    def _commit(self, module: Module) -> None:
        if self._waits[module] is not FREE:
            self.add(_noop(module))


def _noop(module: Module) -> Instruction:
    """Return an instruction that only pops and pushes tokens."""
    if module == Module.STORE:
        return Store()
    return Load(Memory.INP if module == Module.LOAD else Memory.UOP)


def _is_noop(instruction: Instruction) -> bool:
    return isinstance(instruction, (Load, Store)) and not instruction.x_size
