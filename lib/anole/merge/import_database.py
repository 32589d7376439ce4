"""Reads the runs of a database that somebody else made, as the shards that hold the same; every value is checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar, cast

from anole.codec import DecodeError, decode, json_fields
from anole.errors import StoreError, shown
from anole.keys import canonical_json
from anole.merge.untrusted_database import Entity, Row, UnreadableError, UntrustedDatabase, opened
from anole.record import Confirmation, Run, Source, SpaceFacts, Trial
from anole.store.content import SCHEMA, Head, Iteration, ShardContent, WarmStart, encode_line, parse_shard
from anole.store.lines import Chain
from anole.strict_json import parse_json
from anole.task import Task

T = TypeVar("T")

_OF_TASKS = ("task", "space")
OF_RUNS = ("run", "warm_start", "iteration", "trial", "confirmation")


def read_runs(path: Path) -> Iterator[tuple[ShardContent, bytes]]:
    """Yield the content of every run in a database, and the bytes of a shard that holds it.

    Raises:
        StoreError: the file is missing, damaged, too new or not a database of trials; the message names the table
            and the row.
    """
    with opened(path) as database:
        database.refuse_newer("update Anole")
        if database.missing_tables:
            found = f"it has no table {database.missing_tables[0]}"
            raise UnreadableError(f"{path}: is not a database of trials: {found}")
        runs = Runs(database)
        for (key,), rows in database.entities(*OF_RUNS):
            yield runs.read(key, rows)


def read_models(path: Path) -> list[tuple[str, str, str]]:
    """Return each model, target and task's key of a database that says which models contain which tasks."""
    with opened(path) as database:
        if "model_task" not in database.kinds:
            return []
        found = database.entities("model_task", n_columns=3)
        return [(str(model), str(target), str(key)) for (model, target, key), _ in found]


class Runs:
    """The tasks of a database, and its runs."""

    def __init__(self, database: UntrustedDatabase) -> None:
        self._path, self._place = database.path, str(database.path)
        self._tasks = dict(database.entities(*_OF_TASKS))

    def read(self, key: object, rows: Entity) -> tuple[ShardContent, bytes]:
        """Return a run's content and the bytes of a shard that holds it; raises StoreError if no run has such rows."""
        if not isinstance(key, str):
            raise UnreadableError(f"{self._place}: table run: key is {shown(key)}, not text")
        place, chain = f"{self._place}: run {shown(key)}", Chain.of(key)
        records = self._records(rows, place)
        try:
            data = b"".join(encode_line(record, chain, self._path) for record in records)
            content = parse_shard(self._path, data)
        except StoreError as error:
            # Its cure is that of a shard's line, and a database has none.
            problem = str(error).removeprefix(f"{self._place}:").partition("; nothing was changed")[0].strip()
            raise StoreError(f"{place}: {'record ' if problem[0].isdigit() else ''}{problem}") from error
        assert content is not None, "a run has a first line"
        return content, data

    def task(self, key: object) -> Task:
        """Return a task; raise StoreError if its row is missing, or is of another task."""
        place = f"{self._place}: task {shown(key)}"
        try:
            task = Task.from_json(self._task(key, place))
        except ValueError as error:
            raise StoreError(f"{place}: the task cannot be read ({error})") from error
        if task.key != key:
            raise StoreError(f"{place}: has the key {task.key}")
        return task

    def _records(self, rows: Entity, place: str) -> list[object]:
        """Return a run's head, space, warm start, iterations, trials and confirmations."""
        run = _only("run", rows["run"], place)
        task_key = run.get("task_key")
        head = {"schema": SCHEMA, "task": self._task(task_key, place)}
        plain = _plain(run, json_fields(Run), f"{place}: table run")
        records: list[object] = [_record(Head, {**plain, **head}, f"{place}: table run")]
        records += [_of_row(SpaceFacts, row, f"{place}: table space") for row in self._tasks[(task_key,)]["space"]]
        if rows["warm_start"]:
            records.append(WarmStart(tuple(_source(row, f"{place}: table warm_start") for row in rows["warm_start"])))
        for table, cls in (("iteration", Iteration), ("trial", Trial), ("confirmation", Confirmation)):
            for number, row in enumerate(rows[table]):
                row_place = f"{place}: table {table}, row {number}"
                if table != "iteration" and row.get("number") != number:
                    raise StoreError(f"{row_place}: its number is {shown(row.get('number'))}")
                records.append(_of_row(cls, row, row_place))
        return records

    def _task(self, key: object, place: str) -> Row:
        rows = self._tasks.get((key,), {}).get("task", ())
        if not rows:
            raise StoreError(f"{place}: its task {shown(key)} is not in the table task")
        return _plain(_only("task", rows, place), frozenset({"workload", "target"}), f"{place}: table task")


def _only(table: str, rows: Sequence[Row], place: str) -> Row:
    if len(rows) != 1:
        raise StoreError(f"{place}: table {table}: {len(rows)} rows have the key {shown(rows[0]['key'])}")
    return rows[0]


def _source(row: Row, place: str) -> Source:
    renamed = {name.removeprefix("source_"): value for name, value in row.items() if name != "run_key"}
    return _record(Source, renamed, place)


def _of_row(cls: type[T], row: Row, place: str) -> T:
    return _record(cls, _plain(row, json_fields(cls), place), place)


def _record(cls: type[T], plain: Row, place: str) -> T:
    try:
        return decode(cls, plain)
    except DecodeError as error:
        raise StoreError(f"{place}: {error}") from error


def _plain(row: Row, json_columns: frozenset[str], place: str) -> Row:
    """Return a row with its JSON parsed; what neither JSON nor a file in UTF-8 can hold is refused."""
    plain = dict(row)
    for name in json_columns & row.keys():
        text = row[name]
        if text is None:
            continue
        try:
            plain[name] = parse_json(cast(str, text).encode())
            canonical_json(plain[name]).encode()
        except (ValueError, RecursionError, AttributeError) as error:
            raise StoreError(f"{place}: {name} is {shown(text)}, which is not JSON") from error
    return plain
