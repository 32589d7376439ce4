"""A program's instructions, with passages that repeat at other DRAM places stored once, and what each module does.

The modules' streams are made passage by passage, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np

from anole.targets.vta.isa import Instruction, Load, Store
from anole.targets.vta.simulator.activity import Activities, Activity, Module


@dataclass(frozen=True, eq=False)
class Passage:
    """Consecutive instructions that can be moved to other places in DRAM.

    Attributes:
        instructions: the instructions at their first places.
        located: pairs of an instruction's number and the index of the place with which it moves.
    """

    instructions: tuple[Instruction, ...]
    located: tuple[tuple[int, int], ...] = ()

    def movable(self) -> Iterator[tuple[int, int, Load | Store]]:
        """Yields the number, the place and the instruction of all that move."""
        for number, place in self.located:
            instruction = self.instructions[number]
            assert isinstance(instruction, (Load, Store)), "nothing else accesses DRAM"
            yield number, place, instruction

    def moved(self, by: Sequence[int]) -> list[Instruction]:
        """Returns the instructions with their places moved by these numbers of elements; unmoved if `by` is empty."""
        instructions = list(self.instructions)
        for number, place, instruction in self.movable() if by else ():
            instructions[number] = instruction._replace(dram_base=instruction.dram_base + by[place])
        return instructions


class Placed(NamedTuple):
    """A passage, and the distances in elements from the first places to these, if any."""

    passage: Passage
    by: tuple[int, ...] = ()


class Code(Sequence[Instruction]):
    """The instructions of a program, made of passages; as a sequence, all of their instructions in order."""

    def __init__(self, passages: Sequence[Placed]) -> None:
        self.passages = tuple(passages)

    @cached_property
    def _instructions(self) -> tuple[Instruction, ...]:
        return tuple(each for placed in self.passages for each in placed.passage.moved(placed.by))

    @cached_property
    def _length(self) -> int:
        return sum(len(placed.passage.instructions) for placed in self.passages)

    def __len__(self) -> int:
        return self._length

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


def passages_of(instructions: Sequence[Instruction]) -> tuple[Placed, ...]:
    """Returns the passages of instructions; a single one if they have no known structure."""
    if isinstance(instructions, Code):
        return instructions.passages
    return (Placed(Passage(tuple(instructions))),)


class Streams:
    """The activities of a program, by module.

    Attributes:
        modules: the module of each instruction; a byte each.
        activities: for every module, its activities in order.
        numbers: for every module, the numbers of its instructions in the program.
    """

    def __init__(self, passages: Sequence[Placed], activities: Activities) -> None:
        forms: dict[Passage, _Form] = {}
        modules = []
        self.activities: tuple[list[Activity], ...] = ([], [], [])
        for passage, by in passages:
            form = forms.get(passage)
            if form is None:
                form = forms[passage] = _Form(passage, activities)
            modules.append(form.modules)
            for stream, part in zip(self.activities, form.parts(by), strict=True):
                stream += part
        self.modules = b"".join(modules)
        whose = np.frombuffer(self.modules, np.uint8)
        self.numbers: tuple[list[int], ...] = tuple(np.flatnonzero(whose == module).tolist() for module in Module)


class _Form:
    """The activities of a passage at any place; addresses matter only because bursts end at fixed boundaries."""

    def __init__(self, passage: Passage, activities: Activities) -> None:
        self._passage, self._activities = passage, activities
        self._here = [activities.of(instruction) for instruction in passage.instructions]
        self.modules = bytes(activity.module for activity in self._here)
        self._periods: dict[int, int] = {}
        for _, place, instruction in passage.movable():
            self._periods[place] = max(self._periods.get(place, 1), activities.period(instruction))
        self._known: dict[tuple[int, ...], tuple[list[Activity], ...]] = {}

    def parts(self, by: tuple[int, ...]) -> tuple[list[Activity], ...]:
        """Returns the activities of every module for the passage moved by these distances."""
        key = tuple(by[place] % period for place, period in self._periods.items()) if by else ()
        parts = self._known.get(key)
        if parts is None:
            there = list(self._here)
            for number, place, instruction in self._passage.movable() if by else ():
                there[number] = self._activities.of(instruction, by[place])
            parts = self._known[key] = tuple([each for each in there if each.module == module] for module in Module)
        return parts
