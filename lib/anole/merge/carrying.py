"""Carries over into a new database what only the old file holds, as far as it fits into the tables of this version."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from sqlite_utils import Database

from anole.errors import StoreError
from anole.merge import schema
from anole.merge.before import Before
from anole.merge.folding import OF_BUILDS, OF_EVALUATIONS, fold_run, fold_task
from anole.merge.foreign import Runs
from anole.merge.guarded import Guarded, UnreadableError, is_fault, limit_steps, quote
from anole.merge.merged import Changes

Key = tuple[Any, ...]

_DOCUMENTS: Mapping[str, Mapping[str, Collection[str]]] = {
    "model": {"model": ("name",)},
    "manifest": {"model_task": ("model", "target")},
    "build": OF_BUILDS,
    "evaluation": OF_EVALUATIONS,
}
"""The tables of each kind of document, and the columns with its key; a kind refers only to those before it."""

_CREATES = re.compile(r"\s*create\s+(table|view|trigger|(unique\s+)?index)\b", re.IGNORECASE)

_KINDS = ("table", "index", "view", "trigger")
"""What a user makes; triggers come last, so that they do not run here."""


class Carrier:
    """Copies what only an old file holds; what cannot be read or does not fit is left out, whole, and told.

    Attributes:
        missing: what was left out, a sentence for each.
    """

    def __init__(self, db: Database, old: Guarded) -> None:
        self._db, self._old = db, old
        self.missing: list[str] = []
        if any(table in old.kinds for table in schema.FIRST_TABLES):
            self.missing += [f"it has no table {table}" for table in old.missing_tables]

    def carry_runs(self, before: Before) -> None:
        """Copies the tasks and runs that the new database lacks; each must be what a shard may hold."""
        runs = Runs(self._old)

        def carry_run(key: Key) -> None:
            content, _ = runs.read(*key)
            has_space = self._db.table("space").count_where("task_key = ?", [content.task.key])
            content = replace(content, sealed=runs.is_sealed(*key), space=None if has_space else content.space)
            fold_run(self._db, content, before.recordings[content.run.key])

        self._carry("task", "task", ("key",), lambda key: fold_task(self._db, runs.task(*key)))
        self._carry("run", "run", ("key",), carry_run)

    def carry_documents(self, changes: Changes) -> None:
        """Copies the models, manifests, builds and evaluations that the new database lacks."""
        for kind, tables in _DOCUMENTS.items():
            known = {(name,) for name in changes.outlived} if kind == "evaluation" else set()
            table, columns = next(iter(tables.items()))
            self._carry(kind, table, columns, partial(self._copy_rows, tables), known)

    def carry_own(self) -> None:
        """Copies the tables, indexes, views and triggers that the user made, whatever their constraints say."""
        try:
            self.missing += [f"your column {name} is left out; use a table of your own" for name in self._own_columns()]
            objects = self._own_objects()
        except UnreadableError as error:
            self._miss("your own tables could not be read", error)
            return
        for pragma in ("foreign_keys = off", "ignore_check_constraints = on"):
            self._db.execute(f"pragma {pragma}")
        limit_steps(self._db.conn, self._old.size_bytes)
        for kind, name, sql in objects:
            try:
                with self._tried():
                    self._copy_object(kind, name, sql)
            except StoreError as error:
                self._miss(f"your {kind} {name} could not be carried over", error)
        self._db.conn.set_progress_handler(None, 0)

    def _carry(
        self, kind: str, table: str, columns: Collection[str], copy: Callable[[Key], None], known: Collection[Key] = ()
    ) -> None:
        """Copies each task, run or document of a kind that the new database lacks."""
        if table not in self._old.kinds:
            return
        here = {*known, *self._db.execute(f"select distinct {', '.join(columns)} from {table}").fetchall()}
        n_lost = 0
        try:
            keys = self._old.counts(table, *columns).keys()
        except UnreadableError as error:
            self._miss(f"its {kind}s could not be read", error)
            return
        for key in sorted(keys - here, key=repr):
            try:
                with self._tried():
                    copy(key)
            except (StoreError, KeyError):
                n_lost += 1
        if n_lost:
            self.missing.append(f"{n_lost} of its {kind}s without a file here could not be carried over")

    def _copy_rows(self, tables: Mapping[str, Collection[str]], key: Key) -> None:
        """Copies the rows of a document, with the columns that the old file has."""
        for table, by in tables.items():
            if table not in self._old.kinds:
                continue
            columns = self._old.columns(table)
            where = " and ".join(f"{column} = ?" for column in by)
            rows = self._old.rows(f"select {', '.join(columns)} from {table} where {where}", *key)
            if len(rows) != self._old.counts(table, *by)[key]:
                raise UnreadableError("an index does not tell all of its rows")
            self._insert(table, columns, iter(rows))

    def _own_columns(self) -> list[str]:
        """Returns the columns that the user added to our tables."""
        ours = schema.columns()
        added = ((table, set(self._old.column_names(table)) - {*ours[table]}) for table in ours)
        return [f"{table}.{name}" for table, names in added for name in sorted(names)]

    def _own_objects(self) -> list[tuple[str, str, str]]:
        """Returns the kind, the name and the definition of what the user made, in the order of their making."""
        present = {name for (name,) in self._db.execute("select name from sqlite_master")}
        listed = self._old.rows("select type, name, tbl_name, sql from sqlite_master where sql is not null")
        own = [
            (str(kind), str(name), str(sql))
            for kind, name, table, sql in listed
            if name not in present and table not in schema.FORMER_TABLES and self._old.kinds.get(name) != "shadow"
            if not str(name).startswith("sqlite_")
        ]
        return sorted(own, key=lambda each: _KINDS.index(each[0]) if each[0] in _KINDS else len(_KINDS))

    def _copy_object(self, kind: str, name: str, sql: str) -> None:
        if not _CREATES.match(sql):
            raise StoreError("it is no plain table, index, view or trigger")
        self._db.execute(sql)
        if kind == "table":
            self._old.check(name)
            columns = [quote(column) for column, is_computed in self._old.column_names(name).items() if not is_computed]
            self._insert(quote(name), columns, self._old.each(f"select {', '.join(columns)} from {quote(name)}"))

    def _insert(self, table: str, columns: Collection[str], rows: Iterator[tuple[Any, ...]]) -> None:
        marks = ", ".join("?" for _ in columns)
        self._db.conn.executemany(f"insert into {table} ({', '.join(columns)}) values ({marks})", rows)

    def _miss(self, what: str, error: StoreError) -> None:
        self.missing.append(f"{what} ({str(error).removeprefix(f'{self._old.path}: ')})")

    @contextmanager
    def _tried(self) -> Iterator[None]:
        """Undoes what the block wrote if it fails; a fault of the machine stays what it is."""
        try:
            with self._db.atomic():
                yield
        except (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeError) as error:
            if is_fault(error):
                raise
            raise StoreError(" ".join(str(error).split())) from error
