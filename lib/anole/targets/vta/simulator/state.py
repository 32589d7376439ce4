"""A program's progress, and the relative state that decides how the simulation continues."""

from __future__ import annotations

from typing import NamedTuple

from anole.targets.vta.simulator.read_channel import ChannelState

NEVER = 1 << 62
"""A cycle that is never reached."""


class ProgramProgress(NamedTuple):
    """How far a program has come.

    Attributes:
        cycle: the current cycle.
        first: number of the first instruction that has not ended.
        ended: number of ended instructions of each module.
    """

    cycle: int
    first: int
    ended: tuple[int, ...]


class State(NamedTuple):
    """The state that, together with the program, decides what a clockwork does next; relative to its progress.

    Attributes:
        due: cycles until each kind of event.
        started: for every module that runs an instruction, its relative start cycle; otherwise 0.
        heads: position of each queue's first instruction, relative to `ProgramProgress.first`; -1 if it is empty.
        waiting: number of instructions in each queue; None if all have been dispatched, when it does not matter.
        dispatched, fetched: relative position of the next instruction to dispatch and to fetch; or None likewise.
        run: relative position and cycle of the first instruction of the current uninterrupted dispatch; None if it is
            over.
        stalled_by: the module whose full queue stalls the dispatch, if any.
        tokens: number of tokens of each kind.
        channel: state of the unfinished reads.
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
