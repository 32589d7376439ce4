"""Locks a device against all other processes and workflows of this machine."""

from __future__ import annotations

import fcntl
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from anole.errors import MeasureError

logger = logging.getLogger(__name__)

_LOOKS_S = 0.2


def lock_path(device: str) -> Path:
    """Returns the lock file of a device, such as ``cpu``."""
    return Path(tempfile.gettempdir()) / f"anole-{device}.lock"


@contextmanager
def device_lock(device: str, *, shared: bool = False) -> Iterator[None]:
    """Holds a device: exclusively, to time something on it, or shared with others that only build.

    Raises:
        MeasureError: the lock file cannot be opened.
    """
    handle = _open(device)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def idle_device(devices: Sequence[str]) -> Iterator[str]:
    """Holds one of several devices exclusively, the first idle one, and yields its name.

    Raises:
        MeasureError: a lock file cannot be opened.
    """
    handles = {device: _open(device) for device in devices}
    try:
        idle = _first_had(handles)
        if idle is None:
            logger.info("waiting for %s; all are in use", ", ".join(devices))
        while idle is None:
            time.sleep(_LOOKS_S)
            idle = _first_had(handles)
        yield idle
    finally:
        for handle in handles.values():
            os.close(handle)


def _first_had(handles: Mapping[str, int]) -> str | None:
    for device, handle in handles.items():
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return device
    return None


def _open(device: str) -> int:
    path = lock_path(device)
    try:
        # Another user's lock file can be read and locked, but not opened for writing or with O_CREAT.
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise MeasureError(f"cannot lock the device {device}: {error}") from error
