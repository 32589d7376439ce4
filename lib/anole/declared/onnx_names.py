"""Reads the names in an ONNX file that a model's entry may use, without importing onnx and without its weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from anole.declared.protobuf import BYTES, VARINT, DamageError, Wire, opened

_GRAPH = 7
_NODE, _INITIALIZER, _INPUT = 1, 5, 11
_NODE_OUTPUT, _TENSOR_NAME, _VALUE_NAME = 2, 8, 1
_TYPE, _TENSOR_TYPE, _SHAPE, _DIM = 2, 1, 2, 1
_DIM_VALUE, _DIM_PARAM = 1, 2
_NEGATIVE = 1 << 63


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
    """Returns the names in a file; None if it cannot be read or is damaged, which is told when it is imported.

    Raises:
        OnnxFileError: the file holds too many fields.
    """
    with suppress(OSError, DamageError):
        found = path.stat()
        return _read(path.resolve(), found.st_mtime_ns, found.st_size)
    return None


@lru_cache(maxsize=256)
def _read(path: Path, mtime_ns: int, size_bytes: int) -> OnnxNames:
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
    for number in (_TYPE, _TENSOR_TYPE, _SHAPE, _DIM):
        places = [inner for place in places for inner in wire.messages(*place, number)]
    for place in places:
        found = {number: (kind, first, after) for number, kind, first, after in wire.fields(*place)}
        kind, size, _ = found.get(_DIM_VALUE, (None, 0, 0))
        # Exporters also write -1, which is a large number on the wire.
        if kind == VARINT and size < _NEGATIVE:
            continue
        kind, first, after = found.get(_DIM_PARAM, (None, 0, 0))
        yield (wire.bytes(first, after).decode(errors="replace") if kind == BYTES else "") or "?"
