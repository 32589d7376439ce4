"""Copy records and user tables that only the old database contains into the new one, if they fit its tables."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from sqlite_utils import Database

from anole.errors import StoreError
from anole.merge import schema
from anole.merge.exchange.database_runs import RUN_TABLES, Runs
from anole.merge.merge_log import MergeLog, Snapshot
from anole.merge.untrusted_database import (
    Entity,
    Key,
    UnreadableError,
    UntrustedDatabase,
    is_machine_fault,
    limit_steps,
    quote,
)
from anole.merge.upsert import BUILD_TABLES, EVALUATION_TABLES, fold_run, fold_task, insert, is_known

_CREATES = re.compile(r"\s*create\s+(table|view|trigger|(unique\s+)?index)\b", re.IGNORECASE)

_ERRORS = (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeError)

_KINDS = ("table", "index", "view", "trigger")
"""Kinds of objects that users create; triggers come last, because they must not run during the copy."""


class UserDataCopy:
    """A copier of the content that only the old file has; it leaves out records that are damaged or do not fit.

    Attributes:
        missing: a sentence on each table, record or object that was left out.
    """

    def __init__(self, db: Database, old: UntrustedDatabase) -> None:
        self._db, self._old = db, old
        self.missing: list[str] = []
        if any(table in old.kinds for table in schema.FIRST_TABLES):
            self.missing += [f"it has no table {table}" for table in old.missing_tables]

    def copy_runs(self, snapshot: Snapshot) -> None:
        """Copy the tasks and runs that the new database does not have; each must be valid in a shard."""
        if not {"task", "run"} <= self._old.kinds.keys():
            return
        try:
            runs = Runs(self._old)
        except UnreadableError as error:
            self._report_missing("its tasks could not be read", error)
            return

        def copy_run(key: Key, rows: Entity) -> None:
            content, _ = runs.read(key[0], rows)
            has_space = is_known(self._db, "space", "task_key", content.task.key)
            is_sealed = rows["run"][0].get("sealed") == 1
            content = replace(content, sealed=is_sealed, space=None if has_space else content.space)
            fold_run(self._db, content, snapshot.recordings[content.run.key])

        self._copy_missing("task", ("task",), lambda key, _: fold_task(self._db, runs.task(key[0])))
        self._copy_missing("run", RUN_TABLES, copy_run)

    def copy_documents(self, log: MergeLog) -> None:
        """Copy the models, manifests, builds and evaluations that the new database does not have."""
        self._copy_missing("model", ("model",), self._copy_rows)
        self._copy_missing("manifest", ("model_task",), self._copy_rows, n_columns=2)
        self._copy_missing("build", BUILD_TABLES, self._copy_rows)
        self._copy_missing(
            "evaluation", EVALUATION_TABLES, self._copy_rows, excluded={(name,) for name in log.outlived}
        )

    def copy_user_tables(self) -> None:
        """Copy the user's tables, indexes, views and triggers, without checking constraints."""
        try:
            self.missing += [f"your column {name} was left out; use a separate table" for name in self._user_columns()]
            objects = self._user_objects()
        except UnreadableError as error:
            self._report_missing("your own tables could not be read", error)
            return
        for pragma in ("foreign_keys = off", "ignore_check_constraints = on"):
            self._db.execute(f"pragma {pragma}")
        limit_steps(self._db.conn, self._old.size_bytes)
        for kind, name, sql in objects:
            try:
                with self._savepoint():
                    self._copy_object(kind, name, sql)
            except StoreError as error:
                self._report_missing(f"your {kind} {name} could not be copied", error)
        self._db.conn.set_progress_handler(None, 0)

    def _copy_missing(
        self,
        kind: str,
        tables: Sequence[str],
        copy: Callable[[Key, Entity], None],
        n_columns: int = 1,
        excluded: Collection[Key] = (),
    ) -> None:
        """Copy each task, run or document of a kind that the new database does not have."""
        n_lost = 0
        # An evaluation may have rows in any of its tables, and belongs to a build.
        owner, key_tables = ("build", tables) if tables is EVALUATION_TABLES else (tables[0], tables[:1])
        if owner not in self._old.kinds:
            return
        present = set(excluded)
        for table in key_tables:
            present |= set(
                self._db.execute(f"select distinct {', '.join(schema.columns()[table][:n_columns])} from {table}")
            )
        try:
            if not any(self._old.keys(table, n_columns) - present for table in key_tables if table in self._old.kinds):
                return
            for key, rows in self._old.entities(*tables, n_columns=n_columns, of=owner):
                if key not in present:
                    try:
                        with self._savepoint():
                            copy(key, rows)
                    except (StoreError, KeyError):
                        n_lost += 1
        except UnreadableError as error:
            self._report_missing(f"its {kind}s could not be read", error)
        if n_lost:
            self.missing.append(f"{n_lost} of its {kind}s without a local file could not be copied")

    def _copy_rows(self, _: Key, rows: Entity) -> None:
        """Copy a document's rows, with the columns of the old file."""
        for table, table_rows in rows.items():
            if table_rows:
                insert(self._db, table, self._old.columns(table), (tuple(row.values()) for row in table_rows))

    def _user_columns(self) -> list[str]:
        """Return the columns that the user added to Anole's tables."""
        columns = schema.columns()
        user_names = ((table, set(self._old.column_names(table)) - {*columns[table]}) for table in columns)
        return [f"{table}.{name}" for table, names in user_names for name in sorted(names)]

    def _user_objects(self) -> list[tuple[str, str, str]]:
        """Return the kind, name and definition of each object that the user created, in the order of `_KINDS`."""
        present = {name for (name,) in self._db.execute("select name from sqlite_master")}
        objects = self._old.rows("select type, name, tbl_name, sql from sqlite_master where sql is not null")
        user_objects = [
            (str(kind), str(name), str(sql))
            for kind, name, table, sql in objects
            if name not in present and table not in schema.FORMER_TABLES and self._old.kinds.get(name) != "shadow"
            if not str(name).startswith("sqlite_")
        ]
        return sorted(user_objects, key=lambda item: _KINDS.index(item[0]) if item[0] in _KINDS else len(_KINDS))

    def _copy_object(self, kind: str, name: str, sql: str) -> None:
        if not _CREATES.match(sql):
            raise StoreError("it is not a plain table, index, view or trigger")
        self._db.execute(sql)
        if kind == "table":
            self._old.check(name)
            columns = [quote(column) for column, is_computed in self._old.column_names(name).items() if not is_computed]
            insert(self._db, quote(name), columns, self._old.each(f"select {', '.join(columns)} from {quote(name)}"))

    def _report_missing(self, problem: str, error: StoreError) -> None:
        self.missing.append(f"{problem} ({str(error).removeprefix(f'{self._old.path}: ')})")

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        """Roll the block back if it fails, and raise StoreError; errors of the machine are not converted."""
        try:
            with self._db.atomic():
                yield
        except _ERRORS as error:
            if is_machine_fault(error):
                raise
            raise StoreError(" ".join(str(error).split())) from error
