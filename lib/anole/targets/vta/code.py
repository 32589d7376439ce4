"""The instructions of a program, with passages that repeat at other DRAM places stored once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, overload

from anole.targets.vta.isa import Instruction, Load, Store, StreamError


@dataclass(frozen=True, eq=False)
class Passage:
    """Consecutive instructions that can be moved to other places in DRAM.

    Attributes:
        instructions: the instructions at their first places.
        located: pairs of an instruction that moves with the passage and the index of the place with which it moves.
    """

    instructions: tuple[Instruction, ...]
    located: tuple[tuple[int, int], ...] = ()

    def moved(self, by: Sequence[int]) -> list[Instruction]:
        """Returns the instructions with their places moved by these numbers of elements; unmoved if `by` is empty."""
        instructions = list(self.instructions)
        for number, place in self.located if by else ():
            instruction = instructions[number]
            if not isinstance(instruction, (Load, Store)):
                raise StreamError(f"instruction {number} of a passage does not access DRAM")
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
