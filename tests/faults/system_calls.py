"""Run commands in which one system call fails, and return their results.

There are two engines: `system_calls.c`, preloaded before the C library, which needs a C compiler and takes
milliseconds; and strace's fault injection, which needs no compiler, fails calls in the kernel and takes a second.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Self

REPOSITORY = Path(__file__).parents[2]


class Kind(IntEnum):
    """The effect of a fault on its call, with the numbers of `system_calls.c`."""

    FAIL = 1
    CUT_SHORT = 2
    FAIL_HALFWAY = 3
    KILL = 4
    KILL_HALFWAY = 5


@dataclass(frozen=True)
class Fault:
    """A fault at a call, counted from 1; a lasting one, such as a full disk, also affects all later calls."""

    number: int
    kind: Kind
    errno: int = 0
    lasting: bool = False

    def __str__(self) -> str:
        name = errno.errorcode[self.errno] if self.errno else ""
        return f"{self.kind.name} {name} at call {self.number}{' and all later ones' if self.lasting else ''}"


@dataclass(frozen=True)
class Call:
    """A call on a file below a command's folder, with the path by which the file was opened."""

    number: int
    name: str
    path: str


@dataclass(frozen=True)
class Entry:
    """The effect of a call or, for ``note``, an acknowledgment.

    Attributes:
        name: create, mkdir, write, truncate, sync, rename, link, unlink or note.
        inode: the file's inode; inodes are reused.
        data: the written data; for ``rename`` and ``link`` the new path; for ``note`` the text.
    """

    name: str
    inode: int
    offset: int
    path: str
    data: bytes


@dataclass(frozen=True)
class Ended:
    """The result of a command.

    Attributes:
        status: the exit status, or the negative number of a signal.
    """

    status: int
    acknowledged: tuple[str, ...]
    error: str
    calls: tuple[Call, ...] = ()
    entries: tuple[Entry, ...] = ()

    @property
    def is_reported(self) -> bool:
        """Whether it reported an error properly: with exit status 2 and on one line."""
        lines = [line for line in self.error.splitlines() if line.startswith("anole: ")]
        return self.status == 2 and len(lines) == 1 and "Traceback" not in self.error

    @property
    def killed(self) -> bool:
        return self.status == -9


class Driver:
    """The process that runs commands with the C library's calls replaced; a context manager."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self._process: subprocess.Popen[str] | None = None

    @cached_property
    def library(self) -> Path | None:
        """The shared object; None without a C compiler; then no call can be recorded or fail."""
        library = self.scratch / "system_calls.so"
        source = Path(__file__).with_name("system_calls.c")
        compiler = shutil.which("cc")
        if compiler is None:
            return None
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
        return library

    def __enter__(self) -> Self:
        preloaded = {} if self.library is None else {"LD_PRELOAD": str(self.library)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.driver"],
            cwd=REPOSITORY,
            env={**_environment(), **preloaded},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.communicate()

    def run(self, arguments: list[str], folder: Path, fault: Fault | None = None, record: bool = False) -> Ended:
        """Run a command; with `record`, the result includes its calls and their effects."""
        assert self._process is not None and self._process.stdin and self._process.stdout
        assert fault is None or self.library is not None, "no call can fail without a C compiler"
        job: dict[str, Any] = _job(arguments, folder, self.scratch)
        if fault is not None:
            job |= {"number": fault.number, "fault": fault.kind, "errno": fault.errno, "lasting": fault.lasting}
        if record:
            job["record"] = str(self.scratch / "record")
        print(json.dumps(job), file=self._process.stdin, flush=True)
        status = int(self._process.stdout.readline())
        entries = tuple(read_record(self.scratch / "record")) if record and self.library else ()
        calls = tuple(Call(each.offset, each.name[1:], each.path) for each in entries if each.name.startswith("?"))
        changes = tuple(each for each in entries if not each.name.startswith("?"))
        return Ended(status, *_printed(job), calls, changes)


def strace_works() -> bool:
    """Whether strace is installed and may trace a process."""
    strace = shutil.which("strace")
    return strace is not None and subprocess.run([strace, "-qq", "-o", os.devnull, "true"]).returncode == 0


def run_under_strace(
    arguments: list[str], folder: Path, watched: Iterable[Path], scratch: Path, call: str, number: int, inject: str
) -> tuple[Ended, int]:
    """Run a command under strace, which injects a fault into one of its calls on watched files.

    The fault has strace's syntax, such as ``error=EIO``. Returns the result, and the number of affected calls.
    """
    job, log = _job(arguments, folder, scratch), scratch / "strace"
    process = subprocess.run(
        ["strace", "-f", "-qq", "-o", log, "-e", f"trace={call}", "-e", f"inject={call}:{inject}:when={number}"]
        + [part for path in watched for part in ("-P", str(path))]
        + [sys.executable, "-m", f"{__package__}.driver", json.dumps(job)],
        cwd=REPOSITORY,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        check=False,
    )
    tampered = len(re.findall(r"\(INJECTED|killed by SIGKILL", log.read_text()))
    return Ended(process.returncode, *_printed(job)), tampered


def read_record(path: Path) -> Iterator[Entry]:
    """Yield the entries of a record that `system_calls.c` has written."""
    data, at = path.read_bytes(), 0
    while at < len(data):
        end = data.index(b"\n", at)
        name, inode, offset, path_length, data_length = data[at:end].split()
        middle = end + 1 + int(path_length)
        at = middle + int(data_length)
        yield Entry(name.decode(), int(inode), int(offset), data[end + 1 : middle].decode(), data[middle:at])


def faults_of(call: Call) -> list[Fault]:
    """Return all faults of a call: its possible errors, short reads and writes, and the death of the process."""
    number, writes = call.number, call.name in ("write", "pwrite")
    faults = [Fault(number, Kind.FAIL, each) for each in ERRORS[call.name]]
    if call.name in FULL_DISK:
        faults.append(Fault(number, Kind.FAIL, errno.ENOSPC, lasting=True))
    faults.append(Fault(number, Kind.FAIL, errno.EIO, lasting=True))
    if writes:
        faults += [Fault(number, Kind.FAIL_HALFWAY, errno.ENOSPC), Fault(number, Kind.KILL_HALFWAY)]
    if writes or call.name in ("read", "pread"):
        faults.append(Fault(number, Kind.CUT_SHORT))
    return [*faults, Fault(number, Kind.KILL)]


ERRORS = {
    "open": (errno.EACCES, errno.EMFILE, errno.ENOSPC, errno.EIO, errno.EINTR),
    "write": (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EINTR),
    "pwrite": (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EINTR),
    "read": (errno.EIO, errno.EINTR),
    "pread": (errno.EIO, errno.EINTR),
    "close": (errno.EIO, errno.EINTR),
    "fsync": (errno.EIO, errno.ENOSPC, errno.EINTR),
    "fdatasync": (errno.EIO, errno.ENOSPC, errno.EINTR),
    "ftruncate": (errno.EIO, errno.EINTR),
    "flock": (errno.ENOLCK, errno.EINTR),
    "rename": (errno.EIO, errno.ENOSPC, errno.EACCES),
    "link": (errno.EIO, errno.ENOSPC, errno.EPERM),
    "unlink": (errno.EIO, errno.EACCES),
    "mkdir": (errno.EIO, errno.ENOSPC, errno.EACCES),
    "chmod": (errno.EIO, errno.EPERM),
}
"""The errors that a call may return on Linux, by its name."""

FULL_DISK = ("open", "write", "pwrite", "fsync", "fdatasync", "rename", "link", "mkdir")
"""The calls that fail on a full disk."""


def _job(arguments: list[str], folder: Path, scratch: Path) -> dict[str, Any]:
    printed = {"output": str(scratch / "output"), "error": str(scratch / "error")}
    return {"arguments": arguments, "folder": str(folder), **printed}


def _printed(job: dict[str, Any]) -> tuple[tuple[str, ...], str]:
    return tuple(Path(job["output"]).read_text().splitlines()), Path(job["error"]).read_text()


def _environment() -> dict[str, str]:
    library = {"PYTHONPATH": str(REPOSITORY / "lib"), "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return {**os.environ, **library}
