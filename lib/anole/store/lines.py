"""The lines of a shard as bytes; each ends with a checksum over the run's key and all lines up to it."""

from __future__ import annotations

from dataclasses import dataclass
from json import JSONDecoder
from typing import Self
from zlib import crc32

_BEFORE, _AFTER = b',"crc":"', b'"}'
_DIGITS = 8
_SIZE = len(_BEFORE) + _DIGITS + len(_AFTER)


@dataclass
class Chain:
    """The checksum of a shard up to a line: CRC-32 over the run's key and the text of each line.

    A line of another run or of another place in the file therefore has a wrong checksum.
    """

    value: int

    @classmethod
    def of(cls, run_key: str) -> Self:
        """Return the checksum before a run's first line."""
        return cls(crc32(run_key.encode(errors="replace")))

    def seal(self, text: bytes) -> bytes:
        """Return the text of a JSON object with its checksum as the last member; the chain now ends with it."""
        body = text.removesuffix(b"}")
        self.value = crc32(body, self.value)
        return body + _BEFORE + b"%08x" % self.value + _AFTER

    def follow(self, text: bytes) -> bool:
        """Add a line that was read.

        Returns:
            Whether the line has the right checksum. A line without a checksum has none to compare.
        """
        found = checksum_of(text)
        self.value = crc32(text if found is None else text[:-_SIZE], self.value)
        return found is None or found == b"%08x" % self.value


def checksum_of(text: bytes) -> bytes | None:
    """Return the checksum that a line holds; None for a line without one."""
    end = text[-_SIZE:]
    return end[len(_BEFORE) : -len(_AFTER)] if end.startswith(_BEFORE) and end.endswith(_AFTER) else None


def without_checksum(text: bytes) -> bytes:
    """Return the text of a line without its checksum, if it has one."""
    return text if checksum_of(text) is None else text[:-_SIZE] + b"}"


def complete_lines(data: bytes) -> bytes:
    """Return a shard's bytes without a last line that a crash cut short; the result ends with a newline.

    Only one line is written at a time, so only the last one can be cut short. It then lacks its end, or parts of it
    were never written and read as zeros. A last line that is complete, followed by anything else than its newline,
    was not cut short; it stays, so that its damage is found.
    """
    end = data.rfind(b"\n") + 1
    tail = data[end:].rstrip(b"\0")
    if _begins_with_an_object(tail):
        return data[:end] + tail + b"\n"
    if tail:
        return data[:end]
    last = data.rfind(b"\n", 0, max(end - 1, 0)) + 1
    # A single zero may be the flipped bit of a space, unless it stands for the first byte.
    return data[:last] if data.startswith(b'\0"', last) or b"\0\0" in data[last:end] else data[:end]


def _begins_with_an_object(text: bytes) -> bool:
    """Whether a text begins with a whole JSON object; no proper prefix of one is itself one."""
    if not text.startswith(b"{"):
        return False
    try:
        JSONDecoder().raw_decode(text.decode(errors="replace"))
    except (ValueError, RecursionError):
        return False
    return True
