"""Tells faults of the machine from those of a candidate, by the system's own error numbers and words."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile

from anole.errors import AnoleError, MachineError, cause

KILLED = "the process was ended by SIGKILL"
"""What is told of a process that somebody else killed, as the system does when memory runs out."""

_SPACE = "free some space where temporary files go (TMPDIR), or set TMPDIR to another folder"
_MEMORY = "end other programs, or build fewer candidates at once (--builders)"
_FILES = "raise the limit of open files (ulimit -n)"

_CURES = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EROFS: _SPACE,
    errno.ENOMEM: _MEMORY,
    errno.EAGAIN: _MEMORY,
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.EIO: "check the disk",
}
"""What mends an error that no candidate can cause, by its number."""

_DAMAGED = ("file too short", "invalid ELF header", "failed to map segment", "cannot open shared object file")
"""What the system's loader says of a library that was not written completely."""

_MIN_FREE_BYTES = 1 << 20

_OUT_OF_MEMORY = (KILLED, "MemoryError", "std::bad_alloc")


def machine_error(error: BaseException) -> MachineError | None:
    """Return the error that ends the job if the machine is at fault for an error of a build or a run, else None.

    No candidate opens files or starts programs, so every error of the system is the machine's.
    """
    if isinstance(error, AnoleError):
        return error if isinstance(error, MachineError) else None
    if isinstance(error, OSError) and not isinstance(error, TimeoutError):
        return _error(cause(error), _CURES.get(error.errno or 0))
    return machine_error_in(f"{error}", cause(error))


def machine_error_in(text: str, told: str | None = None) -> MachineError | None:
    """Return the error that ends the job if a text tells of a fault of the machine; it says `told` or the text."""
    for number, cure in _CURES.items():
        if os.strerror(number) in text:
            return _error(told or text, cure)
    return _error(told or text, _SPACE) if any(words in text for words in _DAMAGED) else None


def full_disk() -> MachineError | None:
    """Return the error that ends the job if the disk of the temporary files is full, so that nobody can say so."""
    folder = tempfile.gettempdir()
    if shutil.disk_usage(folder).free >= _MIN_FREE_BYTES:
        return None
    return _error(f"{folder}: {os.strerror(errno.ENOSPC)}", _SPACE)


def ran_out_of_memory(error: str | None) -> bool:
    """Whether a call failed as one does when the memory does not suffice for all that run at once."""
    return error is not None and any(words in error for words in _OUT_OF_MEMORY)


def _error(problem: str, cure: str | None) -> MachineError:
    return MachineError(f"nothing can be built or run here: {problem}" + (f"; {cure}" if cure else ""))
