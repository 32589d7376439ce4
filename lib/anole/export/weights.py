"""The weights of a library as one block of bytes, with a header that tells whether it is the right one and whole."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.export.arena import ALIGNMENT, rounded

_MAGIC = b"ANOLEWTS"
_HEADER = struct.Struct("<8sQQ32s8x")
_FACTOR = 0x9E3779B97F4A7C15
_LANES = 8
_ROWS = 1 << 13
"""How many rows of lanes are summed up at once."""

_WRAP = (1 << 64) - 1


@dataclass(frozen=True)
class Weights:
    """The constants of a network.

    Attributes:
        content: all bytes: the header and the constants.
        offsets: where each constant begins in them.
        checksum: of everything behind the header, see `checksum_of`.
        digest: SHA-256 of the same.
    """

    content: bytes
    offsets: tuple[int, ...]
    checksum: int
    digest: bytes


def pack_weights(constants: Sequence[NDArray[Any]]) -> Weights:
    """Returns constants one behind the other, each aligned."""
    assert _HEADER.size == ALIGNMENT
    parts, offsets, size = [], [], ALIGNMENT
    for constant in constants:
        offsets.append(size)
        parts.append(constant.tobytes())
        parts.append(bytes(rounded(constant.nbytes) - constant.nbytes))
        size += rounded(constant.nbytes)
    body = b"".join(parts)
    checksum, digest = checksum_of(body), hashlib.sha256(body).digest()
    return Weights(_HEADER.pack(_MAGIC, size, checksum, digest) + body, tuple(offsets), checksum, digest)


def checksum_of(body: bytes) -> int:
    """Returns a checksum that is fast in C: in each of eight lanes of 64 bits, a polynomial modulo 2^64.

    Its factor is odd, so that every change of a single word changes it.
    """
    rows = np.frombuffer(body, "<u8").reshape(-1, _LANES)
    lanes = np.zeros(_LANES, np.uint64)
    powers = np.array([pow(_FACTOR, _ROWS - 1 - row, 1 << 64) for row in range(_ROWS)], np.uint64)[:, None]
    for begin in range(0, len(rows), _ROWS):
        block = rows[begin : begin + _ROWS]
        lanes = lanes * np.uint64(pow(_FACTOR, len(block), 1 << 64)) + (block * powers[-len(block) :]).sum(0, np.uint64)
    total = 0
    for lane in lanes.tolist():
        total = (total * _FACTOR + lane) & _WRAP
    return total
