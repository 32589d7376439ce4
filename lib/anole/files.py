"""File access: bounded reading with clear errors, and writing that is on the disk when it returns."""

from __future__ import annotations

import errno
import json
import os
import stat
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from anole.errors import StoreError

MAX_BYTES = 1 << 30
"""Larger files are not read: the largest shards and documents have a few megabytes."""

_UNFINISHED = ".new"
"""The ending of a file that is being written."""

_LONGEST_S = 24 * 3600.0
"""No file takes so long to write."""


def read_bytes(path: Path) -> bytes:
    """Return the content of a file; raise StoreError if it cannot be read."""
    try:
        return read_regular(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file of at most `MAX_BYTES`; a pipe or a device is not waited for.

    Raises:
        OSError: the file is missing, cannot be read, is too large or is not a regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if found.st_size > MAX_BYTES:
            raise OSError(errno.EFBIG, f"it has {found.st_size} bytes; at most {MAX_BYTES} are allowed", str(path))
        return stream.read()


def sync(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        close(descriptor)


def close(descriptor: int) -> None:
    """Close a file that was only read, or whose data is on the disk: an error says nothing of it.

    Linux has given the descriptor back even where it reports an error.
    """
    with suppress(OSError):
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Create a folder, and those above it that are missing; they are on the disk when it returns."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync(folder.parent)


def document_text(plain: Mapping[str, Any]) -> str:
    """Return a value as the text of an indented JSON file; raises ValueError if a number is not finite."""
    return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def replace_durably(temporary: Path, path: Path) -> None:
    """Give a complete file or folder another name, in place of the file that has it.

    After a power loss the name holds either all of the old content or all of the new content.
    """
    for inner in temporary.rglob("*") if temporary.is_dir() else ():
        sync(inner)
    sync(temporary)
    os.replace(temporary, path)
    sync(path.parent)


def write_atomically(path: Path, content: str | bytes) -> bool:
    """Write a file by rename if its content differs; returns whether it does.

    An unchanged file keeps its modification time, so that jobs that depend on it do not run again. After an error the
    old file is unchanged.
    """
    data = content.encode() if isinstance(content, str) else content
    with suppress(OSError):
        if read_regular(path) == data:
            return False
    make_folder(path.parent)
    _sweep(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=_UNFINISHED, dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        temporary.chmod(0o644)
        replace_durably(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return True


def _sweep(path: Path) -> None:
    """Remove what processes that were killed while they wrote a file left beside it."""
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if entry.name.startswith(f".{path.name}.") and entry.name.endswith(_UNFINISHED):
                if time.time() - entry.stat(follow_symlinks=False).st_mtime > _LONGEST_S:
                    os.unlink(entry)
