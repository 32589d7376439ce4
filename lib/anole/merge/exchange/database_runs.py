"""Read the runs of an untrusted database as shards with the same content; every value is checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar, cast

from anole.codec import DecodeError, decode, json_fields
from anole.errors import StoreError, shown
from anole.keys import canonical_json
from anole.merge.untrusted_database import Entity, Row, UnreadableError, UntrustedDatabase, open_database
from anole.record import Confirmation, Run, Source, SpaceFacts, Trial
from anole.store.content import SCHEMA, Head, Iteration, ShardContent, WarmStart, encode_line, parse_shard
from anole.store.lines import Chain
from anole.strict_json import parse_json
from anole.task import Task

T = TypeVar("T")

_TASK_TABLES = ("task", "space")
RUN_TABLES = ("run", "warm_start", "iteration", "trial", "confirmation")


def read_runs(path: Path) -> Iterator[tuple[ShardContent, bytes]]:
    """Yield each run of a database: its content, and the bytes of a shard with that content.

    Raises:
        StoreError: the file is missing, damaged, from a newer Anole, or not a database of trials; the message names the
            table and the row.
    """
    with open_database(path) as database:
        database.check_version("update Anole")
        if database.missing_tables:
            problem = f"it has no table {database.missing_tables[0]}"
            raise UnreadableError(f"{path}: is not a database of trials: {problem}")
        runs = Runs(database)
        for (key,), rows in database.entities(*RUN_TABLES):
            yield runs.read(key, rows)


def read_models(path: Path) -> list[tuple[str, str, str]]:
    """Return the model, target and key of each task that a database lists for a model."""
    with open_database(path) as database:
        if "model_task" not in database.kinds:
            return []
        entities = database.entities("model_task", n_columns=3)
        return [(str(model), str(target), str(key)) for (model, target, key), _ in entities]


class Runs:
    """A decoder of a database's tasks and runs."""

    def __init__(self, database: UntrustedDatabase) -> None:
        self._path, self._where = database.path, str(database.path)
        self._tasks = dict(database.entities(*_TASK_TABLES))

    def read(self, key: object, rows: Entity) -> tuple[ShardContent, bytes]:
        """Return a run's content and the bytes of its shard; raise StoreError if the rows are invalid."""
        if not isinstance(key, str):
            raise UnreadableError(f"{self._where}: table run: key is {shown(key)}, not text")
        where, chain = f"{self._where}: run {shown(key)}", Chain.of(key)
        records = self._records(rows, where)
        try:
            data = b"".join(encode_line(record, chain, self._path) for record in records)
            content = parse_shard(self._path, data)
        except StoreError as error:
            # The message ends with advice to repair a shard, which does not apply to a database.
            problem = str(error).removeprefix(f"{self._where}:").partition("; nothing was changed")[0].strip()
            raise StoreError(f"{where}: {'record ' if problem[0].isdigit() else ''}{problem}") from error
        assert content is not None, "a run has a first line"
        return content, data

    def task(self, key: object) -> Task:
        """Return a task; raise StoreError if its row is missing or invalid."""
        where = f"{self._where}: task {shown(key)}"
        try:
            task = Task.from_json(self._task(key, where))
        except ValueError as error:
            raise StoreError(f"{where}: the task cannot be read ({error})") from error
        if task.key != key:
            raise StoreError(f"{where}: has the key {task.key}")
        return task

    def _records(self, rows: Entity, where: str) -> list[object]:
        """Decode a run's head, space, warm start, iterations, trials and confirmations."""
        run = _only_row("run", rows["run"], where)
        task_key = run.get("task_key")
        head = {"schema": SCHEMA, "task": self._task(task_key, where)}
        fields = _parse_columns(run, json_fields(Run), f"{where}: table run")
        records: list[object] = [_decode(Head, {**fields, **head}, f"{where}: table run")]
        records += [_decode_row(SpaceFacts, row, f"{where}: table space") for row in self._tasks[(task_key,)]["space"]]
        if rows["warm_start"]:
            records.append(
                WarmStart(tuple(_to_source(row, f"{where}: table warm_start") for row in rows["warm_start"]))
            )
        for table, cls in (("iteration", Iteration), ("trial", Trial), ("confirmation", Confirmation)):
            for number, row in enumerate(rows[table]):
                row_where = f"{where}: table {table}, row {number}"
                if table != "iteration" and row.get("number") != number:
                    raise StoreError(f"{row_where}: its number is {shown(row.get('number'))}")
                records.append(_decode_row(cls, row, row_where))
        return records

    def _task(self, key: object, where: str) -> Row:
        rows = self._tasks.get((key,), {}).get("task", ())
        if not rows:
            raise StoreError(f"{where}: its task {shown(key)} is not in the table task")
        return _parse_columns(_only_row("task", rows, where), frozenset({"workload", "target"}), f"{where}: table task")


def _only_row(table: str, rows: Sequence[Row], where: str) -> Row:
    if len(rows) != 1:
        raise StoreError(f"{where}: table {table}: {len(rows)} rows have the key {shown(rows[0]['key'])}")
    return rows[0]


def _to_source(row: Row, where: str) -> Source:
    fields = {name.removeprefix("source_"): value for name, value in row.items() if name != "run_key"}
    return _decode(Source, fields, where)


def _decode_row(cls: type[T], row: Row, where: str) -> T:
    return _decode(cls, _parse_columns(row, json_fields(cls), where), where)


def _decode(cls: type[T], fields: Row, where: str) -> T:
    try:
        return decode(cls, fields)
    except DecodeError as error:
        raise StoreError(f"{where}: {error}") from error


def _parse_columns(row: Row, json_columns: frozenset[str], where: str) -> Row:
    """Return a row with its JSON parsed; raise StoreError for a value that cannot be stored as JSON in UTF-8."""
    fields = dict(row)
    for name in json_columns & row.keys():
        text = row[name]
        if text is None:
            continue
        try:
            fields[name] = parse_json(cast(str, text).encode())
            canonical_json(fields[name]).encode()
        except (ValueError, RecursionError, AttributeError) as error:
            raise StoreError(f"{where}: {name} is {shown(text)}, which is not JSON") from error
    return fields
