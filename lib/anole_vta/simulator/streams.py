"""Compact instruction streams: passages that repeat at other DRAM addresses are stored once.

The activities of the modules are also stored by passage.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from anole_vta.isa import Instruction, Load, Store
from anole_vta.simulator.activity import Activities, Activity, Module

N_BASE_ADDRESSES = 4
"""The number of independent DRAM base addresses of a passage."""

_WINDOW = 64
"""The number of passages whose modules are joined at a time."""


@dataclass(frozen=True, eq=False)
class Passage:
    """Consecutive instructions that can be relocated in DRAM.

    Attributes:
        instructions: the instructions at their original addresses.
        located: pairs of an instruction's index and the index of its base address.
    """

    instructions: tuple[Instruction, ...]
    located: tuple[tuple[int, int], ...] = ()

    def movable(self) -> Iterator[tuple[int, int, Load | Store]]:
        """Yield the index, the base address index, and the instruction of all relocatable instructions."""
        for number, place in self.located:
            instruction = self.instructions[number]
            assert isinstance(instruction, (Load, Store)), "only loads and stores access DRAM"
            yield number, place, instruction

    def relocate(self, by: Sequence[int]) -> list[Instruction]:
        """Return the instructions with their base addresses increased by numbers of elements."""
        instructions = list(self.instructions)
        for number, place, instruction in self.movable():
            instructions[number] = instruction._replace(dram_base=instruction.dram_base + by[place])
        return instructions


class Code(Sequence[Instruction]):
    """The instructions of a program, a sequence stored as passages.

    Attributes:
        passages: the distinct passages.
        order: indices of the passages in program order, shape (n,).
        by: offsets in elements from a passage's original base addresses, shape (n, N_BASE_ADDRESSES).
    """

    def __init__(self, passages: Sequence[Passage], order: NDArray[np.int64], by: NDArray[np.int64]) -> None:
        self.passages, self.order, self.by = tuple(passages), order, by

    @cached_property
    def firsts(self) -> NDArray[np.int64]:
        """The index of the first instruction of every passage, and the total; shape (n + 1,)."""
        lengths = np.array([len(passage.instructions) for passage in self.passages])
        return np.concatenate([[0], np.cumsum(lengths[self.order])])

    @cached_property
    def _instructions(self) -> tuple[Instruction, ...]:
        placed = zip(self.order.tolist(), self.by.tolist(), strict=True)
        return tuple(instruction for number, by in placed for instruction in self.passages[number].relocate(by))

    def __len__(self) -> int:
        return int(self.firsts[-1])

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self._instructions)

    @overload
    def __getitem__(self, index: int) -> Instruction: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Instruction]: ...
    def __getitem__(self, index: int | slice) -> Instruction | Sequence[Instruction]:
        return self._instructions[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._instructions == tuple(other)

    def __hash__(self) -> int:
        return hash(self._instructions)


def code_of(instructions: Sequence[Instruction]) -> Code:
    """Return instructions as passages; plain sequences are split after every store."""
    if isinstance(instructions, Code):
        return instructions
    stores = [number + 1 for number, item in enumerate(instructions) if isinstance(item, Store)]
    bounds = [0, *stores, len(instructions)]
    parts = [tuple(instructions[a:b]) for a, b in itertools.pairwise(bounds) if a < b]
    numbers = {part: number for number, part in enumerate(dict.fromkeys(parts))}
    order = np.array([numbers[part] for part in parts], np.int64)
    return Code([Passage(part) for part in numbers], order, np.zeros((len(parts), N_BASE_ADDRESSES), np.int64))


class Part(NamedTuple):
    """The activities of a passage, by module.

    Attributes:
        activities, numbers: for every module, its activities and the indices of their instructions in the passage.
        modules: the module of each instruction, one byte each.
    """

    activities: tuple[tuple[Activity, ...], ...]
    numbers: tuple[tuple[int, ...], ...]
    modules: bytes


class Streams:
    """The activities of a program, by passage and module.

    Attributes:
        firsts: the index of the first instruction of every passage, and the total.
        kinds: a number for every passage; the same for equal activities.
        patterns: a number for every passage; the same for the same sequence of modules.
    """

    def __init__(self, code: Code, activities: Activities) -> None:
        self.firsts, self._parts = code.firsts, list[Part]()
        codes = code.order
        for place in range(N_BASE_ADDRESSES):
            timings = _timings(code, place, activities)
            codes = codes * (int(timings.max()) + 1) + timings
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        original = [[activities.of(instruction) for instruction in passage.instructions] for passage in code.passages]
        kind_numbers: dict[tuple[int, ...], int] = {}
        kinds = []
        for passage, by in zip(code.order[first].tolist(), code.by[first].tolist(), strict=True):
            part = original[passage].copy()
            for number, place, instruction in code.passages[passage].movable():
                part[number] = activities.of(instruction, by[place])
            # Equal activities are the same object, so their ids identify them.
            kinds.append(kind_numbers.setdefault(tuple(map(id, part)), len(kind_numbers)))
            if len(kind_numbers) > len(self._parts):
                self._parts.append(_group_by_module(part))
        self.kinds = np.array(kinds)[inverse]
        modules = [part.modules for part in self._parts]
        self.patterns = np.array([modules.index(pattern) for pattern in modules])[self.kinds]
        self._window, self._window_begin = b"", 0

    def part(self, passage: int) -> Part:
        """Return the activities of a passage."""
        return self._parts[int(self.kinds[passage])]

    def modules(self, begin: int, end: int) -> bytes:
        """Return the modules of consecutive instructions, one byte each."""
        a, b = begin - self._window_begin, end - self._window_begin
        if a < 0 or b > len(self._window):
            first = self.passage_of(begin)
            last = max(first + _WINDOW, self.passage_of(end - 1) + 1)
            self._window_begin = int(self.firsts[first])
            self._window = b"".join([self._parts[kind].modules for kind in self.kinds[first:last].tolist()])
            a, b = begin - self._window_begin, end - self._window_begin
        return self._window[a:b]

    def passage_of(self, number: int) -> int:
        """Return the passage of an instruction."""
        return int(self.firsts.searchsorted(number, "right")) - 1

    def left(self, module: int, passage: int, offset: int) -> int:
        """Return the number of a module's remaining instructions, starting at its position."""
        return int(self._counts[-1, module] - self._counts[passage, module]) - offset

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        counts = np.array([[part.modules.count(module) for module in Module] for part in self._parts])
        return np.concatenate([np.zeros((1, len(Module)), np.int64), np.cumsum(counts[self.kinds], axis=0)])


def _timings(code: Code, place: int, activities: Activities) -> NDArray[np.int64]:
    """Return a number for every passage, the same if its instructions with this base address have equal timing.

    Addresses affect timing only because bursts end at fixed boundaries.
    """
    moving = [[item for _, base, item in passage.movable() if base == place] for passage in code.passages]
    periods = np.array([max(map(activities.period, items), default=1) for items in moving])
    longest = int(periods.max())
    keys = code.order * longest + code.by[:, place] % periods[code.order]
    timing_numbers: dict[tuple[int, ...], int] = {}
    numbers = np.bincount(keys)
    for key in np.flatnonzero(numbers).tolist():
        passage, by = divmod(key, longest)
        timing = (passage, *(id(activities.of(instruction, by)) for instruction in moving[passage]))
        numbers[key] = timing_numbers.setdefault(timing, len(timing_numbers))
    timings: NDArray[np.int64] = numbers[keys]
    return timings


def _group_by_module(part: Sequence[Activity]) -> Part:
    """Group activities by module."""
    modules = bytes([activity.module for activity in part])
    numbers = tuple([tuple([n for n, other in enumerate(modules) if other == module]) for module in range(3)])
    return Part(tuple([tuple([part[n] for n in indices]) for indices in numbers]), numbers, modules)
