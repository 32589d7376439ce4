"""One folder for all temporary files of a process, which the next process removes if this one is killed."""

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
"""The names of these folders begin with this; a folder that its process does not hold locked is removed."""

_OPENING = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_LONGEST_SOCKET = 107
_SOCKET = "/pymp-12345678/listener-12345678"
"""The socket that multiprocessing makes in the temporary folder, whose path the system limits to so many bytes."""

_LAST = -200
"""The folder is removed when the process exits, after multiprocessing has removed its own, which has -100."""


@contextmanager
def own_temporaries() -> Iterator[None]:
    """Put all temporary files of this process and of its children into the process's own folder.

    The folder is in the usual one, and is removed when the process exits. What killed processes of the same user left
    there is removed first. Nothing changes if no folder can be made; whoever needs one says so.
    """
    try:
        usual = tempfile.gettempdir()
        sweep(Path(usual))
        own = str(_folder_in(usual))
    except OSError:
        yield
        return
    if len(os.fsencode(own + _SOCKET)) > _LONGEST_SOCKET:
        _make_place_for_sockets()
    before, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = own
    try:
        yield
    finally:
        tempfile.tempdir = before
        if variable is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = variable


def _make_place_for_sockets() -> None:
    """Let multiprocessing make its folder where the paths of sockets are short enough."""
    before = tempfile.tempdir
    try:
        with suppress(OSError):
            sweep(Path("/tmp"))
            tempfile.tempdir = str(_folder_in("/tmp"))
            util.get_temp_dir()
    finally:
        tempfile.tempdir = before


def sweep(folder: Path, prefix: str = PREFIX) -> None:
    """Remove those folders in a folder that `make_locked` made for killed processes of this user; all else stays.

    Raises:
        OSError: the folder cannot be read.
    """
    with os.scandir(folder) as entries:
        found = [Path(entry.path) for entry in entries if entry.name.startswith(prefix)]
    for path in found:
        with suppress(OSError):
            lock = _locked(path)
            if lock is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def make_locked(folder: Path, prefix: str) -> tuple[Path, int]:
    """Make a folder that `sweep` leaves alone as long as the returned handle is open.

    Raises:
        OSError: it cannot be made.
    """
    while True:
        own = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
        # Another process may have removed it before it was locked.
        with suppress(FileNotFoundError):
            lock = _locked(own)
            if lock is not None and os.path.samestat(os.fstat(lock), own.stat(follow_symlinks=False)):
                return own, lock


@cache
def _folder_in(usual: str) -> Path:
    """Make this process's own folder, which it holds locked until it ends."""
    own, _ = make_locked(Path(usual), PREFIX)
    util.Finalize(None, shutil.rmtree, (own, True), exitpriority=_LAST)
    return own


def _locked(path: Path) -> int | None:
    """Lock a folder of this user and return the handle; return None if a process holds it or it is of another user.

    Raises:
        OSError: it is no folder, or cannot be locked.
    """
    lock = os.open(path, _OPENING)
    try:
        if os.fstat(lock).st_uid == os.geteuid() and try_lock(lock):
            return lock
    except OSError:
        os.close(lock)
        raise
    os.close(lock)
    return None
