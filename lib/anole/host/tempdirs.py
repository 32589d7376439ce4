"""A private folder for all temporary files of a process; after a kill, the next process removes the folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import util
from pathlib import Path

from anole.host.lock import try_lock

PREFIX = "anole-own-"
"""Prefix of the names of these folders; a folder that no process has locked is removed."""

_OPEN_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_MAX_SOCKET_PATH_BYTES = 107
_SOCKET_SUFFIX = "/pymp-12345678/listener-12345678"
"""Sockets that multiprocessing creates below the temporary folder; the system limits the length of their paths."""

_EXIT_PRIORITY = -200
"""Remove the folder at exit after multiprocessing has removed its own folder, at priority -100."""


@contextmanager
def use_private_temp_folder() -> Iterator[None]:
    """Put all temporary files of this process and its children into a private folder.

    The folder is created in the default temporary folder and removed when the process exits. Folders that killed
    processes of the same user left there are removed first. Nothing changes if no folder can be created.
    """
    try:
        default = tempfile.gettempdir()
        sweep(Path(default))
        folder = str(_private_folder_in(default))
    except OSError:
        yield
        return
    if len(os.fsencode(folder + _SOCKET_SUFFIX)) > _MAX_SOCKET_PATH_BYTES:
        _shorten_socket_paths()
    old_tempdir, old_variable = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = folder
    try:
        yield
    finally:
        tempfile.tempdir = old_tempdir
        if old_variable is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = old_variable


def _shorten_socket_paths() -> None:
    """Let multiprocessing create its folder in /tmp, where the paths of sockets are short enough."""
    old_tempdir = tempfile.tempdir
    try:
        with suppress(OSError):
            sweep(Path("/tmp"))
            tempfile.tempdir = str(_private_folder_in("/tmp"))
            util.get_temp_dir()
    finally:
        tempfile.tempdir = old_tempdir


def sweep(folder: Path, prefix: str = PREFIX) -> None:
    """Remove the subfolders that `make_locked_folder` created for killed processes of this user.

    Raises:
        OSError: the folder cannot be read.
    """
    with os.scandir(folder) as entries:
        paths = [Path(entry.path) for entry in entries if entry.name.startswith(prefix)]
    for path in paths:
        with suppress(OSError):
            lock = _try_lock_folder(path)
            if lock is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def make_locked_folder(folder: Path, prefix: str) -> tuple[Path, int]:
    """Create a subfolder that `sweep` does not remove as long as the returned handle is open.

    Raises:
        OSError: the subfolder cannot be created.
    """
    while True:
        subfolder = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
        # Another process may have removed the subfolder before it was locked.
        with suppress(FileNotFoundError):
            lock = _try_lock_folder(subfolder)
            if lock is not None and os.path.samestat(os.fstat(lock), subfolder.stat(follow_symlinks=False)):
                return subfolder, lock


@cache
def _private_folder_in(default: str) -> Path:
    """Create this process's private folder, which stays locked until the process ends."""
    folder, _ = make_locked_folder(Path(default), PREFIX)
    util.Finalize(None, shutil.rmtree, (folder, True), exitpriority=_EXIT_PRIORITY)
    return folder


def _try_lock_folder(path: Path) -> int | None:
    """Lock a folder and return the handle; return None if a process holds it or another user owns it.

    Raises:
        OSError: the path is not a folder, or cannot be locked.
    """
    lock = os.open(path, _OPEN_FLAGS)
    try:
        if os.fstat(lock).st_uid == os.geteuid() and try_lock(lock):
            return lock
    except OSError:
        os.close(lock)
        raise
    os.close(lock)
    return None
