"""The timing simulator: cycle counts of programs, and the start and end of each instruction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anole_vta.geometry import DEFAULT, Geometry
from anole_vta.isa import Finish, Instruction, StreamError
from anole_vta.simulator.activity import Activities, Module
from anole_vta.simulator.event_simulator import EventSimulator
from anole_vta.simulator.repeats import FastForwardSimulator
from anole_vta.simulator.streams import Streams, code_of

_COMPARED_BLOCKS = ((1, 16, 16), (1, 32, 32), (1, 16, 32), (1, 16, 64), (1, 32, 64))
"""The blocks whose cycles were compared with the generated hardware, with VTA's bus."""


@dataclass(frozen=True)
class Timeline:
    """The busy cycles of every instruction, counted from the launch.

    Attributes:
        cycles: the value of the hardware's counter: the cycle in which FINISH starts.
        start, end: for every instruction, in program order; it is busy in [start, end).
        read_beats, read_bursts: totals of all loads, without instruction fetches.
    """

    cycles: int
    start: tuple[int, ...]
    end: tuple[int, ...]
    read_beats: int
    read_bursts: int
    write_beats: int
    write_bursts: int


def is_extrapolated(geometry: Geometry) -> bool:
    """Whether cycles on an accelerator have not been compared with the generated hardware."""
    bus = (geometry.bus_bytes, geometry.burst_beats)
    is_comparable = geometry.variant == DEFAULT.variant and bus == (DEFAULT.bus_bytes, DEFAULT.burst_beats)
    return not is_comparable or geometry.block not in _COMPARED_BLOCKS


def simulate(program: Sequence[Instruction], geometry: Geometry) -> Timeline:
    """Simulate a program and return its timeline; raise StreamError without a FINISH, or at a deadlock."""
    streams = _streams(program, geometry)
    recorder = _Recorder(streams, geometry)
    cycles = recorder.run()
    parts = [streams.part(passage) for passage in range(len(streams.kinds))]
    activities = [activity for part in parts for stream in part.activities for activity in stream]
    reads = [activity.bursts for activity in activities if activity.client]
    writes = [activity.bursts for activity in activities if activity.module == Module.STORE]
    return Timeline(
        cycles,
        tuple(recorder.start),
        tuple(recorder.end),
        *(sum(bursts.beats for bursts in reads), sum(len(bursts.lengths) for bursts in reads)),
        *(sum(bursts.beats for bursts in writes), sum(len(bursts.lengths) for bursts in writes)),
    )


def cycles_of(program: Sequence[Instruction], geometry: Geometry) -> int:
    """Return the cycles that `simulate` counts, much faster, by skipping repetitions."""
    return FastForwardSimulator(_streams(program, geometry), geometry).run()


def _streams(program: Sequence[Instruction], geometry: Geometry) -> Streams:
    code = code_of(program)
    if not program or not isinstance(code.passages[code.order[-1]].instructions[-1], Finish):
        raise StreamError("the program does not end with FINISH")
    return Streams(code, Activities(geometry))


class _Recorder(EventSimulator):
    """A simulator that records the start and end of every instruction."""

    def __init__(self, streams: Streams, geometry: Geometry) -> None:
        super().__init__(streams, geometry)
        self.start, self.end = ([0] * int(streams.firsts[-1]) for _ in range(2))

    def _end(self, cycle: int, module: int) -> None:
        number = self._number(module)
        self.start[number], self.end[number] = self._started[module], cycle
        super()._end(cycle, module)
