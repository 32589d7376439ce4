"""The memory of a library: the plan of its arena for intermediate tensors, and its weights as one block of bytes.

Tensors in the arena share memory if they are not alive at the same time. The block of weights has a header to detect a
wrong or damaged file.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.export.sequence import KernelSequence, TensorPlace

ALIGNMENT = 64
"""In bytes: kernels read and write entire vectors, and two threads must not write to the same cache line."""

_MAGIC = b"ANOLEWTS"
_HEADER = struct.Struct("<8sQQ32s8x")
_FACTOR = 0x9E3779B97F4A7C15
_N_LANES = 8
_CHUNK_ROWS = 1 << 13
"""Number of rows per step of the checksum."""

_UINT64_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class ArenaPlan:
    """The offsets of a sequence's buffers, in bytes, and their total size."""

    offsets: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True)
class _Lifetime:
    """The lifetime of a buffer: the first and the last step that use it."""

    buffer: int
    size_bytes: int
    first: int
    last: int

    def overlaps(self, other: _Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


def align(size_bytes: int) -> int:
    """Return a size rounded up to the alignment."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def plan_buffers(sequence: KernelSequence) -> ArenaPlan:
    """Place the buffers greedily, largest first, each at the lowest offset that is free during its lifetime."""
    placed: list[tuple[int, _Lifetime]] = []
    for life in sorted(_lifetimes(sequence), key=lambda life: (-life.size_bytes, life.first, life.buffer)):
        occupied = sorted((start, start + other.size_bytes) for start, other in placed if other.overlaps(life))
        offset = 0
        for begin, end in occupied:
            if offset + life.size_bytes <= begin:
                break
            offset = max(offset, end)
        placed.append((offset, life))
    offsets = {life.buffer: offset for offset, life in placed}
    size = max((offset + life.size_bytes for offset, life in placed), default=0)
    return ArenaPlan(tuple(offsets.get(buffer, 0) for buffer in range(len(sequence.buffers))), size)


def _lifetimes(sequence: KernelSequence) -> list[_Lifetime]:
    uses: dict[int, list[int]] = {}
    for position, step in enumerate(sequence.steps):
        for operand in step.operands:
            if operand.place is TensorPlace.BUFFER:
                uses.setdefault(operand.number, []).append(position)
    for operand, _ in sequence.copies:
        if operand.place is TensorPlace.BUFFER:
            uses.setdefault(operand.number, []).append(len(sequence.steps))
    return [_Lifetime(buffer, align(sequence.buffers[buffer]), steps[0], steps[-1]) for buffer, steps in uses.items()]


@dataclass(frozen=True)
class Weights:
    """The constants of a network.

    Attributes:
        content: all bytes: the header and the constants.
        offsets: the offset of each constant in `content`.
        checksum: the checksum of everything after the header, see `checksum_of`.
        digest: the SHA-256 of the same bytes.
    """

    content: bytes
    offsets: tuple[int, ...]
    checksum: int
    digest: bytes


def pack_weights(constants: Sequence[NDArray[Any]]) -> Weights:
    """Concatenate constants with alignment, after a header."""
    assert _HEADER.size == ALIGNMENT
    parts, offsets, size = [], [], ALIGNMENT
    for constant in constants:
        offsets.append(size)
        parts.append(constant.tobytes())
        parts.append(bytes(align(constant.nbytes) - constant.nbytes))
        size += align(constant.nbytes)
    body = b"".join(parts)
    checksum, digest = checksum_of(body), hashlib.sha256(body).digest()
    return Weights(_HEADER.pack(_MAGIC, size, checksum, digest) + body, tuple(offsets), checksum, digest)


def checksum_of(body: bytes) -> int:
    """Return a checksum that is fast in C: eight interleaved polynomial hashes modulo 2^64.

    The factor is odd, so every change of a single 64-bit word changes the checksum.
    """
    rows = np.frombuffer(body, "<u8").reshape(-1, _N_LANES)
    lanes = np.zeros(_N_LANES, np.uint64)
    powers = np.array([pow(_FACTOR, _CHUNK_ROWS - 1 - row, 1 << 64) for row in range(_CHUNK_ROWS)], np.uint64)[:, None]
    for begin in range(0, len(rows), _CHUNK_ROWS):
        block = rows[begin : begin + _CHUNK_ROWS]
        lanes = lanes * np.uint64(pow(_FACTOR, len(block), 1 << 64)) + (block * powers[-len(block) :]).sum(0, np.uint64)
    total = 0
    for lane in lanes.tolist():
        total = (total * _FACTOR + lane) & _UINT64_MASK
    return total
