"""Reads protobuf's wire format, which ONNX files have, field by field and without reading what is skipped."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anole.errors import AnoleError

MAX_FIELDS = 5_000_000
"""The largest number of fields that are read of a file; a network has about fifty for each operator."""

VARINT, BYTES = 0, 2
"""Wire types: a whole number, and bytes, such as a text or another message."""

_FIXED64, _FIXED32 = 1, 5


class OnnxFileError(AnoleError):
    """An ONNX file cannot be used as it is; the message does not name the file."""


class DamageError(Exception):
    """A message ends too early or holds what no message holds."""


@contextmanager
def opened(path: Path) -> Iterator[Wire]:
    """Yields a file of one message.

    Raises:
        DamageError: it is empty.
        OSError: it cannot be read.
    """
    if not path.stat().st_size:
        raise DamageError("it is empty")
    with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield Wire(content)


class Wire:
    """The content of one file."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content, self.size, self._n_fields = content, len(content), 0

    def bytes(self, start: int, end: int) -> bytes:
        """Returns the bytes of a field."""
        return self._content[start:end]

    def fields(self, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Yields the number and wire type of each field of a message, and its value, or the begin and end of its bytes.

        Raises:
            DamageError: the file is damaged.
            OnnxFileError: the file holds too many fields.
        """
        place = start
        while place < end:
            self._n_fields += 1
            if self._n_fields > MAX_FIELDS:
                raise OnnxFileError(f"holds more than {MAX_FIELDS} fields, which is the most allowed")
            key, place = self._varint(place, end)
            wire, value = key & 7, 0
            if wire in (VARINT, BYTES):
                value, place = self._varint(place, end)
            first, size = place, {VARINT: 0, _FIXED64: 8, BYTES: value, _FIXED32: 4}.get(wire)
            if size is None or key >> 3 == 0 or place + size > end:
                raise DamageError(f"byte {place} belongs to no field")
            place += size
            yield (key >> 3, wire, first, place) if wire == BYTES else (key >> 3, wire, value, place)

    def messages(self, start: int, end: int, number: int) -> Iterator[tuple[int, int]]:
        """Yields where each message that is a field of a certain number begins and ends."""
        for found, wire, first, after in self.fields(start, end):
            if found == number and wire == BYTES:
                yield first, after

    def _varint(self, place: int, end: int) -> tuple[int, int]:
        """Returns a whole number of variable length and the place after it."""
        value = 0
        for n_bits in range(0, 70, 7):
            if place >= end:
                break
            byte = self._content[place]
            place += 1
            value |= (byte & 0x7F) << n_bits
            if byte < 0x80:
                return value, place
        raise DamageError(f"byte {place} belongs to no number")
