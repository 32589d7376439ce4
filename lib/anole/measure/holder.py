"""Who holds a lock: a note that the holder writes into the lock file, and what a process that waits for it tells."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

logger = logging.getLogger(__name__)

_TOLD_AFTER_S = 2.0
_TOLD_EVERY_S = 60.0
_MOST_TOLD = 3
_MOST_WORDS = 120
_MOST_BYTES = 4096

_BEGINNING = b'{"anole_holder":'
"""How each note begins. A file that holds anything else is no note, and is left alone."""

_work: list[str] = []
_told_at_s: dict[str, float] = {}


@dataclass(frozen=True)
class Holder:
    """What a process notes that holds a device exclusively.

    Attributes:
        pid: its number.
        command: its command line.
        work: what it measures; empty if it does not say.
        since: when it got the device, in seconds since 1970.
    """

    pid: int
    command: str
    work: str
    since: float

    def __str__(self) -> str:
        is_today = time.time() - self.since < 12 * 3600
        at = time.strftime("%H:%M:%S" if is_today else "%d %B, %H:%M", time.localtime(self.since))
        work = f" for {self.work}" if self.work else ""
        return f"process {self.pid}{work} since {at} ({self.command})"


@contextmanager
def working_on(work: str) -> Iterator[None]:
    """Tells those that wait for a device which this process holds what it measures meanwhile, such as a task."""
    _work.append(work)
    try:
        yield
    finally:
        _work.remove(work)


def note_holder(handle: int) -> None:
    """Writes into a lock file that this process holds it; without a word, if it may not write there."""
    holder = Holder(os.getpid(), _own_command(), _work[-1][:_MOST_WORDS] if _work else "", time.time())
    _write(handle, json.dumps({"anole_holder": asdict(holder)}).encode())


def wipe(handle: int) -> None:
    """Removes the note from a lock file, which this process has locked."""
    if os.fstat(handle).st_size:
        _write(handle, b"")


def read_holder(path: Path) -> Holder | None:
    """Returns the holder that a lock file's note tells of; None if there is no note that can be read."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES)
        if not text.startswith(_BEGINNING):
            return None
        plain = json.loads(text)["anole_holder"]
        command, work = (str(plain[name])[:_MOST_WORDS] for name in ("command", "work"))
        holder = Holder(int(plain["pid"]), command, work, float(plain["since"]))
        str(holder)  # a time may be none that exists
        return holder
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


class Waiting:
    """A process's waiting for a device; tells of it after two seconds and then every minute, but not more often.

    Args:
        device: the device's name.
        path: its lock file.
    """

    def __init__(self, device: str, path: Path) -> None:
        self._device, self._path = device, path
        self._began_s = time.monotonic()

    @property
    def due_in_s(self) -> float:
        """Seconds until it is told again."""
        due_s = self._began_s + _TOLD_AFTER_S
        if (told_at_s := _told_at_s.get(self._device)) is not None:
            due_s = max(due_s, told_at_s + _TOLD_EVERY_S)
        return max(0.0, due_s - time.monotonic())

    def tell_if_due(self) -> None:
        """Logs who holds the device, if it is time to."""
        if self.due_in_s > 0:
            return
        _told_at_s[self._device] = now_s = time.monotonic()
        waited = f", after {now_s - self._began_s:.0f} s" if now_s - self._began_s > _TOLD_EVERY_S / 2 else ""
        logger.info("waiting for the device %s%s: %s holds %s", self._device, waited, _listed(self._path), self._path)


@contextmanager
def telling_later(waiting: Waiting) -> Iterator[None]:
    """Tells who holds a device while the block waits for it."""
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(waiting.due_in_s):
            waiting.tell_if_due()

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _write(handle: int, text: bytes) -> None:
    """Replaces a note; a reader of the moment between sees none, or one that is cut and therefore none."""
    with suppress(OSError):
        # Lock files are opened for reading, since another user's cannot be written.
        writing = os.open(f"/proc/self/fd/{handle}", os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.fstat(writing).st_size and os.pread(writing, len(_BEGINNING), 0) != _BEGINNING:
                return
            os.ftruncate(writing, 0)
            os.pwrite(writing, text, 0)
        finally:
            os.close(writing)


def _listed(path: Path) -> str:
    """Returns in words the processes that hold a lock, and what the one that timing belongs to says of itself."""
    noted, pids = read_holder(path), _holders(path)
    if noted is not None and (not pids or noted.pid in pids):
        return str(noted)
    described = [_described(pid) for pid in pids]
    more = f" and {len(described) - _MOST_TOLD} more" * (len(described) > _MOST_TOLD)
    return ", ".join(described[:_MOST_TOLD]) + more or "another process"


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
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        words = []
    return f"process {pid}" + (f" ({_command(words)})" if any(words) else "")


def _own_command() -> str:
    """Returns the command line of this process, or of the command that started it as a part of itself."""
    program = Path(sys.argv[0]) if sys.argv else Path()
    is_anole = program.name == "anole" or program.match("anole/__main__.py")
    return _command(["anole", *sys.argv[1:]] if is_anole else sys.orig_argv)


def _command(words: list[str]) -> str:
    """Returns a command line, cut where it is long."""
    line = " ".join(words).strip()
    return line if len(line) <= _MOST_WORDS else line[: _MOST_WORDS - 3] + "..."
