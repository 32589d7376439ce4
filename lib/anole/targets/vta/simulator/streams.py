"""Splits a program into the streams of steps that the accelerator's modules run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from anole.targets.vta.code import Passage, Placed
from anole.targets.vta.isa import Load, Store
from anole.targets.vta.simulator.steps import Module, Step, Steps


class Streams:
    """The steps of a program, by module.

    Attributes:
        modules: the module of each instruction; a byte each.
        steps: for every module, its steps in order.
        numbers: for every module, the numbers of its instructions in the program.
    """

    def __init__(self, passages: Sequence[Placed], steps: Steps) -> None:
        forms: dict[Passage, _Form] = {}
        modules = []
        self.steps: tuple[list[Step], ...] = ([], [], [])
        for passage, by in passages:
            form = forms.get(passage)
            if form is None:
                form = forms[passage] = _Form(passage, steps)
            modules.append(form.modules)
            for stream, part in zip(self.steps, form.parts(by), strict=True):
                stream += part
        self.modules = b"".join(modules)
        whose = np.frombuffer(self.modules, np.uint8)
        self.numbers: tuple[list[int], ...] = tuple(np.flatnonzero(whose == module).tolist() for module in Module)


class _Located(NamedTuple):
    """An instruction of a passage that accesses DRAM: its number, its place, and the instruction."""

    number: int
    place: int
    instruction: Load | Store


class _Form:
    """The steps of a passage for any placement; addresses matter only because bursts end at fixed boundaries."""

    def __init__(self, passage: Passage, steps: Steps) -> None:
        self._steps = steps
        self._here = [steps.of(instruction) for instruction in passage.instructions]
        self.modules = bytes(step.module for step in self._here)
        self._located: list[_Located] = []
        self._periods: dict[int, int] = {}
        for number, place in passage.located:
            instruction = passage.instructions[number]
            assert isinstance(instruction, (Load, Store)), "what else moves?"
            self._located.append(_Located(number, place, instruction))
            self._periods[place] = max(self._periods.get(place, 1), steps.period(instruction))
        self._known: dict[tuple[int, ...], tuple[list[Step], ...]] = {}

    def parts(self, by: tuple[int, ...]) -> tuple[list[Step], ...]:
        """Returns the steps of every module for the passage moved by these distances."""
        key = tuple(by[place] % period for place, period in self._periods.items()) if by else ()
        parts = self._known.get(key)
        if parts is None:
            there = list(self._here)
            for number, place, instruction in self._located if by else ():
                there[number] = self._steps.of(instruction, by[place])
            parts = self._known[key] = tuple([step for step in there if step.module == module] for module in Module)
        return parts
