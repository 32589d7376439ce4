"""Reads the runs of a database that somebody else made, as the shards that hold the same; every value is checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

from anole.errors import StoreError, shown
from anole.keys import canonical_json
from anole.merge import schema
from anole.merge.guarded import Guarded, UnreadableError, opened
from anole.merge.record_rows import Row
from anole.plain import Misfit, from_plain, json_fields, parse_json
from anole.record import Confirmation, Run, Source, SpaceFacts, Trial
from anole.store.content import SCHEMA, Head, Iteration, ShardContent, WarmStart, encode_line, parse_shard
from anole.store.lines import Chain
from anole.task import Task

T = TypeVar("T")

_KEYS = {
    "task": ("key", "key"),
    "space": ("task_key", "task_key"),
    "run": ("key", "key"),
    "warm_start": ("run_key", "source_run_key"),
    "iteration": ("run_key", "number"),
    "trial": ("run_key", "number"),
    "confirmation": ("run_key", "number"),
}
"""The tables that are read, the column by which each belongs to a task or a run, and the one that orders its rows."""

_OF_RUNS = ("warm_start", "iteration", "trial", "confirmation")


def read_runs(path: Path) -> Iterator[tuple[ShardContent, bytes]]:
    """Yields the content of every run in a database, and the bytes of a shard that holds it.

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
        for table in _KEYS:
            if table in database.kinds:
                database.check(table)
        for key in runs.keys():
            yield runs.read(key)
        runs.refuse_rest()


def read_models(path: Path) -> list[tuple[str, str, str]]:
    """Returns each model, target and task's key of a database that says which models contain which tasks.

    Raises:
        StoreError: the file is missing, damaged or not a database of trials.
    """
    with opened(path) as database:
        if "model_task" not in database.kinds:
            return []
        database.check("model_task")
        found = database.counts("model_task", "model", "target", "task_key")
    return [(str(model), str(target), str(key)) for model, target, key in found]


class Runs:
    """The tasks and runs of a database, read one by one."""

    def __init__(self, database: Guarded) -> None:
        self._database = database
        self._place = str(database.path)

    def keys(self) -> list[str]:
        """Returns the keys of all runs, in order.

        Raises:
            StoreError: the table cannot be read, or one of them is no text.
        """
        keys = [key for (key,) in self._count("run")]
        for key in keys:
            if not isinstance(key, str):
                raise UnreadableError(f"{self._place}: table run: key is {shown(key)}, not text")
        return sorted(keys)

    def read(self, key: str) -> tuple[ShardContent, bytes]:
        """Returns the content of a run, and the bytes of a shard that holds it.

        Raises:
            StoreError: a row cannot be found or read, or holds what no run has.
        """
        place, chain = f"{self._place}: run {shown(key)}", Chain.of(key)
        records = self._records(key, place)
        try:
            data = b"".join(encode_line(record, chain, self._database.path) for record in records)
            content = parse_shard(self._database.path, data)
        except StoreError as error:
            # Its cure is that of a shard's line, and a database has none.
            problem = str(error).removeprefix(f"{self._place}:").partition("; nothing was changed")[0].strip()
            raise StoreError(f"{place}: {'record ' if problem[0].isdigit() else ''}{problem}") from error
        assert content is not None, "a run has a first line"
        return content, data

    def task(self, key: str) -> Task:
        """Returns a task.

        Raises:
            StoreError: its row cannot be found or read, or is of another task.
        """
        place = f"{self._place}: task {shown(key)}"
        try:
            task = Task.from_json(self._task(key, place))
        except ValueError as error:
            raise StoreError(f"{place}: the task cannot be read ({error})") from error
        if task.key != key:
            raise StoreError(f"{place}: has the key {task.key}")
        return task

    def is_sealed(self, key: str) -> bool:
        """Returns whether the lines of a run's shard had checksums; versions before 0.3 did not say it."""
        return self._row("run", key, self._place).get("sealed") == 1

    def refuse_rest(self) -> None:
        """Refuses rows of runs that do not exist.

        Raises:
            StoreError: the message names one.
        """
        for table in _OF_RUNS:
            for rest in self._count(table).keys() - self._count("run").keys():
                raise UnreadableError(
                    f"{self._place}: table {table}: holds rows of {shown(rest[0])}, which is not in the table run"
                )

    def _records(self, key: str, place: str) -> list[object]:
        """Returns a run's head, space, warm start, iterations, trials and confirmations."""
        run = self._row("run", key, place)
        head = {"schema": SCHEMA, "task": self._task(run.get("task_key"), place)}
        plain = _plain(run, json_fields(Run), f"{place}: table run")
        records: list[object] = [_record(Head, {**plain, **head}, f"{place}: table run")]
        if self._count("space")[(run["task_key"],)]:
            records.append(_of_row(SpaceFacts, self._row("space", run["task_key"], place), f"{place}: table space"))
        sources = self._rows("warm_start", key, place)
        if sources:
            records.append(WarmStart(tuple(_source(row, f"{place}: table warm_start") for row in sources)))
        for table, cls in (("iteration", Iteration), ("trial", Trial), ("confirmation", Confirmation)):
            for number, row in enumerate(self._rows(table, key, place)):
                row_place = f"{place}: table {table}, row {number}"
                if table != "iteration" and row.get("number") != number:
                    raise StoreError(f"{row_place}: its number is {shown(row.get('number'))}")
                records.append(_of_row(cls, row, row_place))
        return records

    def _task(self, key: object, place: str) -> Row:
        if not self._count("task")[(key,)]:
            raise StoreError(f"{place}: its task {shown(key)} is not in the table task")
        return _plain(self._row("task", key, place), frozenset({"workload", "target"}), f"{place}: table task")

    def _row(self, table: str, key: object, place: str) -> Row:
        rows = self._rows(table, key, place)
        if len(rows) != 1:
            raise StoreError(f"{place}: table {table}: {len(rows)} rows have the key {shown(key)}")
        return rows[0]

    def _rows(self, table: str, key: object, place: str) -> list[Row]:
        """Returns the rows of a task or a run; all of them, or none and an error."""
        n_rows = self._count(table)[(key,)]
        if not n_rows:
            return []
        columns, (own, second) = self._database.columns(table), _KEYS[table]
        order = second if second in columns else own
        sql = f"select {', '.join(columns)} from {table} where {own} = ? order by {order}"
        rows = [dict(zip(columns, row, strict=True)) for row in self._database.each(sql, key)]
        if len(rows) != n_rows:
            raise UnreadableError(f"{place}: table {table}: has {n_rows} rows, of which an index tells {len(rows)}")
        return cast(list[Row], rows)

    def _count(self, table: str) -> Counter[tuple[Any, ...]]:
        """Returns how many rows of a table each task or run has; a table that an older version lacks has none."""
        is_there = table in self._database.kinds or table in schema.FIRST_TABLES
        return self._database.counts(table, _KEYS[table][0]) if is_there else Counter()


def _source(row: Row, place: str) -> Source:
    renamed = {name.removeprefix("source_"): value for name, value in row.items() if name != "run_key"}
    return _record(Source, renamed, place)


def _of_row(cls: type[T], row: Row, place: str) -> T:
    return _record(cls, _plain(row, json_fields(cls), place), place)


def _record(cls: type[T], plain: Row, place: str) -> T:
    try:
        return from_plain(cls, plain)
    except Misfit as error:
        raise StoreError(f"{place}: {error}") from error


def _plain(row: Row, json_columns: frozenset[str], place: str) -> Row:
    """Returns a row with its JSON parsed; what neither JSON nor a file in UTF-8 can hold is refused."""
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
