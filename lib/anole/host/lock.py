"""Lock a device against Anole's other processes, of all users and workflows with the same folder of locks."""

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
"""Folder of the lock files, independent of user and TMPDIR; the environment variable ANOLE_LOCKS overrides it."""

_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Symbolic links are not followed, and opening a pipe does not block."""

_POLL_S = 0.2

_LOG_AFTER_S, _LOG_EVERY_S = 2.0, 60.0
_MAX_SHOWN_HOLDERS = 3
_MAX_COMMAND_CHARACTERS = 120

_logged_at_s: dict[str, float] = {}
"""When the holders of each device were last logged."""


def lock_path(device: str) -> Path:
    """Return the lock file of a device, such as ``cpu``."""
    return Path(os.environ.get("ANOLE_LOCKS") or _FOLDER) / f"anole-{device}.lock"


@contextmanager
def lock_device(device: str, *, shared: bool = False) -> Iterator[None]:
    """Hold a device: exclusively for timing, or shared with other builds.

    After two seconds of waiting, the processes that hold the device are logged, at most once a minute.

    Raises:
        MeasureError: the lock file cannot be opened, or is not a regular file.
    """
    handle = _wait_for_lock(device, shared)
    try:
        yield
    finally:
        os.close(handle)


@contextmanager
def lock_idle_device(devices: Sequence[str]) -> Iterator[str]:
    """Hold the first idle device exclusively and yield its name; wait, log and raise as `lock_device` does."""
    with _log_holders_while_waiting(devices):
        while (lock := _lock_first_idle(devices)) is None:
            time.sleep(_POLL_S)
    device, handle = lock
    try:
        yield device
    finally:
        os.close(handle)


def try_lock(handle: int, *, shared: bool = False) -> bool:
    """Try to lock an open file or folder; return whether that succeeded.

    Raises:
        OSError: the file system supports no locks.
    """
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_first_idle(devices: Sequence[str]) -> tuple[str, int] | None:
    """Lock the first idle device, and return its name and the handle of the lock."""
    for device in devices:
        handle = _open(device)
        if try_lock(handle) and _is_current(device, handle):
            return device, handle
        os.close(handle)
    return None


def _wait_for_lock(device: str, shared: bool) -> int:
    """Wait for a lock and return the handle that holds it."""
    while True:
        handle = _open(device)
        try:
            if not try_lock(handle, shared=shared):
                with _log_holders_while_waiting([device]):
                    fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            if _is_current(device, handle):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _open(device: str) -> int:
    path = lock_path(device)
    try:
        # In a folder such as /tmp, another user's file can be locked, but not be opened with O_CREAT.
        try:
            handle = os.open(path, _OPEN_FLAGS)
        except FileNotFoundError:
            handle = os.open(path, _OPEN_FLAGS | os.O_CREAT, 0o644)
    except OSError as error:
        problem = "it is a symbolic link; remove it" if path.is_symlink() else str(error)
        raise MeasureError(f"cannot lock the device {device}: {path}: {problem}") from error
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise MeasureError(f"cannot lock the device {device}: {path} is not a regular file; remove it")
    if status.st_uid == os.geteuid() and not status.st_mode & stat.S_IROTH:
        # With a strict umask, other users could never lock the device.
        with suppress(OSError):
            os.fchmod(handle, 0o644)
    return handle


def _is_current(device: str, handle: int) -> bool:
    """Whether the locked file still has its name; it may have been removed while this process waited."""
    try:
        return os.path.samestat(os.stat(lock_path(device), follow_symlinks=False), os.fstat(handle))
    except FileNotFoundError:
        return False


@contextmanager
def _log_holders_while_waiting(devices: Sequence[str]) -> Iterator[None]:
    """Log the holders of devices while the `with` block waits for a device, at most once a minute per device."""
    stop = threading.Event()

    def log_holders() -> None:
        while not stop.wait(_LOG_AFTER_S):
            for device in devices:
                now_s, path = time.monotonic(), lock_path(device)
                if now_s >= _logged_at_s.get(device, float("-inf")) + _LOG_EVERY_S:
                    _logged_at_s[device] = now_s
                    logger.info("waiting for the device %s: %s holds %s", device, _holders(path), path)

    thread = threading.Thread(target=log_holders, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _holders(path: Path) -> str:
    """Describe the processes that hold a lock; the kernel does not list processes of other containers."""
    try:
        status = path.stat(follow_symlinks=False)
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return "another process"
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    # A line is `1: FLOCK  ADVISORY  WRITE 6525 fe:00:2148721 0 EOF`; a waiting process has `->` after the number.
    locks = [parts for parts in map(str.split, lines) if len(parts) > 5 and (parts[1], parts[5]) == ("FLOCK", file)]
    # This process may have just acquired the lock; processes of other containers have no valid id in this one.
    pids = sorted(pid for parts in locks if (pid := int(parts[4])) > 0 and pid != os.getpid())
    more = f" and {len(pids) - _MAX_SHOWN_HOLDERS} more" * (len(pids) > _MAX_SHOWN_HOLDERS)
    return ", ".join(map(_describe_process, pids[:_MAX_SHOWN_HOLDERS])) + more or "another process"


def _describe_process(pid: int) -> str:
    try:
        program, *arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        program, arguments = "", []
    command = " ".join(" ".join([Path(program).name, *arguments]).split())
    if len(command) > _MAX_COMMAND_CHARACTERS:
        command = f"{command[: _MAX_COMMAND_CHARACTERS - 3]}..."
    return f"process {pid}" + f" ({command})" * bool(command)
