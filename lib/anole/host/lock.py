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

_LOG_AFTER_S, _LOG_EVERY_S = 2.0, 60.0
_MAX_SHOWN_HOLDERS = 3
_MAX_CHARACTERS = 120

_logged_at_s: dict[str, float] = {}
"""When the holders of each device were last told."""


def lock_path(device: str) -> Path:
    """Return the lock file of a device, such as ``cpu``."""
    return Path(os.environ.get("ANOLE_LOCKS") or _FOLDER) / f"anole-{device}.lock"


@contextmanager
def device_lock(device: str, *, shared: bool = False) -> Iterator[None]:
    """Hold a device: exclusively, to time something on it, or shared with others that only build.

    After two seconds of waiting, and then every minute, the log says which processes hold it.

    Raises:
        MeasureError: the lock file cannot be opened, or is no regular file.
    """
    handle = _locked(device, shared)
    try:
        yield
    finally:
        os.close(handle)


@contextmanager
def idle_device(devices: Sequence[str]) -> Iterator[str]:
    """Hold one of several devices exclusively, the first idle one, and yield its name; else as `device_lock`."""
    with _telling_holders(devices):
        while (found := _first_had(devices)) is None:
            time.sleep(_LOOKS_S)
    device, handle = found
    try:
        yield device
    finally:
        os.close(handle)


def try_lock(handle: int, *, shared: bool = False) -> bool:
    """Lock an open file or folder unless another process holds it; returns whether it did.

    Raises:
        OSError: the file system locks nothing.
    """
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _first_had(devices: Sequence[str]) -> tuple[str, int] | None:
    """Return the first device that is idle, and its lock, which is held now."""
    for device in devices:
        handle = _open(device)
        if try_lock(handle) and _is_current(device, handle):
            return device, handle
        os.close(handle)
    return None


def _locked(device: str, shared: bool) -> int:
    """Wait for a lock and return the handle that holds it."""
    while True:
        handle = _open(device)
        try:
            if not try_lock(handle, shared=shared):
                with _telling_holders([device]):
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
    """Whether the file is still in its place; somebody may have removed it while this process waited."""
    try:
        return os.path.samestat(os.stat(lock_path(device), follow_symlinks=False), os.fstat(handle))
    except FileNotFoundError:
        return False


@contextmanager
def _telling_holders(devices: Sequence[str]) -> Iterator[None]:
    """Tell who holds devices for as long as the block waits for one of them, each at most once a minute."""
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(_LOG_AFTER_S):
            for device in devices:
                now_s, path = time.monotonic(), lock_path(device)
                if now_s >= _logged_at_s.get(device, float("-inf")) + _LOG_EVERY_S:
                    _logged_at_s[device] = now_s
                    logger.info("waiting for the device %s: %s holds %s", device, _holders(path), path)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _holders(path: Path) -> str:
    """Return in words the processes that hold a lock, as far as the kernel tells: not those of another container."""
    try:
        found = path.stat(follow_symlinks=False)
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return "another process"
    file = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    # For example: `1: FLOCK  ADVISORY  WRITE 6525 fe:00:2148721 0 EOF`; a waiting one has `->` after the number.
    locks = [parts for parts in map(str.split, lines) if len(parts) > 5 and (parts[1], parts[5]) == ("FLOCK", file)]
    # This process may have got it just now; the kernel gives no number for one of another container.
    pids = sorted(pid for parts in locks if (pid := int(parts[4])) > 0 and pid != os.getpid())
    more = f" and {len(pids) - _MAX_SHOWN_HOLDERS} more" * (len(pids) > _MAX_SHOWN_HOLDERS)
    return ", ".join(map(_described, pids[:_MAX_SHOWN_HOLDERS])) + more or "another process"


def _described(pid: int) -> str:
    try:
        program, *arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        program, arguments = "", []
    command = " ".join(" ".join([Path(program).name, *arguments]).split())
    if len(command) > _MAX_CHARACTERS:
        command = f"{command[: _MAX_CHARACTERS - 3]}..."
    return f"process {pid}" + f" ({command})" * bool(command)
