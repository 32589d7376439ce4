"""The content of a shard: strict parsing and encoding of lines; a corrupt line raises a StoreError with its number."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar, cast

from anole.codec import FLAT, DecodeError, decode, encode
from anole.errors import StoreError, shown
from anole.files import read_bytes
from anole.keys import Key, Time, canonical_json
from anole.record import Confirmation, Remeasurement, Run, Source, SpaceFacts, Trial
from anole.store.checks import find_problem
from anole.store.lines import Chain, checksum_of, complete_lines, strip_checksum
from anole.strict_json import parse_json, parse_record
from anole.task import Task

T = TypeVar("T")

SCHEMA = 2
"""Schema version of the lines; newer versions are rejected. Since version 2, every line has a checksum."""

SearchLog = Mapping[str, float | None]
"""Metrics of one iteration's search (steps, queries, losses); None replaces values that are not finite."""


@dataclass(frozen=True)
class Head:
    """The first line of a shard: the run, whose key must match its fields, and the task as plain JSON values."""

    schema: int
    started_at: Time
    key: Key
    run: Annotated[Run, FLAT]
    task: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True)
class Iteration:
    """The metrics of one iteration's search."""

    number: int
    log: SearchLog = field(hash=False)


@dataclass(frozen=True)
class WarmStart:
    """The runs of similar tasks that this run learned from."""

    sources: tuple[Source, ...]


LINES: Mapping[str, type] = {
    "run": Head,
    "trial": Trial,
    "again": Remeasurement,
    "confirmation": Confirmation,
    "iteration": Iteration,
    "space": SpaceFacts,
    "warm_start": WarmStart,
}
"""Record classes by the ``kind`` of a line."""

_KIND_NAMES = {cls: kind for kind, cls in LINES.items()}

_MAX_LINE_BYTES = 1 << 24
"""Maximum length of a shard's first line in `read_head`."""


@dataclass(frozen=True)
class ShardContent:
    """The content of one run's shard.

    Attributes:
        trials: ordered by number from 0, each with its latest measurement.
        configs: the canonical JSON of each trial's config, without duplicates.
        confirmations: oldest first.
        sources: the runs of similar tasks that the run learned from; None if it did not look for any.
        space: facts about the task's space; None if they were not computed.
        sealed: whether every line has a checksum; lines of older versions have none.
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
    sealed: bool = True

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the recorded content in hexadecimal, independent of how it is stored.

        It covers neither the facts of the space, which belong to the task, nor measurements that were replaced later.
        """
        digest = sha256()
        for record in self.records():
            if not isinstance(record, SpaceFacts):
                digest.update(canonical_json([_KIND_NAMES[type(record)], encode(record)]).encode(errors="replace"))
        return digest.hexdigest()

    def records(self) -> Iterator[Any]:
        """Yield the records of a new shard with this content, in the order of its lines."""
        yield Head(SCHEMA, self.started_at, self.run.key, self.run, self.task.to_json())
        if self.space is not None:
            yield self.space
        if self.sources is not None:
            yield WarmStart(self.sources)
        for number, log in sorted(self.iterations.items()):
            yield Iteration(number, log)
        yield from self.trials
        yield from self.confirmations

    def continues(self, other: ShardContent) -> bool:
        """Whether this is the same or a later state of the same run, with the other's trials and confirmations."""
        n_trials, n_confirmations = len(other.trials), len(other.confirmations)
        return (
            self.run.key == other.run.key
            and self.trials[:n_trials] == other.trials
            and self.confirmations[:n_confirmations] == other.confirmations
        )


@dataclass
class Recorded:
    """The mutable content of a shard while it is read or appended to.

    Attributes:
        chain: the checksum of all lines so far.
        configs: the number of the line or trial that measured each config, by the config's canonical JSON.
        sealed, sources, space: as in `ShardContent`.
    """

    run: Run
    task: Task
    started_at: str
    chain: Chain
    sealed: bool = True
    trials: list[Trial] = field(default_factory=list)
    configs: dict[str, int] = field(default_factory=dict)
    confirmations: list[Confirmation] = field(default_factory=list)
    iterations: dict[int, SearchLog] = field(default_factory=dict)
    sources: tuple[Source, ...] | None = None
    space: SpaceFacts | None = None

    def add(self, record: object) -> None:
        """Add the next record; the caller adds the config of a trial to `configs`."""
        match record:
            case Trial():
                self.trials.append(record)
            case Remeasurement(number, measurement, gflops, time):
                self.trials[number] = replace(
                    self.trials[number], measurement=measurement, gflops=gflops, created_at=time
                )
            case Confirmation():
                self.confirmations.append(record)
            case Iteration(number, log):
                self.iterations[number] = log
            case SpaceFacts():
                self.space = record
            case WarmStart(sources):
                self.sources = sources

    def content(self) -> ShardContent:
        """Return the immutable content."""
        lists = tuple(self.trials), tuple(self.configs), tuple(self.confirmations)
        metadata = self.sources, self.space, self.sealed
        return ShardContent(self.run, self.task, *lists, dict(self.iterations), self.started_at, *metadata)


def read_stored(path: Path) -> tuple[ShardContent, bytes] | None:
    """Return a shard's content and its complete lines; None if a crash left no complete line."""
    data = complete_lines(read_bytes(path))
    content = parse_shard(path, data)
    return None if content is None else (content, data)


def read_shard(path: Path) -> ShardContent:
    """Read a shard, which must contain a run; a last line truncated by a crash is ignored."""
    shard = read_stored(path)
    if shard is None:
        raise StoreError(f"{path}: holds no run, because the tuner stopped before it wrote the first line")
    return shard[0]


def read_head(path: Path) -> tuple[Run, Task] | None:
    """Return the run and the task of a shard without reading the rest; None if it has no complete line yet."""
    try:
        with path.open("rb") as file:
            first = file.readline(_MAX_LINE_BYTES)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    content = parse_shard(path, complete_lines(first))
    return None if content is None else (content.run, content.task)


def parse_shard(path: Path, data: bytes) -> ShardContent | None:
    """Parse the lines of a shard that `complete_lines` returns; return None if there are none.

    Raises:
        StoreError: a line is corrupt; the message names the line, the problem and the repair.
    """
    recorded = parse_recorded(path, data)
    return None if recorded is None else recorded.content()


def parse_recorded(path: Path, data: bytes) -> Recorded | None:
    """Parse the lines of a shard as `parse_shard` does, into an object that can be appended to."""
    lines = _split_lines(path, data)
    if not lines:
        return None
    head = lines[0].read(Head)
    chain, sealed = _verify(lines, head)
    recorded = Recorded(*_run_and_task(lines[0], head), head.started_at, chain, sealed)
    trials, flop = recorded.trials, recorded.task.workload.flop
    for line in lines[1:]:
        record = line.read(Trial, Remeasurement, Confirmation, Iteration, SpaceFacts, WarmStart)
        match record:
            case Trial():
                first_line = recorded.configs.setdefault(line.canonical(record.config), line.number)
                if first_line != line.number:
                    line.fail(f"the config of line {first_line} is measured again")
                if record.number != len(trials):
                    line.fail(f"found trial {record.number}; expected trial {len(trials)}")
            case Remeasurement(number):
                if not 0 <= number < len(trials):
                    line.fail(f"trial {number} is measured again; there are only {len(trials)} trials")
            case Confirmation(config=mapping) | Iteration(log=mapping):
                line.canonical(mapping)
        if (problem := find_problem(record, flop)) is not None:
            line.fail(problem)
        recorded.add(record)
    return recorded


def encode_line(record: Any, chain: Chain, path: Path) -> bytes:
    """Return a record as a line with checksum and newline; the chain then includes the line.

    Raises StoreError, without changing the chain, for a record that could not be read back.
    """
    try:
        plain = {"kind": _KIND_NAMES[type(record)], **encode(record)}
        text = json.dumps(plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode(errors="replace")
        parse_json(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"{path}: a {_KIND_NAMES[type(record)]} cannot be stored: {error}") from error
    return chain.seal(text) + b"\n"


def encode_shard(content: ShardContent, path: Path) -> bytes:
    """Return the bytes of a shard with this content."""
    chain = Chain.of(content.run.key)
    return b"".join(encode_line(record, chain, path) for record in content.records())


def seal_lines(content: ShardContent, data: bytes) -> bytes:
    """Return a shard's complete lines with the current schema and checksums, which older lines may not have."""
    chain = Chain.of(content.run.key)
    head, *lines = [strip_checksum(text) for text in data.split(b"\n")[:-1]]
    head = json.dumps({**json.loads(head), "schema": SCHEMA}, separators=(",", ":"), ensure_ascii=False).encode()
    return b"".join(chain.seal(text) + b"\n" for text in (head, *lines))


@dataclass(frozen=True, slots=True)
class _Line:
    path: Path
    number: int
    text: bytes
    n_after: int

    def read(self, *classes: type[T]) -> T:
        """Decode the line's record, which must be an instance of one of the classes."""
        plain = self.plain()
        kind = plain.get("kind") if isinstance(plain, dict) else None
        cls = LINES.get(kind) if isinstance(kind, str) else None
        if cls not in classes:
            kinds = [name for name, record_class in LINES.items() if record_class in classes]
            self.fail(f"{shown(plain)} is not a record of kind {', '.join(kinds)}")
        if cls is Head and isinstance(plain.get("schema"), int) and plain["schema"] > SCHEMA:
            schema = plain["schema"]
            raise StoreError(f"{self.path}: was written by a newer Anole (schema {schema}; this one reads {SCHEMA})")
        try:
            return cast(T, decode(cls, plain))
        except DecodeError as error:
            self.fail(f"{kind}: {error}")

    def plain(self) -> Any:
        """Parse the line's JSON."""
        try:
            return parse_json(self.text) if self.number == 1 else parse_record(self.text)
        except ValueError as error:
            self.fail(f"{shown(self.text.decode(errors='replace'))} cannot be read: {error}")

    def canonical(self, mapping: Mapping[str, Any]) -> str:
        """Return the canonical JSON of a config or log, whose numbers must be finite."""
        try:
            return canonical_json(mapping)
        except ValueError as error:
            self.fail(str(error))

    def fail(self, problem: str) -> NoReturn:
        """Raise an error for this line that says how to repair the file."""
        if self.number == 1:
            remedy = "move the file away; then the task is tuned again"
        else:
            command = f"sed -i.damaged '{self.number},$d' {shlex.quote(str(self.path))}"
            remedy = (
                f"truncate it there ({command}), which keeps a copy; the trials of this line and the {self.n_after} "
                "lines after it are then measured again"
            )
        raise StoreError(f"{self.path}:{self.number}: {problem}; nothing was changed. To repair the file, {remedy}.")


def _split_lines(path: Path, data: bytes) -> list[_Line]:
    texts = data.split(b"\n")[:-1]
    return [_Line(path, number, text, len(texts) - number) for number, text in enumerate(texts, start=1)]


def _verify(lines: Sequence[_Line], head: Head) -> tuple[Chain, bool]:
    """Verify all checksums; return the chain, and whether every line has a checksum.

    In a shard of schema 1, the first lines may have no checksum.
    """
    chain, is_required, is_sealed = Chain.of(head.key), head.schema > 1, True
    for line in lines:
        has_checksum = checksum_of(line.text) is not None
        problem = "has no checksum" if is_required and not has_checksum else None
        if not chain.follow(line.text):
            problem = "has a wrong checksum: it was changed, moved, or copied from another run"
        if problem is not None:
            line.fail(f"{shown(line.plain())} {problem}")
        is_required, is_sealed = is_required or has_checksum, is_sealed and has_checksum
    return chain, is_sealed


def _run_and_task(line: _Line, head: Head) -> tuple[Run, Task]:
    run = head.run
    try:
        task = Task.from_json(head.task)
        label = task.label
    except ValueError as error:
        line.fail(f"the task cannot be read ({error})")
    if run.key != head.key:
        line.fail(f"the run's key is {head.key}, but its settings have the key {run.key}")
    if task.key != run.task_key:
        line.fail(f"the run is of the task {run.task_key}, but the task {label} has the key {task.key}")
    return run, task
