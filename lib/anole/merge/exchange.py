"""Imports records from another machine: the runs of a database or of a folder of shards become shards here."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from anole.errors import StoreError
from anole.files import read_bytes, write_atomically
from anole.merge.record_rows import Row, plain_of, record_of
from anole.record import Confirmation, Run, Source, SpaceFacts, Trial
from anole.store.content import SCHEMA, Head, Iteration, ShardContent, WarmStart, encode_line, parse_shard, whole_lines
from anole.store.shard import Shard, shard_path

_TASK_JSON = frozenset({"workload", "target"})
"""Columns of the table ``task`` that hold JSON."""


@dataclass(frozen=True)
class TakenOver:
    """The result of an import.

    Attributes:
        runs: number of imported runs: those that were new, or longer than the local ones.
        known: number of runs that were already here, as long or longer.
        trials: number of trials of the imported runs.
    """

    runs: int
    known: int
    trials: int


def import_records(source: Path, shards_dir: Path) -> TakenOver:
    """Imports all runs of a database or of a folder of shards; of two states of a run, the longer one is kept.

    A tuner that is working on one of the runs is not disturbed, because it holds the lock of the run's shard.

    Args:
        source: a ``tuning.sqlite``, or a folder such as ``db/shards``.
        shards_dir: the folder of all local shards.

    Raises:
        StoreError: the source is missing or corrupt, or a local shard is in use or cannot be written.
    """
    runs = known = trials = 0
    for content, data in _shards(source) if source.is_dir() else _runs(source):
        if _take_over(content, data, shards_dir):
            runs, trials = runs + 1, trials + len(content.trials)
        else:
            known += 1
    return TakenOver(runs, known, trials)


def _take_over(content: ShardContent, data: bytes, shards_dir: Path) -> bool:
    """Writes a run's shard, unless the local one holds as many trials and confirmations."""
    with Shard.open(shards_dir, content.run, content.task) as mine:
        longer = (len(content.trials), len(content.confirmations)) > (len(mine.trials), len(mine.confirmations))
        if longer:
            write_atomically(shard_path(shards_dir, content.run), data.decode())
    return longer


def _shards(folder: Path) -> Iterator[tuple[ShardContent, bytes]]:
    """Yields the content and the lines of every shard in a folder."""
    for path in sorted(folder.glob("*/*.jsonl")):
        data = whole_lines(read_bytes(path))
        content = parse_shard(path, data)
        if content is not None:
            yield content, data


def _runs(database: Path) -> Iterator[tuple[ShardContent, bytes]]:
    """Yields the content of every run in a database, and the lines that its shard would have."""
    if not database.is_file():
        raise StoreError(f"{database}: there is no such database or folder of shards")
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            for run in connection.execute("select * from run order by key").fetchall():
                data = b"".join(encode_line(line, database) for line in _lines(connection, dict(run)))
                content = parse_shard(database, data)
                assert content is not None, "a run has a first line"
                yield content, data
    except sqlite3.Error as error:
        raise StoreError(f"{database}: is not a database of trials: {error}") from error


def _lines(connection: sqlite3.Connection, run: Row) -> Iterator[object]:
    """Yields the lines of a run's shard: its head, warm start, iterations, trials and confirmations."""

    def rows(table: str, order: str, column: str = "run_key", key: str = run["key"]) -> list[Row]:
        found = connection.execute(f"select * from {table} where {column} = ? order by {order}", [key])
        return [dict(row) for row in found.fetchall()]

    (task,) = rows("task", "key", "key", run["task_key"])
    yield Head(SCHEMA, run["started_at"], run["key"], record_of(Run, run), plain_of(task, _TASK_JSON))
    for space in rows("space", "task_key", "task_key", run["task_key"]):
        yield record_of(SpaceFacts, space)
    sources = rows("warm_start", "source_run_key")
    if sources:
        yield WarmStart(tuple(Source(row["source_task_key"], row["source_run_key"], row["trials"]) for row in sources))
    for cls, table in ((Iteration, "iteration"), (Trial, "trial"), (Confirmation, "confirmation")):
        for row in rows(table, "number"):
            yield record_of(cls, row)
