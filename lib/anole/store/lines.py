"""The lines of a shard as bytes, each with a checksum of the run's key, all earlier lines and the line itself."""

from __future__ import annotations

from dataclasses import dataclass
from json import JSONDecoder
from typing import Self
from zlib import crc32

_PREFIX, _SUFFIX = b',"crc":"', b'"}'
_DIGITS = 8
_CHECKSUM_BYTES = len(_PREFIX) + _DIGITS + len(_SUFFIX)


@dataclass
class Chain:
    """The running checksum of a shard: CRC-32 of the run's key and the text of each line so far.

    A line that was copied from another run or moved within the file therefore has a wrong checksum.
    """

    value: int

    @classmethod
    def of(cls, run_key: str) -> Self:
        """Return the chain before a run's first line."""
        return cls(crc32(run_key.encode(errors="replace")))

    def seal(self, text: bytes) -> bytes:
        """Append the checksum to the text of a JSON object, as its last member; the chain then includes the line."""
        body = text.removesuffix(b"}")
        self.value = crc32(body, self.value)
        return body + _PREFIX + b"%08x" % self.value + _SUFFIX

    def follow(self, text: bytes) -> bool:
        """Add a line that was read; return whether its checksum is correct. A line without a checksum passes."""
        checksum = checksum_of(text)
        self.value = crc32(text if checksum is None else text[:-_CHECKSUM_BYTES], self.value)
        return checksum is None or checksum == b"%08x" % self.value


def checksum_of(text: bytes) -> bytes | None:
    """Return the checksum of a line; None for a line without one."""
    end = text[-_CHECKSUM_BYTES:]
    return end[len(_PREFIX) : -len(_SUFFIX)] if end.startswith(_PREFIX) and end.endswith(_SUFFIX) else None


def strip_checksum(text: bytes) -> bytes:
    """Return the text of a line without its checksum, if it has one."""
    return text if checksum_of(text) is None else text[:-_CHECKSUM_BYTES] + b"}"


def complete_lines(data: bytes) -> bytes:
    """Return a shard's bytes without a last line truncated by a crash; the result is empty or ends with a newline.

    Only one line is written at a time, so only the last one can be truncated: its end is missing, or parts that were
    never written read as zeros. A complete last line followed by bytes other than zeros was damaged in another way;
    it stays, so the damage is detected.
    """
    end = data.rfind(b"\n") + 1
    tail = data[end:].rstrip(b"\0")
    if _starts_with_json_object(tail):
        return data[:end] + tail + b"\n"
    if tail:
        return data[:end]
    last_start = data.rfind(b"\n", 0, max(end - 1, 0)) + 1
    # A single zero byte may be a flipped bit of a space, unless it replaces the line's first byte.
    return data[:last_start] if data.startswith(b'\0"', last_start) or b"\0\0" in data[last_start:end] else data[:end]


def _starts_with_json_object(text: bytes) -> bool:
    """Whether a text starts with a complete JSON object; no proper prefix of an object is an object."""
    if not text.startswith(b"{"):
        return False
    try:
        JSONDecoder().raw_decode(text.decode(errors="replace"))
    except (ValueError, RecursionError):
        return False
    return True
