"""The shard: one run's append-only file of JSON lines; a trial is on the disk before it counts as measured."""

from __future__ import annotations

import fcntl
import logging
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from anole.errors import StoreError
from anole.files import sync
from anole.keys import canonical_json
from anole.record import Confirmation, Run, Source, SpaceFacts, Trial, utc_now
from anole.store.content import (
    SCHEMA,
    Head,
    Iteration,
    SearchLog,
    ShardContent,
    WarmStart,
    encode_line,
    parse_shard,
    read_head,
    read_shard,
    whole_lines,
)
from anole.task import Task

logger = logging.getLogger(__name__)

__all__ = ["Shard", "ShardContent", "read_head", "read_shard", "shard_path"]


def shard_path(directory: Path, run: Run) -> Path:
    """Returns the path of a run's shard, which consists of the task's key and the run's key."""
    return directory / run.task_key / f"{run.key}.jsonl"


class Shard:
    """One run's file, open for appending; a context manager, created by `open`.

    Appended data is on the disk when the call returns. The file is locked as long as this process, or a child
    that it forked, holds it open; the lock ends with these processes, even if they are killed.

    Attributes:
        sources: the runs of similar tasks that the run learns from; None until they are looked for.
        space: facts about the task's space; None until they are computed.
    """

    def __init__(self, path: Path, descriptor: int, content: ShardContent, end: int) -> None:
        self.path = path
        self.run, self.task, self.started_at = content.run, content.task, content.started_at
        self._descriptor: int | None = descriptor
        self._end = end
        self._trials = list(content.trials)
        self._confirmations = list(content.confirmations)
        self._iterations = dict(content.iterations)
        self.sources, self.space = content.sources, content.space
        self._measured = set(content.configs)

    @classmethod
    def open(cls, directory: Path, run: Run, task: Task, *, wait: bool = False) -> Self:
        """Opens the run's shard, or creates it.

        A last line that a crash truncated is removed.

        Args:
            directory: the folder of all shards.
            run: the run to resume or to start; a resumed run keeps its stored host and versions.
            task: the task that the run tunes.
            wait: whether to wait if another process has the file open; otherwise this is an error.

        Raises:
            StoreError: the file is in use, cannot be written, is corrupt or belongs to another run.
        """
        if run.task_key != task.key:
            raise StoreError(f"a run of the task {run.task_key} cannot store trials of the task {task.key}")
        path = shard_path(directory, run)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise _unwritable(path, error) from error
        try:
            _lock(descriptor, path, wait)
            content, end = _resume_or_begin(descriptor, path, run, task)
            if content.run.key != run.key:
                raise StoreError(f"{path}: holds the run {content.run.key}, not the one in its name")
            return cls(path, descriptor, content, end)
        except OSError as error:
            os.close(descriptor)
            raise _unwritable(path, error) from error
        except BaseException:
            os.close(descriptor)
            raise

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials of the run, ordered by number."""
        return tuple(self._trials)

    @property
    def confirmations(self) -> tuple[Confirmation, ...]:
        """All confirmations of the run, the oldest first."""
        return tuple(self._confirmations)

    @property
    def iterations(self) -> dict[int, SearchLog]:
        """The search figures of each iteration, by its number."""
        return dict(self._iterations)

    def append_trial(self, trial: Trial) -> None:
        """Stores a trial.

        Raises:
            StoreError: the file cannot be written, the number is not the next one, or the config was measured before.
        """
        line = encode_line(trial, self.path)
        config = canonical_json(trial.config)
        if trial.number != len(self._trials):
            raise StoreError(f"{self.path}: trial {trial.number} comes where {len(self._trials)} is the next")
        if config in self._measured:
            raise StoreError(f"{self.path}: trial {trial.number} measures a config again: {config}")
        self._append(line)
        self._trials.append(trial)
        self._measured.add(config)

    def append_confirmation(self, confirmation: Confirmation) -> None:
        """Stores a confirmation.

        Raises:
            StoreError: the file cannot be written.
        """
        self._append(encode_line(confirmation, self.path))
        self._confirmations.append(confirmation)

    def append_iteration(self, number: int, log: Mapping[str, float]) -> None:
        """Stores the figures of one iteration's search; a figure that is not finite becomes None.

        If an interrupted iteration is searched again, the new figures replace the earlier ones.

        Raises:
            StoreError: the file cannot be written.
        """
        figures = {name: value if math.isfinite(value) else None for name, value in log.items()}
        self._append(encode_line(Iteration(number, figures), self.path))
        self._iterations[number] = figures

    def append_sources(self, sources: Sequence[Source]) -> None:
        """Stores the runs of similar tasks that this run learns from, before its first trial.

        Raises:
            StoreError: the file cannot be written.
        """
        self._append(encode_line(WarmStart(tuple(sources)), self.path))
        self.sources = tuple(sources)

    def append_space(self, facts: SpaceFacts) -> None:
        """Stores facts about the task's space.

        Raises:
            StoreError: the file cannot be written.
        """
        self._append(encode_line(facts, self.path))
        self.space = facts

    def close(self) -> None:
        """Closes the file and releases its lock; closing twice is harmless."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, line: bytes) -> None:
        if self._descriptor is None:
            raise StoreError(f"{self.path}: is closed")
        try:
            _write_durably(self._descriptor, line, self._end)
        except OSError as error:
            self.close()
            raise StoreError(
                f"{self.path}: cannot be written: {error.strerror}; its {len(self._trials)} trials are safe, "
                "and running again continues after them"
            ) from error
        self._end += len(line)


def _lock(descriptor: int, path: Path, wait: bool) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        problem = "is in use: another process is tuning this task with these settings"
        if not wait:
            raise StoreError(f"{path}: {problem}") from error
        logger.warning("%s: %s; waiting for it to end", path, problem)
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _resume_or_begin(descriptor: int, path: Path, run: Run, task: Task) -> tuple[ShardContent, int]:
    """Returns the file's content and its end, after truncating a torn last line or writing the head."""
    data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    whole = whole_lines(data)
    content = parse_shard(path, whole)
    if content is None:
        content = ShardContent(run, task, (), (), (), {}, utc_now())
        whole = encode_line(Head(SCHEMA, content.started_at, run.key, run, task.to_json()), path)
        os.ftruncate(descriptor, 0)
        _write_durably(descriptor, whole, 0)
        sync(path.parent)
        sync(path.parent.parent)
    elif whole != data:
        kept = min(len(data), len(whole))
        os.ftruncate(descriptor, kept)
        _write_durably(descriptor, whole[kept:], kept)
    return content, len(whole)


def _write_durably(descriptor: int, data: bytes, offset: int) -> None:
    """Writes all data or, as far as the disk allows, nothing."""
    try:
        written = 0
        while written < len(data):
            written += os.pwrite(descriptor, data[written:], offset + written)
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, offset)
        raise


def _unwritable(path: Path, error: OSError) -> StoreError:
    return StoreError(f"{path}: cannot be opened for writing: {error.strerror}")
