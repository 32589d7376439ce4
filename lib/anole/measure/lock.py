"""Locks a device against all other processes, users and workflows of this machine."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from anole.errors import MeasureError
from anole.measure.holder import Waiting, note_holder, telling_later, wipe

_FOLDER = "/tmp"
"""The folder of the locks, the same for all users and for every TMPDIR; the variable ANOLE_LOCKS names another one."""

_OPENING = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""A symbolic link is not followed, and a pipe of that name does not block."""

_LOOKS_S = 0.2


def lock_path(device: str) -> Path:
    """Returns the lock file of a device, such as ``cpu``."""
    return Path(os.environ.get("ANOLE_LOCKS") or _FOLDER) / f"anole-{device}.lock"


@contextmanager
def device_lock(device: str, *, shared: bool = False) -> Iterator[None]:
    """Holds a device: exclusively, to time something on it, or shared with others that only build.

    After two seconds of waiting, the log says which process holds the device, for what and since when.

    Raises:
        MeasureError: the lock file cannot be opened, or is no regular file.
    """
    with _held(_locked(device, fcntl.LOCK_SH if shared else fcntl.LOCK_EX), shared):
        yield


@contextmanager
def idle_device(devices: Sequence[str]) -> Iterator[str]:
    """Holds one of several devices exclusively, the first idle one, and yields its name.

    After two seconds of waiting, the log says which processes hold them, for what and since when.

    Raises:
        MeasureError: a lock file cannot be opened, or is no regular file.
    """
    waits = [Waiting(device, lock_path(device)) for device in devices]
    while (had := _first_had(devices)) is None:
        for wait in waits:
            wait.tell_if_due()
        time.sleep(_LOOKS_S)
    idle, handle = had
    with _held(handle):
        yield idle


@contextmanager
def _held(handle: int, shared: bool = False) -> Iterator[None]:
    """Notes in a lock file, which this process has locked, that it holds the device; then releases it."""
    try:
        if shared:
            wipe(handle)  # a holder that was killed left its note
        else:
            note_holder(handle)
        yield
    finally:
        if not shared:
            wipe(handle)
        os.close(handle)


def _first_had(devices: Sequence[str]) -> tuple[str, int] | None:
    """Returns the first device that is idle, and its lock, which is held now."""
    for device in devices:
        handle = _open(device)
        if _try(handle, fcntl.LOCK_EX) and _is_current(device, handle):
            return device, handle
        os.close(handle)
    return None


def _locked(device: str, mode: int) -> int:
    """Waits for a lock and returns the handle that holds it."""
    while True:
        handle = _open(device)
        try:
            if not _try(handle, mode):
                with telling_later(Waiting(device, lock_path(device))):
                    fcntl.flock(handle, mode)
            if _is_current(device, handle):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _try(handle: int, mode: int) -> bool:
    """Returns whether the lock could be had at once."""
    try:
        fcntl.flock(handle, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open(device: str) -> int:
    path = lock_path(device)
    try:
        # Another user's file can be read and locked, but not opened with O_CREAT in a folder such as /tmp.
        try:
            handle = os.open(path, _OPENING)
        except FileNotFoundError:
            handle = os.open(path, _OPENING | os.O_CREAT, 0o644)
    except OSError as error:
        problem = "it is a symbolic link; remove it" if path.is_symlink() else str(error)
        raise MeasureError(f"cannot lock the device {device}: {path}: {problem}") from error
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise MeasureError(f"cannot lock the device {device}: {path} is no regular file; remove it")
    if found.st_uid == os.geteuid() and not found.st_mode & stat.S_IROTH:
        # A strict umask must not lock other users out for good.
        with suppress(OSError):
            os.fchmod(handle, 0o644)
    return handle


def _is_current(device: str, handle: int) -> bool:
    """Returns whether the file is still in its place; somebody may have removed it while this process waited."""
    try:
        return os.path.samestat(os.stat(lock_path(device), follow_symlinks=False), os.fstat(handle))
    except FileNotFoundError:
        return False
