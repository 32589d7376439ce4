"""Reading a file and making sure that one is on the disk."""

from __future__ import annotations

import os
from pathlib import Path

from anole.errors import StoreError


def read_bytes(path: Path) -> bytes:
    """Returns what a file holds.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk.

    Raises:
        OSError: they cannot be written.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
