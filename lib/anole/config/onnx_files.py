"""Find the names in an ONNX file and its external weight files, without reading external weights."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from anole.errors import AnoleError, shown

if TYPE_CHECKING:
    from onnx import GraphProto, TensorProto, ValueInfoProto


class OnnxFileError(AnoleError):
    """An ONNX file cannot be used; the message does not name the file."""


@dataclass(frozen=True)
class OnnxNames:
    """The unique names in an ONNX file, in the file's order.

    Attributes:
        inputs: the inputs without an initializer.
        symbols: the dynamic dimensions of these inputs; ``?`` for those without a name.
        computed: the outputs of the main graph's operators.
    """

    inputs: tuple[str, ...]
    symbols: tuple[str, ...]
    computed: tuple[str, ...]


@dataclass(frozen=True)
class _External:
    """The location of a tensor with external data; without a length, it extends to the end of the file."""

    name: str
    location: str
    offset: str
    length: str


def external_files(path: Path, strict: bool = False) -> list[Path]:
    """Return the files that hold weights of an ONNX file, relative to its folder and sorted.

    For a damaged file, the list is empty unless `strict`.

    Raises:
        OnnxFileError: the file cannot be read, or, if `strict`, is damaged; or a weight is not within its folder.
    """
    try:
        tensors, _ = _read(path)
    except OSError as error:
        raise OnnxFileError(f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        if strict:
            raise OnnxFileError(f"is not an ONNX file, or is damaged: {error}") from error
        return []
    for tensor in tensors:
        _check_location(tensor, path.parent)
    return sorted({Path(tensor.location) for tensor in tensors})


def onnx_names(path: Path) -> OnnxNames | None:
    """Return the names in a file; None if it is unreadable or damaged, which the importer reports."""
    with suppress(OSError, ValueError):
        return _read(path)[1]
    return None


def _check_location(tensor: _External, folder: Path) -> None:
    """Raise OnnxFileError for a tensor whose data is not in a file of the folder."""
    where = f"tensor {shown(tensor.name)}: its weights are in {shown(tensor.location)}"
    location = PurePosixPath(tensor.location)
    if not location.parts or location.is_absolute() or ".." in location.parts:
        raise OnnxFileError(f"{where}; it must be a file in the folder of the ONNX file or a subfolder")
    file = folder / location
    if not os.path.isfile(file):
        raise OnnxFileError(f"{where}, but there is no such file")
    if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder)):
        raise OnnxFileError(f"{where}, a link to another folder; it must be in the ONNX file's folder or below it")
    size, end = file.stat().st_size, 0
    for digits in (tensor.offset, tensor.length):
        if digits and not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
            raise OnnxFileError(f"{where} at {shown(digits)}; a number of bytes is expected")
        end += int(digits or 0)
    if end > size:
        raise OnnxFileError(f"{where} up to byte {end}; that file has {size} bytes")


def _read(path: Path) -> tuple[Sequence[_External], OnnxNames]:
    """Return the external tensors and the names; raise OSError, or ValueError for a damaged file."""
    status = path.stat()
    return _read_cached(path.resolve(), status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=256)
def _read_cached(path: Path, _mtime_ns: int, size_bytes: int) -> tuple[Sequence[_External], OnnxNames]:
    """Parse a file; the cache is keyed by its modification time and size."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    if not size_bytes:
        raise ValueError("it is empty")
    try:
        model = onnx.load(path, format="protobuf", load_external_data=False)
        return [external for tensor in _tensors(model) for external in _external(tensor)], _names(model.graph)
    except DecodeError as error:
        raise ValueError(str(error)) from error


def _tensors(message: Any) -> Iterator[TensorProto]:
    """Yield all tensors in a message, recursively."""
    from onnx import TensorProto

    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                if isinstance(inner, TensorProto):
                    yield inner
                else:
                    yield from _tensors(inner)


def _external(tensor: TensorProto) -> Iterator[_External]:
    if tensor.data_location == tensor.EXTERNAL or tensor.external_data:
        entries = {_text(entry.key): _text(entry.value) for entry in tensor.external_data}
        location, offset, length = (entries.get(key, "") for key in ("location", "offset", "length"))
        yield _External(_text(tensor.name), location, offset, length)


def _names(graph: GraphProto) -> OnnxNames:
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    return OnnxNames(
        tuple(dict.fromkeys(_text(value.name) for value in inputs)),
        tuple(dict.fromkeys(symbol for value in inputs for symbol in _symbols(value))),
        tuple(dict.fromkeys(_text(name) for node in graph.node for name in node.output if name)),
    )


def _symbols(value: ValueInfoProto) -> Iterator[str]:
    """Yield the name of each dynamic dimension of an input; exporters also write -1 for one."""
    for dim in value.type.tensor_type.shape.dim:
        if not (dim.HasField("dim_value") and dim.dim_value >= 0):
            yield _text(dim.dim_param) or "?"


def _text(value: str | bytes) -> str:
    """Decode a string of a message; protobuf returns bytes if the string is not UTF-8."""
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else value
