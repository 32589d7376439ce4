"""The content of a shard: the records of its lines, read strictly; what is corrupt is a StoreError with its line."""

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
from anole.store.checks import problem_of
from anole.store.lines import Chain, checksum_of, complete_lines, without_checksum
from anole.strict_json import parse_json, parse_record
from anole.task import Task

T = TypeVar("T")

SCHEMA = 2
"""Schema version of the lines; a reader rejects newer versions. Every line has a checksum since version 2."""

SearchLog = Mapping[str, float | None]
"""Figures of one iteration's search (steps, queries, losses); None stands for a figure that is not finite."""


@dataclass(frozen=True)
class Head:
    """The first line of a shard: its run, whose fields must have the given key, and its task in plain JSON values."""

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
    "again": Remeasurement,
    "confirmation": Confirmation,
    "iteration": Iteration,
    "space": SpaceFacts,
    "warm_start": WarmStart,
}
"""The class of a shard line's record, by the line's ``kind``."""

_KINDS = {cls: kind for kind, cls in LINES.items()}

_LONGEST_LINE = 1 << 24
"""Number of bytes within which a shard's first line ends."""


@dataclass(frozen=True)
class ShardContent:
    """The content of one run's shard.

    Attributes:
        trials: the trials, ordered by their numbers 0, 1, 2 and so on, each with its latest measurement.
        configs: the canonical JSON of each trial's config, all different.
        confirmations: the confirmations, oldest first.
        sources: the runs of similar tasks that the run learned from; None if it did not look for any.
        space: facts about the task's space; None if they were not computed.
        sealed: whether every line has a checksum, as all have that this version writes.
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
        """SHA-256 over what was recorded, in hexadecimal; the same however it is stored.

        It leaves out the facts of the space, which belong to the task, and what trials that were measured again were
        before.
        """
        digest = sha256()
        for record in self.records():
            if not isinstance(record, SpaceFacts):
                digest.update(canonical_json([_KINDS[type(record)], encode(record)]).encode(errors="replace"))
        return digest.hexdigest()

    def records(self) -> Iterator[Any]:
        """Yield the records of a shard with this content, in the order of its lines."""
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
        """Whether this is a later state of the same run: it holds all that the other one holds."""
        n_trials, n_confirmations = len(other.trials), len(other.confirmations)
        return (
            self.run.key == other.run.key
            and self.trials[:n_trials] == other.trials
            and self.confirmations[:n_confirmations] == other.confirmations
        )


@dataclass
class Recorded:
    """What a run has recorded so far, while its shard is read or appended to.

    Attributes:
        chain: the checksum of all lines so far.
        configs: where each config was measured: the number of a line or of a trial, by the config's canonical JSON.
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
        """Add a record that follows those before it; the config of a trial is already among the configs."""
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
        """Return it as the content of a shard."""
        lists = tuple(self.trials), tuple(self.configs), tuple(self.confirmations)
        others = self.sources, self.space, self.sealed
        return ShardContent(self.run, self.task, *lists, dict(self.iterations), self.started_at, *others)


def read_stored(path: Path) -> tuple[ShardContent, bytes] | None:
    """Return a shard's content and its whole lines, or None if a crash left it without any."""
    data = complete_lines(read_bytes(path))
    content = parse_shard(path, data)
    return None if content is None else (content, data)


def read_shard(path: Path) -> ShardContent:
    """Read one shard, which must hold a run; a last line that a crash truncated is ignored."""
    stored = read_stored(path)
    if stored is None:
        raise StoreError(f"{path}: holds no run: the tuner was stopped before it wrote the first line")
    return stored[0]


def read_head(path: Path) -> tuple[Run, Task] | None:
    """Return only the run and the task of a shard; None if its first line is not written yet."""
    try:
        with path.open("rb") as file:
            first = file.readline(_LONGEST_LINE)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    content = parse_shard(path, complete_lines(first))
    return None if content is None else (content.run, content.task)


def parse_shard(path: Path, data: bytes) -> ShardContent | None:
    """Parse the complete lines of a shard, as `complete_lines` returns them; returns None if there are none.

    Raises:
        StoreError: a line is corrupt; the message says which, what was found and how to repair the file.
    """
    recorded = parse_recorded(path, data)
    return None if recorded is None else recorded.content()


def parse_recorded(path: Path, data: bytes) -> Recorded | None:
    """Parse the complete lines of a shard as `parse_shard` does, to append further ones."""
    lines = _lines(path, data)
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
                first = recorded.configs.setdefault(line.canonical(record.config), line.number)
                if first != line.number:
                    line.fail(f"the config of line {first} is measured again")
                if record.number != len(trials):
                    line.fail(f"trial {record.number} stands where trial {len(trials)} is expected")
            case Remeasurement(number):
                if not 0 <= number < len(trials):
                    line.fail(f"trial {number} is measured again; there are {len(trials)}")
            case Confirmation(config=mapping) | Iteration(log=mapping):
                line.canonical(mapping)
        if (problem := problem_of(record, flop)) is not None:
            line.fail(problem)
        recorded.add(record)
    return recorded


def encode_line(record: Any, chain: Chain, path: Path) -> bytes:
    """Return the line of a record, with its checksum and its newline; the chain then includes this line.

    A record with a value that could not be read back raises a StoreError, and leaves the chain as it is.
    """
    try:
        plain = {"kind": _KINDS[type(record)], **encode(record)}
        text = json.dumps(plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode(errors="replace")
        parse_json(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"{path}: a {_KINDS[type(record)]} cannot be stored: {error}") from error
    return chain.seal(text) + b"\n"


def encode_shard(content: ShardContent, path: Path) -> bytes:
    """Return the bytes of a shard with this content."""
    chain = Chain.of(content.run.key)
    return b"".join(encode_line(record, chain, path) for record in content.records())


def seal_lines(content: ShardContent, data: bytes) -> bytes:
    """Return a shard's whole lines with checksums, where lines of an older version have none."""
    chain = Chain.of(content.run.key)
    head, *others = [without_checksum(text) for text in data.split(b"\n")[:-1]]
    head = json.dumps({**json.loads(head), "schema": SCHEMA}, separators=(",", ":"), ensure_ascii=False).encode()
    return b"".join(chain.seal(text) + b"\n" for text in (head, *others))


@dataclass(frozen=True, slots=True)
class _Line:
    path: Path
    number: int
    text: bytes
    n_after: int

    def read(self, *classes: type[T]) -> T:
        """Return the line's record, which must be of one of the classes."""
        plain = self.plain()
        kind = plain.get("kind") if isinstance(plain, dict) else None
        cls = LINES.get(kind) if isinstance(kind, str) else None
        if cls not in classes:
            kinds = [name for name, each in LINES.items() if each in classes]
            self.fail(f"{shown(plain)} is not of the kind {' or '.join(kinds)}")
        if cls is Head and isinstance(plain.get("schema"), int) and plain["schema"] > SCHEMA:
            found = plain["schema"]
            raise StoreError(f"{self.path}: was written by a newer Anole (schema {found}; this one reads {SCHEMA})")
        try:
            return cast(T, decode(cls, plain))
        except DecodeError as error:
            self.fail(f"{kind}: {error}")

    def plain(self) -> Any:
        """Return the line's JSON value."""
        try:
            return parse_json(self.text) if self.number == 1 else parse_record(self.text)
        except ValueError as error:
            self.fail(f"{shown(self.text.decode(errors='replace'))} cannot be read: {error}")

    def canonical(self, mapping: Mapping[str, Any]) -> str:
        """Return the canonical JSON of a config or a log, which must hold finite numbers only."""
        try:
            return canonical_json(mapping)
        except ValueError as error:
            self.fail(str(error))

    def fail(self, problem: str) -> NoReturn:
        """Raise the error of this line, which says how to repair the file."""
        if self.number == 1:
            cure = "move the file away, and the task is tuned again"
        else:
            command = f"sed -i.damaged '{self.number},$d' {shlex.quote(str(self.path))}"
            cure = (
                f"cut it there ({command}), which keeps a copy of the whole; what this line and the {self.n_after} "
                "after it held is measured again"
            )
        raise StoreError(f"{self.path}:{self.number}: {problem}; nothing was changed. To mend it, {cure}.")


def _lines(path: Path, data: bytes) -> list[_Line]:
    texts = data.split(b"\n")[:-1]
    return [_Line(path, number, text, len(texts) - number) for number, text in enumerate(texts, start=1)]


def _verify(lines: Sequence[_Line], head: Head) -> tuple[Chain, bool]:
    """Compare all checksums; return the last one, and whether every line has one.

    The first lines of a shard of the first schema may have none.
    """
    chain, required, is_all = Chain.of(head.key), head.schema > 1, True
    for line in lines:
        has_one = checksum_of(line.text) is not None
        problem = "has no checksum" if required and not has_one else None
        if not chain.follow(line.text):
            problem = "has a wrong checksum: it was changed, or it belongs to another place or another run"
        if problem is not None:
            line.fail(f"{shown(line.plain())} {problem}")
        required, is_all = required or has_one, is_all and has_one
    return chain, is_all


def _run_and_task(line: _Line, head: Head) -> tuple[Run, Task]:
    run = head.run
    try:
        task = Task.from_json(head.task)
        label = task.label
    except ValueError as error:
        line.fail(f"the task cannot be read ({error})")
    if run.key != head.key:
        line.fail(f"the run's key is {head.key}, its settings have the key {run.key}")
    if task.key != run.task_key:
        line.fail(f"the run is of the task {run.task_key}, but the task {label} has the key {task.key}")
    return run, task
