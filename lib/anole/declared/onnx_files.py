"""Finds the files of an ONNX file's weights, and its names, without importing onnx and without reading any weight.

Only the messages that lead there are followed. That takes milliseconds, where the import of onnx takes a third of a
second, and skips weights of any size.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from anole.declared.protobuf import BYTES, VARINT, DamageError, OnnxFileError, Wire, opened
from anole.errors import shown

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
_MOST_NAME = 100

_GRAPH = 7
_NODE, _INITIALIZER, _INPUT = 1, 5, 11
_NODE_OUTPUT, _TENSOR_NAME, _VALUE_NAME = 2, 8, 1
_DIMS = (2, 1, 2, 1)
"""The way from an input to its dimensions: through its type, tensor type and shape."""

_DIM_VALUE, _DIM_PARAM = 1, 2
_NEGATIVE = 1 << 63


@dataclass(frozen=True)
class External:
    """Where a tensor outside of its ONNX file lies; no length stands for all that follows."""

    name: str
    location: str
    offset: str
    length: str


def external_files(path: Path, strict: bool = False) -> list[Path]:
    """Returns the files that hold weights of an ONNX file, relative to its folder and sorted.

    A damaged file is an error if asked; else those are returned that it tells of.

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
    found: list[External] = []
    try:
        with opened(path) as wire:
            for tensor in _tensors(wire):
                found += _external(wire, *tensor)
    except DamageError as error:
        return tuple(found), str(error)
    return tuple(found), ""


def _tensors(wire: Wire) -> Iterator[tuple[int, int]]:
    """Yields where each tensor of a model begins and ends."""
    messages = [("model", 0, wire.size)]
    while messages:
        kind, start, end = messages.pop()
        if kind == _TENSOR:
            yield start, end
            continue
        children = _CHILDREN[kind]
        for number, type_, first, after in wire.fields(start, end):
            if type_ == BYTES and number in children:
                messages.append((children[number], first, after))


def _external(wire: Wire, start: int, end: int) -> list[External]:
    """Returns a tensor that lies in another file, or nothing for one that does not."""
    # A message may come in parts, so whatever tells of a file counts, whether or not the same part says EXTERNAL.
    name, is_external, entries = "", False, {}
    for number, type_, first, after in wire.fields(start, end):
        if number == _NAME and type_ == BYTES:
            name = wire.bytes(first, min(after, first + _MOST_NAME)).decode(errors="replace")
        elif number == _DATA_LOCATION and type_ == VARINT:
            is_external |= first & 0xFFFFFFFF == 1
        elif number == _EXTERNAL_DATA and type_ == BYTES:
            parts = {
                which: wire.bytes(begin, stop).decode(errors="surrogateescape")
                for which, of, begin, stop in wire.fields(first, after)
                if of == BYTES
            }
            entries[parts.get(_KEY, "")] = parts.get(_VALUE, "")
    if not is_external and not entries:
        return []
    location, offset, length = (entries.get(key, "") for key in ("location", "offset", "length"))
    return [External(name, location, offset, length)]


@dataclass(frozen=True)
class OnnxNames:
    """Names in an ONNX file, each once, in the file's order.

    Attributes:
        inputs: the inputs that have no value in the file.
        symbols: the dynamic dimensions of these inputs; ``?`` for those without a name.
        computed: what operators of the main graph compute.
    """

    inputs: tuple[str, ...]
    symbols: tuple[str, ...]
    computed: tuple[str, ...]


def names_of(path: Path) -> OnnxNames | None:
    """Returns the names in a file; None if it cannot be read or is damaged, which is told when it is imported."""
    with suppress(OSError, DamageError):
        found = path.stat()
        return _names(path.resolve(), found.st_mtime_ns, found.st_size)
    return None


@lru_cache(maxsize=256)
def _names(path: Path, mtime_ns: int, size_bytes: int) -> OnnxNames:
    """Returns the names in a file in a state."""
    weights: set[str] = set()
    computed: dict[str, None] = {}
    values: dict[str, list[str]] = {}
    with opened(path) as wire:
        for graph in wire.messages(0, wire.size, _GRAPH):
            for number, kind, first, after in wire.fields(*graph):
                if kind != BYTES:
                    continue
                if number == _NODE:
                    computed |= dict.fromkeys(_texts(wire, first, after, _NODE_OUTPUT))
                elif number == _INITIALIZER:
                    weights |= set(_texts(wire, first, after, _TENSOR_NAME))
                elif number == _INPUT:
                    for name in _texts(wire, first, after, _VALUE_NAME):
                        values[name] = list(_symbols(wire, first, after))
    inputs = [name for name in values if name not in weights]
    symbols = dict.fromkeys(symbol for name in inputs for symbol in values[name])
    return OnnxNames(tuple(inputs), tuple(symbols), tuple(filter(None, computed)))


def _texts(wire: Wire, start: int, end: int, number: int) -> Iterator[str]:
    for part in wire.messages(start, end, number):
        yield wire.bytes(*part).decode(errors="replace")


def _symbols(wire: Wire, start: int, end: int) -> Iterator[str]:
    """Yields the name of each dynamic dimension of an input."""
    places = [(start, end)]
    for number in _DIMS:
        places = [inner for place in places for inner in wire.messages(*place, number)]
    for place in places:
        found = {number: (kind, first, after) for number, kind, first, after in wire.fields(*place)}
        kind, size, _ = found.get(_DIM_VALUE, (None, 0, 0))
        # Exporters also write -1, which is a large number on the wire.
        if kind == VARINT and size < _NEGATIVE:
            continue
        kind, first, after = found.get(_DIM_PARAM, (None, 0, 0))
        yield (wire.bytes(first, after).decode(errors="replace") if kind == BYTES else "") or "?"
