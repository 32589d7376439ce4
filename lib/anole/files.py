"""File access: reads with a size limit and clear errors, and atomic, durable writes."""

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
"""The maximum size of a file that is read; the largest shards and documents take a few megabytes."""

_UNFINISHED_SUFFIX = ".new"
"""The suffix of a file that is being written."""

_MAX_WRITE_S = 24 * 3600.0
"""Unfinished files older than this were left by killed processes."""


def read_bytes(path: Path) -> bytes:
    """Return the content of a file; raise StoreError if it cannot be read."""
    try:
        return read_regular(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file of at most `MAX_BYTES`, without blocking on a pipe or a device.

    Raises:
        OSError: the file is missing, cannot be read, is too large or is not a regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if status.st_size > MAX_BYTES:
            raise OSError(errno.EFBIG, f"it has {status.st_size} bytes; at most {MAX_BYTES} are allowed", str(path))
        return stream.read()


def sync(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        close(descriptor)


def close(descriptor: int) -> None:
    """Close a file that was only read, or is already synced, ignoring errors.

    Linux releases the descriptor even when close reports an error.
    """
    with suppress(OSError):
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents durably."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync(folder.parent)


def document_text(plain: Mapping[str, Any]) -> str:
    """Return the indented JSON text of a value; raise ValueError if a number is not finite."""
    return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def replace_durably(temporary: Path, path: Path) -> None:
    """Rename a complete file or folder, replacing the file at the destination.

    After a power loss the destination holds either all of the old content or all of the new content.
    """
    for child in temporary.rglob("*") if temporary.is_dir() else ():
        sync(child)
    sync(temporary)
    os.replace(temporary, path)
    sync(path.parent)


def write_atomically(path: Path, content: str | bytes) -> bool:
    """Write a file by rename if its content differs; return whether it was written.

    An unchanged file keeps its modification time, so dependent jobs do not run again. After an error the old file is
    unchanged.
    """
    data = content.encode() if isinstance(content, str) else content
    with suppress(OSError):
        if read_regular(path) == data:
            return False
    make_folder(path.parent)
    _remove_unfinished(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=_UNFINISHED_SUFFIX, dir=path.parent)
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


def _remove_unfinished(path: Path) -> None:
    """Remove unfinished files that killed processes left next to a file."""
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if entry.name.startswith(f".{path.name}.") and entry.name.endswith(_UNFINISHED_SUFFIX):
                if time.time() - entry.stat(follow_symlinks=False).st_mtime > _MAX_WRITE_S:
                    os.unlink(entry)
