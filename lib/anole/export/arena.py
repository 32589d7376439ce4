"""Plans the arena: where every intermediate tensor lies, so that tensors share memory that are not alive at once."""

from __future__ import annotations

from dataclasses import dataclass

from anole.export.sequence import KernelSequence, Place

ALIGNMENT = 64
"""Bytes; kernels read and write whole vectors, and what two threads write shares no cache line."""


@dataclass(frozen=True)
class Plan:
    """Offsets of the buffers of a sequence, in bytes, and the size of all of them together."""

    offsets: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True)
class _Life:
    buffer: int
    size_bytes: int
    first: int
    last: int


def rounded(size_bytes: int) -> int:
    """Returns a size rounded up to the alignment."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def plan_buffers(sequence: KernelSequence) -> Plan:
    """Places the buffers one by one, the largest first, each at the lowest offset that is free while it is alive."""
    placed: list[tuple[int, _Life]] = []
    for life in sorted(_lives(sequence), key=lambda life: (-life.size_bytes, life.first, life.buffer)):
        taken = sorted((at, at + each.size_bytes) for at, each in placed if _overlap(each, life))
        offset = 0
        for begin, end in taken:
            if offset + life.size_bytes <= begin:
                break
            offset = max(offset, end)
        placed.append((offset, life))
    offsets = {life.buffer: offset for offset, life in placed}
    size = max((offset + life.size_bytes for offset, life in placed), default=0)
    return Plan(tuple(offsets.get(buffer, 0) for buffer in range(len(sequence.buffers))), size)


def _lives(sequence: KernelSequence) -> list[_Life]:
    """Returns for each buffer that is used the first and the last step that use it."""
    uses: dict[int, list[int]] = {}
    for position, step in enumerate(sequence.steps):
        for operand in step.operands:
            if operand.place is Place.BUFFER:
                uses.setdefault(operand.number, []).append(position)
    for operand, _ in sequence.copies:
        if operand.place is Place.BUFFER:
            uses.setdefault(operand.number, []).append(len(sequence.steps))
    return [_Life(buffer, rounded(sequence.buffers[buffer]), at[0], at[-1]) for buffer, at in uses.items()]


def _overlap(one: _Life, other: _Life) -> bool:
    return one.first <= other.last and other.first <= one.last
