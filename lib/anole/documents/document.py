"""Read and write documents: dataclasses as JSON with a schema version and a checksum."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

from anole.codec import DecodeError, decode, encode, later_fields_at_default
from anole.errors import DocumentError, shown
from anole.files import document_text, read_regular, write_atomically
from anole.keys import canonical_json
from anole.strict_json import parse_json

T = TypeVar("T")

SCHEMA = 1
"""The version of documents; readers reject newer versions."""

_CHECKSUM_KEY = "crc"


def read_document(path: Path, cls: type[T], writer: str) -> T:
    """Read a document; raise DocumentError if it is missing, damaged or written by a newer version of Anole.

    The error advises to run the `writer` again: the stage or rule that writes the file.
    """
    return decode_document(read_object(path, writer), cls, path, writer)


def read_object(path: Path, writer: str) -> dict[str, Any]:
    """Check a document's schema and checksum (older files have none); return its JSON object without the checksum."""
    try:
        plain = parse_json(read_regular(path))
    except FileNotFoundError as error:
        raise DocumentError(path, "there is no such file", writer) from error
    except OSError as error:
        raise DocumentError(path, f"cannot be read: {error.strerror}", writer) from error
    except ValueError as error:
        raise DocumentError(path, f"is not JSON: {error}", writer) from error
    if not isinstance(plain, dict):
        raise DocumentError(path, f"holds {shown(plain)}, not an object", writer)
    schema = plain.get("schema", SCHEMA)
    if not isinstance(schema, int) or schema > SCHEMA:
        raise DocumentError(path, f"found schema {shown(schema)}; this version of Anole reads {SCHEMA}", writer)
    checksum = plain.pop(_CHECKSUM_KEY, None)
    if checksum is not None and checksum != _crc(plain):
        raise DocumentError(path, "its checksum is wrong: the file was changed", writer)
    return plain


def decode_document(plain: object, cls: type[T], path: Path, writer: str) -> T:
    """Turn the JSON value of a file into a `cls`; raise DocumentError if a field is missing or wrong."""
    try:
        return decode(cls, plain)
    except DecodeError as error:
        raise DocumentError(path, str(error), writer) from error


def write_document(path: Path, document: Any) -> None:
    """Write a document if its content differs, see `anole.files.write_atomically`."""
    write_atomically(path, serialize(document))


def serialize(document: Any) -> str:
    """Return the text of a document's file, with the schema version and the checksum."""
    return text_with_checksum(encode_with_schema(document))


def text_with_checksum(plain: Mapping[str, Any]) -> str:
    """Return the JSON text of an object with its checksum."""
    return document_text({**plain, _CHECKSUM_KEY: _crc(plain)})


def encode_with_schema(document: Any) -> dict[str, Any]:
    """Encode a document with its schema version as plain JSON values."""
    return {"schema": SCHEMA, **encode(document)}


def as_argument(document: Any) -> dict[str, Any]:
    """Encode a document as a command's argument, in plain JSON values."""
    # An upgrade must not change the argument, or Snakemake runs the job again: omit fields of later versions if unused.
    omitted = later_fields_at_default(document)
    return {name: value for name, value in encode(document).items() if name not in omitted}


def _crc(plain: Mapping[str, Any]) -> str:
    """Return the CRC-32 of an object's canonical JSON, in hexadecimal."""
    return f"{crc32(canonical_json(plain).encode()):08x}"


def differing_fields(document: Any, other: Any) -> list[str]:
    """Return the names of the fields in which two instances of the same dataclass differ."""
    names = [field.name for field in dataclasses.fields(document)]
    return [name for name in names if encode(getattr(document, name)) != encode(getattr(other, name))]
