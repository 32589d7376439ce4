"""Insert or replace the rows of shards and documents in the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from anole.codec import encode, flat_fields
from anole.documents.build import FILE, Build, BuiltTask, read_build
from anole.documents.document import encode_with_schema
from anole.documents.evaluation import read_evaluation
from anole.documents.manifest import read_listed_task, read_manifest
from anole.errors import StoreError
from anole.keys import canonical_json
from anole.merge import schema
from anole.merge.merge_log import MergeLog, Recording, Snapshot
from anole.merge.untrusted_database import Row
from anole.record import Confirmation, Trial
from anole.store.content import ShardContent
from anole.task import Task, workload_to_json

BUILD_TABLES = ("build", "build_task", "refinement")
EVALUATION_TABLES = ("evaluation", "size_latency", "load_latency", "kernel_profile", "kernel_latency")
"""The tables with the rows of an evaluation."""

_PLAIN_TYPES = frozenset({str, int, float, type(None)})
"""Types that columns store without conversion."""


def fold_task(db: Database, task: Task) -> None:
    """Write a task."""
    workload, target = workload_to_json(task.workload), dict(task.target)
    facts = {"operator": task.workload.operator, "flop": task.workload.flop}
    _upsert(db, _row_of("task", task, workload=workload, target=target, **facts), "task")


def fold_run(db: Database, content: ShardContent, recording: Recording) -> None:
    """Write a run, its task and the content of its shard, replacing the run's former rows."""
    run, key = content.run, content.run.key
    fold_task(db, content.task)
    if content.space is not None:
        _upsert(db, _row_of("space", content.space, task_key=content.task.key), "space")
    _upsert(db, _row_of("run", run, **recording._asdict(), sealed=content.sealed), "run")
    trials = ((key, run.task_key, *values) for values in _rows(Trial, content.trials, content.configs))
    configs = (canonical_json(confirmation.config) for confirmation in content.confirmations)
    numbered = enumerate(_rows(Confirmation, content.confirmations, configs))
    confirmations = ((key, number, *values) for number, values in numbered)
    iterations = ((key, number, canonical_json(log)) for number, log in content.iterations.items())
    sources = ((key, source.run_key, source.task_key, source.trials) for source in content.sources or ())
    rows: dict[str, tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]] = {
        "trial": (("run_key", "task_key", "config", *_attribute_paths(Trial)), trials),
        "confirmation": (("run_key", "number", "config", *_attribute_paths(Confirmation)), confirmations),
        "iteration": (("run_key", "number", "log"), iterations),
        "warm_start": (("run_key", "source_run_key", "source_task_key", "trials"), sources),
    }
    for table, (columns, values) in rows.items():
        db.execute(f"delete from {table} where run_key = ?", [key])
        insert(db, table, columns, values)


def fold_manifest(db: Database, path: Path) -> None:
    """Write a model and its tasks on one target, replacing the rows of its former manifest."""
    manifest = read_manifest(path)
    for task in manifest.tasks:
        if not is_known(db, "task", "key", task.key):
            fold_task(db, read_listed_task(path, task.key))
    _upsert(db, _row_of("model", manifest, name=manifest.model), "model")
    key = {"model": manifest.model, "target": manifest.target}
    tasks = enumerate(manifest.tasks)
    rows = (_row_of("model_task", task, task_key=task.key, position=position, **key) for position, task in tasks)
    _replace(db, "model_task", key, rows)


def fold_build(db: Database, folder: Path, snapshot: Snapshot, log: MergeLog) -> None:
    """Write a build, replacing the rows of the build with the same name.

    If the former build was compiled later, its evaluation is removed, because it does not belong to this build.
    """
    build = read_build(folder)
    if not is_known(db, "model", "name", build.model):
        raise StoreError(f"{folder / FILE}: there is no manifest of its model {build.model}; extract the model again")
    flop = {"tuned_flop": build.coverage.tuned_flop, "total_flop": build.coverage.total_flop}
    columns = {**flop, "coverage_flop_share": build.coverage.share, "manifest": encode_with_schema(build)}
    if snapshot.has_newer("build", "name", build.name, build.created_at):
        log.replaced.append(f"{folder / FILE}: replaced a build of this name that was compiled later")
        log.outlived.add(build.name)
        for table in EVALUATION_TABLES:
            _replace(db, table, {"build": build.name}, ())
    _upsert(db, _row_of("build", build, **columns), "build")
    rows = [_build_task(db, build, folder / FILE, position, task) for position, task in enumerate(build.tasks)]
    _replace(db, "build_task", {"build": build.name}, rows)
    _replace(db, "refinement", {"build": build.name}, _refinement(build))


def fold_evaluation(db: Database, path: Path, snapshot: Snapshot, log: MergeLog) -> None:
    """Write an evaluation, replacing the rows of the build's former evaluation."""
    evaluation = read_evaluation(path)
    if not is_known(db, "build", "name", evaluation.build):
        raise StoreError(f"{path}: there is no build {evaluation.build}; compile it again or delete this file")
    is_same_build = evaluation.build not in log.outlived
    if is_same_build and snapshot.has_newer("evaluation", "build", evaluation.build, evaluation.created_at):
        log.replaced.append(f"{path}: replaced a later evaluation of this build")
    key, times = {"build": evaluation.build}, {"build": evaluation.build, "created_at": evaluation.created_at}
    share, profile = {"coverage_flop_share": evaluation.coverage_share}, evaluation.kernel_profile
    latencies = (_row_of("evaluation", evaluation, **share, **encode(latency)) for latency in evaluation.latencies)
    at_sizes = (
        _row_of("size_latency", latency, sizes=group.sizes, **times)
        for group in evaluation.sizes_latencies or ()
        for latency in group.latencies
    )
    loads = (_row_of("load_latency", latency, **times) for latency in evaluation.load_latencies or ())
    profiles = () if profile is None else (_row_of("kernel_profile", profile, **times),)
    numbered = enumerate(() if profile is None else profile.kernels)
    kernels = (_row_of("kernel_latency", kernel, **key, number=number) for number, kernel in numbered)
    for table, rows in zip(EVALUATION_TABLES, (latencies, at_sizes, loads, profiles, kernels), strict=True):
        _replace(db, table, key, rows)


@contextmanager
def name_file_in_errors(path: Path) -> Iterator[None]:
    """Convert violations of the tables' constraints to StoreError with the path of the file."""
    try:
        yield
    except (sqlite3.IntegrityError, OverflowError, UnicodeError) as error:
        raise StoreError(f"{path}: does not fit into the database: {error}") from error


def _build_task(db: Database, build: Build, path: Path, position: int, task: BuiltTask) -> Row:
    if not is_known(db, "task", "key", task.key):
        raise StoreError(f"{path}: its task {task.label} ({task.key}) is not known; extract the model again")
    has_run = task.run_key is None or is_known(db, "run", "key", task.run_key)
    # A lock file may be used without the records from which its configs come.
    if not has_run and not task.locked:
        raise StoreError(f"{path}: its run {task.run_key} of {task.label} has no shard; compile it again")
    key = {"build": build.name, "task_key": task.key, "position": position}
    return _row_of("build_task", task, run_key=task.run_key if has_run else None, **key)


def _refinement(build: Build) -> Iterator[Row]:
    for task in build.tasks:
        for number, candidate in enumerate(task.refined):
            yield _row_of("refinement", candidate, build=build.name, task_key=task.key, number=number)


def is_known(db: Database, table: str, column: str, value: str) -> bool:
    """Whether a table has a row with this value in a column."""
    return db.table(table).count_where(f"{column} = ?", [value]) > 0


def insert(db: Database, table: str, columns: Collection[str], rows: Iterable[tuple[Any, ...]]) -> None:
    """Insert rows with values for the given columns."""
    placeholders = ", ".join("?" for _ in columns)
    db.conn.executemany(f"insert into {table} ({', '.join(columns)}) values ({placeholders})", rows)


def _upsert(db: Database, row: Row, table: str) -> None:
    """Insert a row, or update the row with the same key, because other rows may refer to it."""
    db.table(table).upsert(dict(row), pk=db.table(table).pks)


def _replace(db: Database, table: str, key: Row, rows: Iterable[Row]) -> None:
    """Replace all rows that match the given column values."""
    where = " and ".join(f"{column} = :{column}" for column in key)
    db.execute(f"delete from {table} where {where}", dict(key))
    db.table(table).insert_all(map(dict, rows))


def _row_of(table: str, document: object, **values: Any) -> dict[str, Any]:
    """Return a row of a table: each column from `values`, or else from the document's attribute with the same name."""
    return {
        column: _to_cell(values[column] if column in values else getattr(document, column))
        for column in schema.columns()[table]
    }


def _attribute_paths(cls: type) -> dict[str, str]:
    """Return the attribute path of each column of a record, except its config."""
    return {column: path for column, path in flat_fields(cls).items() if column != "config"}


def _rows(cls: type, records: Iterable[object], configs: Iterable[str]) -> Iterator[list[Any]]:
    """Yield the JSON text of each record's config and the values of its other columns."""
    get_values = attrgetter(*_attribute_paths(cls).values())
    for record, config in zip(records, configs, strict=True):
        yield [config, *[value if type(value) in _PLAIN_TYPES else _to_cell(value) for value in get_values(record)]]


def _to_cell(value: Any) -> Any:
    """Convert a value for a column: objects and lists become JSON text."""
    plain = encode(value)
    if isinstance(plain, (dict, list)):
        return canonical_json(plain)
    return int(plain) if isinstance(plain, bool) else plain
