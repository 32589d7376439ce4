"""The content of a shard, and the reader and writer of its lines."""

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
"""Schema version of the lines; a reader rejects newer versions."""

SearchLog = Mapping[str, float | None]
"""Figures of one iteration's search (steps, queries, losses); None stands for a figure that is not finite."""


@dataclass(frozen=True)
class Head:
    """The first line of a shard: its run and task.

    Attributes:
        key: the run's key, which must match the key computed from the run's fields.
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
    """The runs of similar tasks that this run learned from."""

    sources: tuple[Source, ...]


LINES: Mapping[str, type] = {
    "run": Head,
    "trial": Trial,
    "confirmation": Confirmation,
    "iteration": Iteration,
    "space": SpaceFacts,
    "warm_start": WarmStart,
}
"""The class of a shard line's record, by the line's ``kind``."""

_KINDS = {cls: kind for kind, cls in LINES.items()}


@dataclass(frozen=True)
class ShardContent:
    """The content of one run's shard.

    Attributes:
        trials: the trials, ordered by their numbers 0, 1, 2 and so on.
        configs: the canonical JSON of each trial's config, all different.
        confirmations: the confirmations, oldest first.
        iterations: the search figures of each iteration, by its number.
        started_at: when the shard was created.
        sources: the runs of similar tasks that the run learned from; None if it did not look for any.
        space: facts about the task's space; None if they were not computed.
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
    """Reads one shard; a last line that a crash truncated is ignored.

    Raises:
        StoreError: the file cannot be read, a line is corrupt, or it holds no run yet.
    """
    content = parse_shard(path, whole_lines(read_bytes(path)))
    if content is None:
        raise StoreError(f"{path}: holds no run: the tuner was stopped before it wrote the first line")
    return content


def read_head(path: Path) -> tuple[Run, Task] | None:
    """Returns only the run and the task of a shard; None if its first line is not written yet.

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
    """Returns a shard's bytes without a last line that a crash truncated; the result ends with a newline.

    No proper prefix of a JSON object is valid JSON, so a line that lacks only its newline differs from a torn one.
    """
    end = data.rfind(b"\n") + 1
    tail = data[end:]
    try:
        parse_json(tail)
    except ValueError:
        return data[:end]
    return data + b"\n"


def parse_shard(path: Path, data: bytes) -> ShardContent | None:
    """Parses the complete lines of a shard.

    Returns:
        Their content, or None if there are no lines.

    Raises:
        StoreError: a line is corrupt; the message says which, what was found and how to repair the file.
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
    """Returns the line of a record of one of the classes in `LINES`, with its newline.

    Raises:
        StoreError: the record holds a value that JSON cannot represent; the message names the shard's path.
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
        """Returns the line's record, which must be of one of the classes."""
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
        """Raises the error of this line, which says how to repair the file."""
        if self.number == 1:
            cure = "move the file away, and the task is tuned again"
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
