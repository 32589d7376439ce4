"""How far a program has come, and what decides what happens next, as it is seen from there."""

from __future__ import annotations

from typing import NamedTuple

from anole.targets.vta.simulator.read_channel import ChannelState

NEVER = 1 << 62
"""A cycle that does not come."""


class ProgramProgress(NamedTuple):
    """How far a program has come.

    Attributes:
        cycle: the present.
        first: number of the first instruction that has not ended.
        ended: how many instructions of each module have.
    """

    cycle: int
    first: int
    ended: tuple[int, ...]


class State(NamedTuple):
    """All that decides what a clockwork does next, but for its program: seen from where it is.

    Attributes:
        due: in how many cycles each kind of event happens.
        started: of every module that runs an instruction, since when; otherwise 0.
        heads: how far from the first instruction the first of each queue is; -1 if the queue is empty.
        waiting: how many instructions each queue holds; None when all have been dispatched, and it does not matter.
        dispatched, fetched: how far from the first instruction the next to be dispatched, and fetched, is; or None.
        run: how far the first instruction is that was dispatched last without a pause, and since when; None if that
            is over.
        stalled_by: whose queue is full, if that holds up dispatching.
        tokens: how many there are of each kind.
        channel: the reads that go on.
    """

    due: tuple[int, ...]
    started: tuple[int, ...]
    heads: tuple[int, ...]
    waiting: tuple[int, ...] | None
    dispatched: int | None
    fetched: int | None
    run: tuple[int, int] | None
    stalled_by: int | None
    tokens: tuple[int, ...]
    channel: ChannelState
