"""What a shard holds, and the reading of its lines."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar, cast

from anole.documents.plain import Misfit, from_plain, parse_json, shown, to_plain
from anole.errors import StoreError
from anole.files import read_bytes
from anole.keys import Key, Time, canonical_json
from anole.record import FLAT, Confirmation, Run, Source, SpaceFacts, Trial
from anole.task import Task

T = TypeVar("T")

SCHEMA = 1
"""The version of the lines; a reader refuses newer ones."""

SearchLog = Mapping[str, float | None]
"""Figures of one iteration's search (steps, queries, losses); None where there was no finite figure."""


@dataclass(frozen=True)
class Head:
    """The first line of a shard: whose it is.

    Attributes:
        key: the run's key, which must be the one that follows from its fields.
        task: the task in plain JSON values.
    """

    schema: int
    started_at: Time
    key: Key
    run: Annotated[Run, FLAT]
    task: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True)
class Iteration:
    """The figures of one iteration's search."""

    number: int
    log: SearchLog = field(hash=False)


@dataclass(frozen=True)
class WarmStart:
    """The runs of similar tasks that a run learned from."""

    sources: tuple[Source, ...]


LINES: Mapping[str, type] = {
    "run": Head,
    "trial": Trial,
    "confirmation": Confirmation,
    "iteration": Iteration,
    "space": SpaceFacts,
    "warm_start": WarmStart,
}
"""What a line of a shard holds, by its ``kind``."""

_KINDS = {cls: kind for kind, cls in LINES.items()}


@dataclass(frozen=True)
class ShardContent:
    """One run as its shard tells it.

    Attributes:
        trials: in the order of their numbers, which are 0, 1, 2 and so on.
        configs: the canonical JSON of each trial's config, all different.
        confirmations: in the order in which they were made.
        iterations: number of the iteration to the figures of its search.
        started_at: when the shard was begun.
        sources: the runs of similar tasks that the run learned from; None when it did not look for any.
        space: what the task's space is like; None when that was not asked.
    """

    run: Run
    task: Task
    trials: tuple[Trial, ...]
    configs: tuple[str, ...]
    confirmations: tuple[Confirmation, ...]
    iterations: Mapping[int, SearchLog] = field(hash=False)
    started_at: str
    sources: tuple[Source, ...] | None = None
    space: SpaceFacts | None = None


def read_shard(path: Path) -> ShardContent:
    """Reads one shard; a last line that a crash cut short is left out.

    Raises:
        StoreError: the file cannot be read, a line of it is corrupt, or it holds no run yet.
    """
    content = parse_shard(path, whole_lines(read_bytes(path)))
    if content is None:
        raise StoreError(f"{path}: holds no run: the tuner was stopped before its first line was written")
    return content


def read_head(path: Path) -> tuple[Run, Task] | None:
    """Reads whose shard it is, and nothing else; None when its first line was not written yet.

    Raises:
        StoreError: the file cannot be read, or its first line is corrupt.
    """
    try:
        with path.open("rb") as file:
            first = file.readline()
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    content = parse_shard(path, whole_lines(first))
    return None if content is None else (content.run, content.task)


def whole_lines(data: bytes) -> bytes:
    """Returns a shard's bytes without a last line that a crash cut short, always ending with a newline.

    No part of a JSON object is itself JSON, so a line that lacks only its newline is told from a torn one.
    """
    end = data.rfind(b"\n") + 1
    tail = data[end:]
    try:
        parse_json(tail)
    except ValueError:
        return data[:end]
    return data + b"\n"


def parse_shard(path: Path, data: bytes) -> ShardContent | None:
    """Reads the whole lines of a shard.

    Returns:
        What they hold, or None when there is not one.

    Raises:
        StoreError: a line is corrupt; the message says which, what was found and how to mend the file.
    """
    lines = [_Line(path, number, text) for number, text in enumerate(data.split(b"\n")[:-1], start=1)]
    if not lines:
        return None
    head = lines[0].read(Head)
    run, task = _run_and_task(lines[0], head)
    trials: list[Trial] = []
    confirmations: list[Confirmation] = []
    iterations: dict[int, SearchLog] = {}
    sources: tuple[Source, ...] | None = None
    space: SpaceFacts | None = None
    measured: dict[str, int] = {}
    for line in lines[1:]:
        match line.read(Trial, Confirmation, Iteration, SpaceFacts, WarmStart):
            case Trial() as trial:
                first = measured.setdefault(canonical_json(trial.config), line.number)
                if first != line.number:
                    line.fail(f"the config of line {first} is measured again")
                if trial.number != len(trials):
                    line.fail(f"trial {trial.number} stands where trial {len(trials)} is expected")
                trials.append(trial)
            case Confirmation() as confirmation:
                confirmations.append(confirmation)
            case Iteration(number, log):
                iterations[number] = log
            case SpaceFacts() as facts:
                space = facts
            case WarmStart(sources=found):
                sources = found
    return ShardContent(
        run, task, tuple(trials), tuple(measured), tuple(confirmations), iterations, head.started_at, sources, space
    )


def encode_line(record: Any, path: Path) -> bytes:
    """Returns the line that holds a record of one of the classes in `LINES`, with its newline.

    Raises:
        StoreError: the record holds a value that JSON cannot say; the message names the file that it was for.
    """
    try:
        plain = {"kind": _KINDS[type(record)], **to_plain(record)}
        text = json.dumps(plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise StoreError(f"{path}: a {_KINDS[type(record)]} cannot be stored: {error}") from error
    return text.encode(errors="replace") + b"\n"


@dataclass(frozen=True, slots=True)
class _Line:
    path: Path
    number: int
    text: bytes

    def read(self, *classes: type[T]) -> T:
        """Returns what the line holds, which is of one of the classes."""
        try:
            plain = parse_json(self.text)
        except ValueError:
            self.fail(f"{shown(self.text.decode(errors='replace'))} is not JSON")
        kind = plain.get("kind") if isinstance(plain, dict) else None
        cls = LINES.get(kind) if isinstance(kind, str) else None
        if cls not in classes:
            kinds = [name for name, each in LINES.items() if each in classes]
            self.fail(f"{shown(plain)} is not of the kind {' or '.join(kinds)}")
        if cls is Head and isinstance(plain.get("schema"), int) and plain["schema"] > SCHEMA:
            found = plain["schema"]
            raise StoreError(f"{self.path}: was written by a newer Anole (schema {found}; this one reads {SCHEMA})")
        try:
            return cast(T, from_plain(cls, plain))
        except Misfit as error:
            self.fail(f"{kind}: {error}")

    def fail(self, problem: str) -> NoReturn:
        """Raises the error of this line, with the cure."""
        if self.number == 1:
            cure = "move the file away, and the task is tuned anew"
        else:
            command = f"sed -i '{self.number},$d' {shlex.quote(str(self.path))}"
            cure = f"cut it there ({command}), and what follows is measured again"
        raise StoreError(f"{self.path}:{self.number}: {problem}; nothing was changed. To mend it, {cure}.")


def _run_and_task(line: _Line, head: Head) -> tuple[Run, Task]:
    run = head.run
    try:
        task = Task.from_json(head.task)
        label = task.label
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        line.fail(f"the task cannot be read ({type(error).__name__}: {error})")
    if run.key != head.key:
        line.fail(f"the run's key is {head.key}, its settings have the key {run.key}")
    if task.key != run.task_key:
        line.fail(f"the run is of the task {run.task_key}, but the task {label} has the key {task.key}")
    return run, task
