"""A lock on a device that holds across processes and workflows of this machine."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anole.errors import MeasureError


def lock_path(device: str) -> Path:
    """Returns the file that stands for a device, such as ``cpu``."""
    return Path(tempfile.gettempdir()) / f"anole-{device}.lock"


@contextmanager
def device_lock(device: str, *, shared: bool = False) -> Iterator[None]:
    """Holds a device: alone, to time something on it, or with others who only disturb each other's building.

    Raises:
        MeasureError: the lock file cannot be opened.
    """
    try:
        handle = _open(lock_path(device))
    except OSError as error:
        raise MeasureError(f"cannot lock the device {device}: {error}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _open(path: Path) -> int:
    # Another user's file can be read and locked, but not be opened to write or to create.
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
