"""Distinguish faults of the machine from faults of a candidate by the system's error numbers and messages."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile

from anole.errors import AnoleError, MachineError, cause

KILLED = "the process was killed by SIGKILL"
"""The message for a process that was killed from outside, as the system does when memory runs out."""

_FREE_SPACE = "free some space where temporary files go (TMPDIR), or set TMPDIR to another folder"
_USE_LESS_MEMORY = "end other programs, or build fewer candidates in parallel (--builders)"
_RAISE_FILE_LIMIT = "raise the limit of open files (ulimit -n)"

_REMEDIES = {
    errno.ENOSPC: _FREE_SPACE,
    errno.EDQUOT: _FREE_SPACE,
    errno.EROFS: _FREE_SPACE,
    errno.ENOMEM: _USE_LESS_MEMORY,
    errno.EAGAIN: _USE_LESS_MEMORY,
    errno.EMFILE: _RAISE_FILE_LIMIT,
    errno.ENFILE: _RAISE_FILE_LIMIT,
    errno.EIO: "check the disk",
}
"""Remedies for errors that no candidate can cause, by error number."""

_LOADER_ERRORS = ("file too short", "invalid ELF header", "failed to map segment", "cannot open shared object file")
"""Messages of the dynamic loader about an incompletely written library."""

_MIN_FREE_BYTES = 1 << 20

_MEMORY_ERRORS = (KILLED, "MemoryError", "std::bad_alloc")


def machine_error(error: BaseException) -> MachineError | None:
    """Return a MachineError, which ends the job, if the machine caused the error of a build or run; otherwise None.

    Candidates neither open files nor start programs, so the machine causes every OSError except a timeout.
    """
    if isinstance(error, AnoleError):
        return error if isinstance(error, MachineError) else None
    if isinstance(error, OSError) and not isinstance(error, TimeoutError):
        return _make_error(cause(error), _REMEDIES.get(error.errno or 0))
    return machine_error_in(f"{error}", cause(error))


def machine_error_in(text: str, shown: str | None = None) -> MachineError | None:
    """Return a MachineError if a text reports a fault of the machine; its message quotes `shown` or else the text."""
    for number, remedy in _REMEDIES.items():
        if os.strerror(number) in text:
            return _make_error(shown or text, remedy)
    return _make_error(shown or text, _FREE_SPACE) if any(message in text for message in _LOADER_ERRORS) else None


def full_disk() -> MachineError | None:
    """Return a MachineError if the disk of the temporary files is full; a worker may be unable to report that."""
    folder = tempfile.gettempdir()
    if shutil.disk_usage(folder).free >= _MIN_FREE_BYTES:
        return None
    return _make_error(f"{folder}: {os.strerror(errno.ENOSPC)}", _FREE_SPACE)


def ran_out_of_memory(error: str | None) -> bool:
    """Whether an error indicates that memory ran out, possibly only because several calls ran in parallel."""
    return error is not None and any(text in error for text in _MEMORY_ERRORS)


def _make_error(problem: str, remedy: str | None) -> MachineError:
    return MachineError(f"cannot build or run anything here: {problem}" + (f"; {remedy}" if remedy else ""))
