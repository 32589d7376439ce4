"""A run's shard, an append-only file of JSON lines; a trial is on disk before it counts as measured."""

from __future__ import annotations

import fcntl
import logging
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Self

from anole.errors import ShardInUseError, StoreError
from anole.files import close, make_folder, sync, write_atomically
from anole.keys import canonical_json
from anole.record import Confirmation, Remeasurement, Run, Source, SpaceFacts, Trial, utc_now
from anole.store.checks import find_problem
from anole.store.content import (
    SCHEMA,
    Head,
    Iteration,
    Recorded,
    ShardContent,
    WarmStart,
    encode_line,
    parse_recorded,
    read_head,
    read_shard,
)
from anole.store.lines import Chain, complete_lines
from anole.task import Task

logger = logging.getLogger(__name__)

__all__ = [
    "Shard",
    "ShardContent",
    "copy_path",
    "is_copy",
    "read_head",
    "read_shard",
    "run_key_in_name",
    "shard_path",
    "shard_paths",
]

_DIGEST_DIGITS = 12
_NAME = re.compile(rf"([0-9a-f]{{64}})(\.[0-9a-f]{{{_DIGEST_DIGITS}}})?\.jsonl")
"""File names of `shard_path` and `copy_path`: the run's key and, in a copy, the first digits of its digest."""


def shard_path(directory: Path, run: Run) -> Path:
    """Return the path of a run's shard: a folder named by the task's key, a file named by the run's key."""
    return directory / run.task_key / f"{run.key}.jsonl"


def copy_path(directory: Path, content: ShardContent) -> Path:
    """Return the path for another state of a run, which is stored next to the run's shard."""
    return directory / content.run.task_key / f"{content.run.key}.{content.digest[:_DIGEST_DIGITS]}.jsonl"


def is_copy(path: Path) -> bool:
    """Whether a file is not a run's own shard, according to its name, but another state of a run."""
    match = _NAME.fullmatch(path.name)
    return match is None or match[2] is not None


def run_key_in_name(path: Path) -> str | None:
    """Return the run's key in the name of a shard or copy; None for a name chosen by a user."""
    match = _NAME.fullmatch(path.name)
    return None if match is None else match[1]


def shard_paths(directory: Path) -> Iterator[Path]:
    """Yield the sorted paths of all shards in a folder, including copies."""
    for folder in _names(directory):
        task_folder = directory / folder
        for name in _names(task_folder):
            if name.endswith(".jsonl") and not name.startswith("."):
                yield task_folder / name


def _names(folder: Path) -> list[str]:
    """Return the sorted names in a folder; none if it does not exist, is not a folder or must not be read."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
    except OSError as error:
        raise StoreError(f"{folder}: cannot be read: {error.strerror}") from error


class Shard(AbstractContextManager["Shard"]):
    """A run's file, open for appending; a context manager, created by `open`.

    Appended data is on disk when the call returns. The file is locked while this process, or a child that it forked,
    has the file open; the lock ends with these processes, even if they are killed.

    Every method that appends raises StoreError if the file cannot be written or the record is invalid.
    """

    def __init__(self, path: Path, descriptor: int, recorded: Recorded, end: int) -> None:
        self.path, self._recorded, self._end = path, recorded, end
        self._descriptor: int | None = descriptor

    @classmethod
    def open(cls, directory: Path, run: Run, task: Task, *, wait: bool = False) -> Self:
        """Open the run's shard, or create it; a last line truncated by a crash is removed.

        A resumed run keeps its stored host and versions. If another process has the file open, wait for it if `wait`,
        and raise an error otherwise.

        Raises:
            StoreError: the file is in use, cannot be written, is corrupt or belongs to another run.
        """
        if run.task_key != task.key:
            raise StoreError(f"a run of the task {run.task_key} cannot store trials of the task {task.key}")
        path = shard_path(directory, run)
        descriptor = _open_locked(path, wait)
        with _close_on_error(descriptor, path):
            recorded, end = _resume_or_begin(descriptor, path, run, task)
            if recorded.run.key != run.key:
                raise StoreError(f"{path}: holds the run {recorded.run.key}, not the one in its name")
            return cls(path, descriptor, recorded, end)

    @property
    def content(self) -> ShardContent:
        """The content of the file."""
        return self._recorded.content()

    @property
    def run(self) -> Run:
        """The run, with the host and versions at its start."""
        return self._recorded.run

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The trials, ordered by number."""
        return tuple(self._recorded.trials)

    @property
    def confirmations(self) -> tuple[Confirmation, ...]:
        """The confirmations, oldest first."""
        return tuple(self._recorded.confirmations)

    @property
    def sources(self) -> tuple[Source, ...] | None:
        """The runs of similar tasks that the run learns from; None until it has looked for them."""
        return self._recorded.sources

    @property
    def space(self) -> SpaceFacts | None:
        """Facts about the task's space; None until they are computed."""
        return self._recorded.space

    def append_trial(self, trial: Trial) -> None:
        """Store a trial, which must have the next number and a new config."""
        try:
            config = canonical_json(trial.config)
        except (TypeError, ValueError) as error:
            raise StoreError(f"{self.path}: cannot store a trial: {error}") from error
        if trial.number != len(self._recorded.trials):
            raise StoreError(f"{self.path}: found trial {trial.number}; expected trial {len(self._recorded.trials)}")
        if config in self._recorded.configs:
            raise StoreError(f"{self.path}: trial {trial.number} measures a config again: {config}")
        self._append(trial)
        self._recorded.configs[config] = trial.number

    def append_remeasurement(self, remeasurement: Remeasurement) -> None:
        """Store a new measurement of a recorded trial; the earlier one stays in the file."""
        number, n_trials = remeasurement.number, len(self._recorded.trials)
        if not 0 <= number < n_trials:
            raise StoreError(f"{self.path}: trial {number} is measured again; there are only {n_trials} trials")
        self._append(remeasurement)

    def append_confirmation(self, confirmation: Confirmation) -> None:
        """Store a confirmation."""
        self._append(confirmation)

    def append_iteration(self, number: int, log: Mapping[str, float]) -> None:
        """Store the metrics of one iteration's search; values that are not finite become None.

        If an interrupted iteration is searched again, the new metrics replace the earlier ones.
        """
        self._append(Iteration(number, {name: value if math.isfinite(value) else None for name, value in log.items()}))

    def append_sources(self, sources: Sequence[Source]) -> None:
        """Store the runs of similar tasks that this run learns from; call it before the first trial."""
        self._append(WarmStart(tuple(sources)))

    def append_space(self, facts: SpaceFacts) -> None:
        """Store facts about the task's space."""
        self._append(facts)

    def replace(self, data: bytes) -> None:
        """Replace the file with a later state of the run, atomically and durably, and close it.

        A process that waits for the lock then opens the new file.

        Raises:
            StoreError: the file cannot be written; the old one is unchanged.
        """
        try:
            write_atomically(self.path, data)
        except OSError as error:
            raise _write_error(self.path, error) from error
        finally:
            self.close()

    def close(self) -> None:
        """Close the file and release its lock; closing twice is harmless."""
        if self._descriptor is not None:
            close(self._descriptor)
            self._descriptor = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, record: Any) -> None:
        problem = find_problem(record, self._recorded.task.workload.flop)
        if problem is not None:
            raise StoreError(f"{self.path}: cannot store a record: {problem}")
        if self._descriptor is None:
            raise StoreError(f"{self.path}: is closed")
        self._check_change()
        line = encode_line(record, self._recorded.chain, self.path)
        try:
            _write_durably(self._descriptor, line, self._end)
        except OSError as error:
            self.close()
            raise StoreError(
                f"{self.path}: cannot be written: {error.strerror}; its {len(self._recorded.trials)} trials are safe, "
                "and running again continues after them"
            ) from error
        self._end += len(line)
        self._check_change()
        self._recorded.add(record)

    def _check_change(self) -> None:
        """Raise StoreError if another program has changed the file, which the lock cannot prevent."""
        assert self._descriptor is not None
        status = os.fstat(self._descriptor)
        if not status.st_nlink or status.st_size != self._end:
            self.close()
            change = "changed" if status.st_nlink else "removed or replaced"
            raise StoreError(f"{self.path}: another program has {change} it during tuning; run again to continue")


def _open_locked(path: Path, wait: bool) -> int:
    """Open a shard for writing, or create it, and lock it."""
    while True:
        try:
            make_folder(path.parent)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise _write_error(path, error) from error
        with _close_on_error(descriptor, path):
            _lock(descriptor, path, wait)
            if _is_current(descriptor, path):
                return descriptor
        # Another process replaced the file while this one waited.
        close(descriptor)


@contextmanager
def _close_on_error(descriptor: int, path: Path) -> Iterator[None]:
    """Close a shard if an error ends the context, and convert OSError to StoreError."""
    try:
        yield
    except OSError as error:
        close(descriptor)
        raise _write_error(path, error) from error
    except BaseException:
        close(descriptor)
        raise


def _lock(descriptor: int, path: Path, wait: bool) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        problem = "is in use by another process, such as a search of this task with the same settings"
        if not wait:
            raise ShardInUseError(f"{path}: {problem}") from error
        logger.warning("%s: %s; waiting until it ends", path, problem)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        raise StoreError(
            f"{path}: its file system cannot lock files ({error.strerror}), but two processes must not write the same "
            "shard; use a file system with flock, such as NFS 4 or Lustre mounted with `-o flock`"
        ) from error


def _is_current(descriptor: int, path: Path) -> bool:
    """Whether a path still refers to an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _resume_or_begin(descriptor: int, path: Path, run: Run, task: Task) -> tuple[Recorded, int]:
    """Return the file's content and length, after removing a truncated last line or writing the head."""
    data = _read_all(descriptor)
    lines = complete_lines(data)
    recorded = parse_recorded(path, lines)
    if recorded is None:
        recorded = Recorded(run, task, utc_now(), Chain.of(run.key))
        lines = encode_line(Head(SCHEMA, recorded.started_at, run.key, run, task.to_json()), recorded.chain, path)
        os.ftruncate(descriptor, 0)
        _write_durably(descriptor, lines, 0)
        sync(path.parent)
        sync(path.parent.parent)
    elif lines != data:
        n_kept = min(len(data), len(lines))
        os.ftruncate(descriptor, n_kept)
        _write_durably(descriptor, lines[n_kept:], n_kept)
    return recorded, len(lines)


def _read_all(descriptor: int) -> bytes:
    data = b""
    while block := os.pread(descriptor, 1 << 24, len(data)):
        data += block
    return data


def _write_durably(descriptor: int, data: bytes, offset: int) -> None:
    """Write and sync all data; after an error, truncate the file to its former length."""
    try:
        n_written = 0
        while n_written < len(data):
            n_written += os.pwrite(descriptor, data[n_written:], offset + n_written)
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, offset)
        raise


def _write_error(path: Path, error: OSError) -> StoreError:
    return StoreError(f"{path}: cannot be written: {error.strerror}")
