"""File access: reading with clear errors, and atomic writing."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anole.errors import StoreError


def read_bytes(path: Path) -> bytes:
    """Returns the content of a file.

    Raises:
        StoreError: the file cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error


def sync(path: Path) -> None:
    """Waits until a file, or the entries of a folder, are on the disk.

    Raises:
        OSError: writing to the disk fails.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def document_text(plain: Mapping[str, Any]) -> str:
    """Returns a value as the text of an indented JSON file.

    Raises:
        ValueError: a number is not finite.
    """
    return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def write_atomically(path: Path, text: str) -> bool:
    """Writes a text file by rename, and only if its content differs.

    An unchanged file keeps its modification time, so that jobs that depend on it do not run again.

    Returns:
        Whether the file was written.
    """
    if path.exists() and path.read_text() == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return True
