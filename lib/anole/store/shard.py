"""The shard: one run's append-only file of JSON lines, on the disk before a trial counts as measured."""

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
    """Returns where a run's shard is: named by its task's key and its own."""
    return directory / run.task_key / f"{run.key}.jsonl"


class Shard:
    """One run's file, held open for appending; a context manager, made by `open`.

    What was appended is on the disk when the call returns. The file is locked as long as this process, or a
    child that it forked, holds it; the lock ends with them, however they end.

    Attributes:
        sources: the runs of similar tasks that the run learns from; None as long as none were looked for.
        space: what the task's space is like; None as long as that was not asked.
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
        """Opens the run's shard, or begins it.

        A last line that a crash cut short is cut off.

        Args:
            directory: of all shards.
            run: what is resumed or begun; of a resumed run, the stored host and versions stay.
            task: what the run tunes.
            wait: for another process that has the file open to end, instead of an error.

        Raises:
            StoreError: the file is in use, cannot be written, is corrupt or is another run's.
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
                raise StoreError(f"{path}: holds the run {content.run.key}, not the one it is named by")
            return cls(path, descriptor, content, end)
        except OSError as error:
            os.close(descriptor)
            raise _unwritable(path, error) from error
        except BaseException:
            os.close(descriptor)
            raise

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials of the run, by number."""
        return tuple(self._trials)

    @property
    def confirmations(self) -> tuple[Confirmation, ...]:
        """All confirmations of the run, the oldest first."""
        return tuple(self._confirmations)

    @property
    def iterations(self) -> dict[int, SearchLog]:
        """Number of each iteration to the figures of its search."""
        return dict(self._iterations)

    def append_trial(self, trial: Trial) -> None:
        """Stores a trial.

        Raises:
            StoreError: it cannot be written, its number is not the next, or its config was measured before.
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
            StoreError: it cannot be written.
        """
        self._append(encode_line(confirmation, self.path))
        self._confirmations.append(confirmation)

    def append_iteration(self, number: int, log: Mapping[str, float]) -> None:
        """Stores the figures of one iteration's search; a figure that is not finite becomes None.

        An iteration that was interrupted and searched again replaces its earlier figures.

        Raises:
            StoreError: they cannot be written.
        """
        figures = {name: value if math.isfinite(value) else None for name, value in log.items()}
        self._append(encode_line(Iteration(number, figures), self.path))
        self._iterations[number] = figures

    def append_sources(self, sources: Sequence[Source]) -> None:
        """Stores which runs of similar tasks this run learns from, before its first trial.

        Raises:
            StoreError: they cannot be written.
        """
        self._append(encode_line(WarmStart(tuple(sources)), self.path))
        self.sources = tuple(sources)

    def append_space(self, facts: SpaceFacts) -> None:
        """Stores what the task's space is like.

        Raises:
            StoreError: it cannot be written.
        """
        self._append(encode_line(facts, self.path))
        self.space = facts

    def close(self) -> None:
        """Lets go of the file and its lock; closing twice is harmless."""
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
    """Returns what the file holds and where it ends, after its end was mended or its head written."""
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
    """Writes all or, as far as the disk lets it, nothing."""
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
