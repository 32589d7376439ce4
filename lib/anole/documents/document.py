"""Read and write documents: dataclasses as JSON with a schema version and a checksum."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

from anole.codec import DecodeError, decode, encode, unset
from anole.errors import DocumentError, shown
from anole.files import document_text, read_regular, write_atomically
from anole.keys import canonical_json
from anole.strict_json import parse_json

T = TypeVar("T")

SCHEMA = 1
"""The version of all documents; readers reject newer versions."""

_CHECKSUM = "crc"


def read_document(path: Path, cls: type[T], stage: str) -> T:
    """Read a document that a stage writes; raise DocumentError if it is missing, damaged or newer."""
    return decode_document(read_plain(path, stage), cls, path, stage)


def read_plain(path: Path, stage: str) -> dict[str, Any]:
    """Read a document's JSON object and verify its checksum, which documents of older versions do not have."""
    try:
        plain = parse_json(read_regular(path))
    except FileNotFoundError as error:
        raise DocumentError(path, "there is no such file", stage) from error
    except OSError as error:
        raise DocumentError(path, f"cannot be read: {error.strerror}", stage) from error
    except ValueError as error:
        raise DocumentError(path, f"is not JSON: {error}", stage) from error
    if not isinstance(plain, dict):
        raise DocumentError(path, f"holds {shown(plain)}, not an object", stage)
    schema = plain.get("schema", SCHEMA)
    if not isinstance(schema, int) or schema > SCHEMA:
        raise DocumentError(path, f"found schema {shown(schema)}; this version of Anole reads {SCHEMA}", stage)
    checksum = plain.pop(_CHECKSUM, None)
    if checksum is not None and checksum != _checksum(plain):
        raise DocumentError(path, "its checksum is wrong: the file was changed", stage)
    return plain


def decode_document(plain: object, cls: type[T], path: Path, stage: str) -> T:
    """Decode a dataclass from a file's plain value; raise DocumentError if it does not fit."""
    try:
        return decode(cls, plain)
    except DecodeError as error:
        raise DocumentError(path, str(error), stage) from error


def write_document(path: Path, document: Any) -> None:
    """Write a document if its content differs, see `anole.files.write_atomically`."""
    write_atomically(path, text_of(document))


def text_of(document: Any) -> str:
    """Return the text of a document's file."""
    return checked_text(with_schema(document))


def checked_text(plain: Mapping[str, Any]) -> str:
    """Return the JSON text of an object with its checksum."""
    return document_text({**plain, _CHECKSUM: _checksum(plain)})


def with_schema(document: Any) -> dict[str, Any]:
    """Encode a document with its schema version as plain JSON values."""
    return {"schema": SCHEMA, **encode(document)}


def as_argument(document: Any) -> dict[str, Any]:
    """Encode a document as a command's argument, in plain JSON values.

    `LATER` fields with their defaults are omitted, so the argument stays the same as in older versions: Snakemake runs
    jobs again if their arguments change.
    """
    omitted = unset(document)
    return {name: value for name, value in encode(document).items() if name not in omitted}


def _checksum(plain: Mapping[str, Any]) -> str:
    """Return the CRC-32 of an object's canonical JSON, in hexadecimal."""
    return f"{crc32(canonical_json(plain).encode()):08x}"


def differing_fields(document: Any, other: Any) -> list[str]:
    """Return the names of the fields in which two documents of one class differ."""
    names = [field.name for field in dataclasses.fields(document)]
    return [name for name in names if encode(getattr(document, name)) != encode(getattr(other, name))]
