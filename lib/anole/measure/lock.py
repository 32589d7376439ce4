"""Locks a device against all other processes, users and workflows of this machine."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from anole.errors import MeasureError

logger = logging.getLogger(__name__)

_FOLDER = "/tmp"
"""The folder of the locks, the same for all users and for every TMPDIR; the variable ANOLE_LOCKS names another one."""

_OPENING = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""A symbolic link is not followed, and a pipe of that name does not block."""

_LOOKS_S = 0.2
_TOLD_AFTER_S = 2.0
_MOST_TOLD = 3


def lock_path(device: str) -> Path:
    """Returns the lock file of a device, such as ``cpu``."""
    return Path(os.environ.get("ANOLE_LOCKS") or _FOLDER) / f"anole-{device}.lock"


@contextmanager
def device_lock(device: str, *, shared: bool = False) -> Iterator[None]:
    """Holds a device: exclusively, to time something on it, or shared with others that only build.

    After two seconds of waiting, the log says which process holds the device.

    Raises:
        MeasureError: the lock file cannot be opened, or is no regular file.
    """
    handle = _locked(device, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(handle)


@contextmanager
def idle_device(devices: Sequence[str]) -> Iterator[str]:
    """Holds one of several devices exclusively, the first idle one, and yields its name.

    After two seconds of waiting, the log says which processes hold them.

    Raises:
        MeasureError: a lock file cannot be opened, or is no regular file.
    """
    began_s, is_told = time.monotonic(), False
    while (had := _first_had(devices)) is None:
        if not is_told and time.monotonic() > began_s + _TOLD_AFTER_S:
            for device in devices:
                _tell(device)
            is_told = True
        time.sleep(_LOOKS_S)
    idle, handle = had
    try:
        yield idle
    finally:
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
                with _told_later(device):
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


@contextmanager
def _told_later(device: str) -> Iterator[None]:
    """Tells who holds the device if the context lasts longer than two seconds."""
    timer = threading.Timer(_TOLD_AFTER_S, _tell, (device,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _tell(device: str) -> None:
    holders = [_described(pid) for pid in _holders(lock_path(device))]
    listed = ", ".join(holders[:_MOST_TOLD]) + (f" and {len(holders) - _MOST_TOLD} more" * (len(holders) > _MOST_TOLD))
    logger.info(
        "waiting for the device %s, which %s holds (%s)", device, listed or "another process", lock_path(device)
    )


def _holders(path: Path) -> list[int]:
    """Returns the processes that hold a lock, as far as the kernel tells; those that hold it exclusively first."""
    held: list[tuple[bool, int]] = []
    try:
        found = path.stat(follow_symlinks=False)
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    file = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for line in lines:
        # For example: `1: FLOCK  ADVISORY  WRITE 6525 fe:00:2148721 0 EOF`; a waiting one has `->` after the number.
        parts = line.split()
        if len(parts) < 6 or parts[1] != "FLOCK" or parts[5] != file:
            continue
        if (pid := int(parts[4])) > 0:
            held.append((parts[3] != "WRITE", pid))
    return [pid for _, pid in sorted(held)]


def _described(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        command = ""
    return f"process {pid}" + (f" ({command[:120]})" if command else "")
