"""Finds the files that hold an ONNX file's weights, without importing onnx and without reading any weight.

The reader knows just enough of protobuf's wire format to follow the messages that lead to tensors. It takes
milliseconds, where the import of onnx takes a third of a second, and it skips weights of any size.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from anole.errors import AnoleError, shown

MAX_FIELDS = 5_000_000
"""The largest number of fields that are read of a file; a network has about fifty for each operator."""

_TENSOR = "tensor"
_CHILDREN: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "graph": {1: "node", 5: _TENSOR, 15: "sparse"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: _TENSOR, 6: "graph", 10: _TENSOR, 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: _TENSOR, 2: _TENSOR},
}
"""The fields of each message that lead to tensors, by number, and the messages in them (see onnx.proto)."""

_NAME, _EXTERNAL_DATA, _DATA_LOCATION = 8, 13, 14
_KEY, _VALUE = 1, 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_NAME = 100


class OnnxFileError(AnoleError):
    """An ONNX file keeps weights where it may not, or where they are not; the message does not name the file."""


@dataclass(frozen=True)
class External:
    """Where a tensor outside of its ONNX file lies.

    Attributes:
        name: the tensor's name.
        location: the file, relative to the ONNX file's folder.
        offset: number of bytes before the tensor, as text.
        length: number of bytes of the tensor, as text; empty if it reaches to the end of the file.
    """

    name: str
    location: str
    offset: str
    length: str


def external_files(path: Path, strict: bool = False) -> list[Path]:
    """Returns the files that hold weights of an ONNX file, relative to its folder and sorted.

    Args:
        path: the ONNX file.
        strict: whether a damaged file is an error; of a damaged file else those are returned that it tells of.

    Raises:
        OnnxFileError: the file cannot be read, or a weight is not within a file of the same folder.
    """
    try:
        found = path.stat()
        tensors, damage = _read(path.resolve(), found.st_mtime_ns, found.st_size)
    except OSError as error:
        raise OnnxFileError(f"cannot be read: {error.strerror}") from error
    if damage and strict:
        raise OnnxFileError(f"is not an ONNX file, or is damaged: {damage}")
    for tensor in tensors:
        _check(tensor, path.parent)
    return sorted({Path(tensor.location) for tensor in tensors})


def _check(tensor: External, folder: Path) -> None:
    """Raises OnnxFileError for a tensor that does not lie within a file of the folder."""
    where = f"tensor {shown(tensor.name)}: its weights are in {shown(tensor.location)}"
    location = PurePosixPath(tensor.location)
    if not location.parts or location.is_absolute() or ".." in location.parts:
        raise OnnxFileError(f"{where}; allowed is a file in the ONNX file's own folder")
    file = folder / location
    if not os.path.isfile(file):
        raise OnnxFileError(f"{where}, and there is no such file")
    if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder)):
        raise OnnxFileError(f"{where}, a link out of the ONNX file's own folder; allowed is a file in that folder")
    size, end = file.stat().st_size, 0
    for number in (tensor.offset, tensor.length):
        if number and not (number.isascii() and number.isdecimal() and len(number) < 20):
            raise OnnxFileError(f"{where} at {shown(number)}; a number of bytes is expected")
        end += int(number or 0)
    if end > size:
        raise OnnxFileError(f"{where} up to byte {end}; that file has {size} bytes")


@lru_cache(maxsize=256)
def _read(path: Path, mtime_ns: int, size_bytes: int) -> tuple[tuple[External, ...], str]:
    """Returns the external tensors of a file in a state, and what is damaged; each job asks for the same file."""
    if not size_bytes:
        return (), "it is empty"
    reader = _Reader()
    with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        try:
            reader.read(content)
        except _DamageError as error:
            return tuple(reader.found), str(error)
    return tuple(reader.found), ""


class _DamageError(Exception):
    """A message ends too early or holds what no message holds."""


class _Reader:
    """Collects the external tensors of one file."""

    def __init__(self) -> None:
        self.found: list[External] = []
        self._n_fields = 0

    def read(self, content: mmap.mmap) -> None:
        """Reads a whole model.

        Raises:
            _DamageError: the file is damaged; `found` holds what was found before.
            OnnxFileError: the file holds too many fields.
        """
        messages = [("model", 0, len(content))]
        while messages:
            kind, start, end = messages.pop()
            if kind == _TENSOR:
                self._read_tensor(content, start, end)
                continue
            children = _CHILDREN[kind]
            for number, wire, first, after in self._fields(content, start, end):
                if wire == _BYTES and number in children:
                    messages.append((children[number], first, after))

    def _read_tensor(self, content: mmap.mmap, start: int, end: int) -> None:
        # A message may come in parts, so whatever tells of a file counts, whether or not the same part says EXTERNAL.
        name, is_external, entries = "", False, {}
        for number, wire, first, after in self._fields(content, start, end):
            if number == _NAME and wire == _BYTES:
                name = content[first : min(after, first + _MOST_NAME)].decode(errors="replace")
            elif number == _DATA_LOCATION and wire == _VARINT:
                is_external |= first & 0xFFFFFFFF == 1
            elif number == _EXTERNAL_DATA and wire == _BYTES:
                parts = {
                    which: content[begin:stop].decode(errors="surrogateescape")
                    for which, of, begin, stop in self._fields(content, first, after)
                    if of == _BYTES
                }
                entries[parts.get(_KEY, "")] = parts.get(_VALUE, "")
        if is_external or entries:
            location, offset, length = (entries.get(key, "") for key in ("location", "offset", "length"))
            self.found.append(External(name, location, offset, length))

    def _fields(self, content: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Yields the number and wire type of each field, and its value, or the begin and the end of its bytes."""
        place = start
        while place < end:
            self._n_fields += 1
            if self._n_fields > MAX_FIELDS:
                raise OnnxFileError(f"holds more than {MAX_FIELDS} fields, which is the most allowed")
            key, place = _varint(content, place, end)
            wire, value = key & 7, 0
            if wire in (_VARINT, _BYTES):
                value, place = _varint(content, place, end)
            first, size = place, {_VARINT: 0, _FIXED64: 8, _BYTES: value, _FIXED32: 4}.get(wire)
            if size is None or key >> 3 == 0 or place + size > end:
                raise _DamageError(f"byte {place} belongs to no field")
            place += size
            yield (key >> 3, wire, first, place) if wire == _BYTES else (key >> 3, wire, value, place)


def _varint(content: mmap.mmap, place: int, end: int) -> tuple[int, int]:
    """Returns a whole number of variable length and the place after it."""
    value = 0
    for n_bits in range(0, 70, 7):
        if place >= end:
            break
        byte = content[place]
        place += 1
        value |= (byte & 0x7F) << n_bits
        if byte < 0x80:
            return value, place
    raise _DamageError(f"byte {place} belongs to no number")
