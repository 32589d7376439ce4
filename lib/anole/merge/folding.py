"""Writes the content of each source into the database, in place of what the source held before."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from anole.documents.build import FILE, Build, BuiltTask, read_build
from anole.documents.document import with_schema
from anole.documents.evaluation import Evaluation, read_evaluation
from anole.documents.manifest import read_listed_task, read_manifest
from anole.errors import StoreError
from anole.keys import canonical_json
from anole.merge.before import Before, Recording
from anole.merge.merged import Changes
from anole.merge.record_rows import Row, columns_of, row_of, values_of
from anole.record import Confirmation, Trial
from anole.store.content import ShardContent
from anole.task import Task, workload_to_json

OF_BUILDS = {"build": ("name",), "build_task": ("build",), "refinement": ("build",)}
OF_EVALUATIONS = dict.fromkeys(("evaluation", "load_latency", "kernel_profile", "kernel_latency"), ("build",))
"""The tables with what a build and its evaluation tell, and the columns that name the build."""


def fold_task(db: Database, task: Task) -> None:
    """Writes a task."""
    row = {
        "key": task.key,
        "operator": task.workload.operator,
        "label": task.label,
        "workload": canonical_json(workload_to_json(task.workload)),
        "target": canonical_json(dict(task.target)),
        "template_version": task.template_version,
        "flop": task.workload.flop,
    }
    _upsert(db, "task", row, key="key")


def fold_run(db: Database, content: ShardContent, recording: Recording) -> None:
    """Writes a run, its task and the content of its shard, in place of the run's former rows."""
    run, key = content.run, content.run.key
    fold_task(db, content.task)
    if content.space is not None:
        _upsert(db, "space", {"task_key": content.task.key, **row_of(content.space)}, key="task_key")
    _upsert(db, "run", {"key": key, **row_of(run), **recording._asdict(), "sealed": int(content.sealed)}, key="key")
    iterations = ((key, number, canonical_json(log)) for number, log in content.iterations.items())
    sources = ((key, source.run_key, source.task_key, source.trials) for source in content.sources or ())
    rows: dict[str, tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]] = {
        "trial": (("run_key", "task_key", *columns_of(Trial)), _trials(content)),
        "confirmation": (("run_key", "number", *columns_of(Confirmation)), _confirmations(content)),
        "iteration": (("run_key", "number", "log"), iterations),
        "warm_start": (("run_key", "source_run_key", "source_task_key", "trials"), sources),
    }
    for table, (columns, values) in rows.items():
        db.execute(f"delete from {table} where run_key = ?", [key])
        marks = ", ".join("?" for _ in columns)
        db.conn.executemany(f"insert into {table} ({', '.join(columns)}) values ({marks})", values)


def _trials(content: ShardContent) -> Iterator[tuple[Any, ...]]:
    """Yields the rows of a run's trials; the text of each config is already known."""
    for trial, config in zip(content.trials, content.configs, strict=True):
        yield (content.run.key, content.run.task_key, *values_of(trial, config))


def _confirmations(content: ShardContent) -> Iterator[tuple[Any, ...]]:
    for number, confirmation in enumerate(content.confirmations):
        yield (content.run.key, number, *values_of(confirmation))


def fold_manifest(db: Database, path: Path) -> None:
    """Writes a model and its tasks on one target, in place of those of its former manifest.

    Raises:
        DocumentError: the manifest, or a task that is not in the database yet, cannot be read.
    """
    manifest = read_manifest(path)
    for task in manifest.tasks:
        if not _known(db, "task", "key", task.key):
            fold_task(db, read_listed_task(path, task.key))
    model = {"name": manifest.model, "source": manifest.source, "inputs": canonical_json(manifest.inputs)}
    _upsert(db, "model", model, key="name")
    place = {"model": manifest.model, "target": manifest.target}
    rows = (
        {
            **place,
            "task_key": task.key,
            "position": position,
            "weight": task.weight,
            "layers": canonical_json(list(task.layers)),
        }
        for position, task in enumerate(manifest.tasks)
    )
    _replace(db, "model_task", place, rows)


def fold_build(db: Database, folder: Path, before: Before, changes: Changes) -> None:
    """Writes a build, in place of what the database held under its name.

    When that was compiled later, its evaluation is removed, because it is not one of this build.

    Raises:
        DocumentError: the build's description cannot be read.
        StoreError: its model, one of its tasks or one of its runs is not in the database.
    """
    build = read_build(folder)
    if not _known(db, "model", "name", build.model):
        raise StoreError(f"{folder / FILE}: there is no manifest of its model {build.model}; extract the model again")
    row = {
        "name": build.name,
        "model": build.model,
        "target": build.target,
        "preset": build.preset,
        "trials": build.trials,
        "shared": int(build.shared),
        "seed": build.seed,
        "tuned_flop": build.coverage.tuned_flop,
        "total_flop": build.coverage.total_flop,
        "coverage_flop_share": build.coverage.share,
        "size_bytes": build.size_bytes,
        "manifest": canonical_json(with_schema(build)),
        "created_at": build.created_at,
    }
    if before.has_newer("build", "name", build.name, build.created_at):
        changes.replaced.append(f"{folder / FILE}: the database held a build of this name that was compiled later")
        changes.outlived.add(build.name)
        for table in OF_EVALUATIONS:
            _replace(db, table, {"build": build.name}, ())
    _upsert(db, "build", row, key="name")
    rows = [_build_task(db, build, folder / FILE, position, task) for position, task in enumerate(build.tasks)]
    _replace(db, "build_task", {"build": build.name}, rows)
    _replace(db, "refinement", {"build": build.name}, _refinement(build))


def fold_evaluation(db: Database, path: Path, before: Before, changes: Changes) -> None:
    """Writes an evaluation, in place of what the database held of the same build.

    Raises:
        DocumentError: the evaluation cannot be read.
        StoreError: its build is not in the database.
    """
    evaluation = read_evaluation(path)
    if not _known(db, "build", "name", evaluation.build):
        raise StoreError(f"{path}: there is no build {evaluation.build}; compile it again or delete this file")
    whole = {
        "build": evaluation.build,
        "coverage_flop_share": evaluation.coverage_share,
        "threads": evaluation.threads,
        "host": canonical_json(evaluation.host),
        "versions": canonical_json(evaluation.versions),
        "created_at": evaluation.created_at,
        "redrawn_error": evaluation.redrawn_error,
        "exact_error": evaluation.exact_error,
        "reference_exact_error": evaluation.reference_exact_error,
        "reference_sensitivity": evaluation.reference_sensitivity,
        "nearby_error": evaluation.nearby_error,
        "averaged_error": evaluation.averaged_error,
        "averaged_draws": evaluation.averaged_draws,
    }
    is_held = evaluation.build not in changes.outlived
    if is_held and before.has_newer("evaluation", "build", evaluation.build, evaluation.created_at):
        changes.replaced.append(f"{path}: the database held a later evaluation of this build")
    rows = ({**whole, **row_of(latency)} for latency in evaluation.latencies)
    _replace(db, "evaluation", {"build": evaluation.build}, rows)
    under_load = (
        {"build": evaluation.build, **row_of(latency), "created_at": evaluation.created_at}
        for latency in evaluation.load_latencies or ()
    )
    _replace(db, "load_latency", {"build": evaluation.build}, under_load)
    _fold_kernels(db, evaluation)


def _fold_kernels(db: Database, evaluation: Evaluation) -> None:
    """Writes the times of a build's kernels; where it has none, there are none."""
    place, profile = {"build": evaluation.build}, evaluation.kernel_profile
    kernels = () if profile is None else profile.kernels
    whole = {} if profile is None else row_of(replace(profile, kernels=()))
    whole.pop("kernels", None)
    rows = [{**place, **whole, "created_at": evaluation.created_at}] if profile is not None else []
    _replace(db, "kernel_profile", place, rows)
    latencies = ({**place, "number": number, **row_of(kernel)} for number, kernel in enumerate(kernels))
    _replace(db, "kernel_latency", place, latencies)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Names the file in the error if its rows violate the tables' constraints."""
    try:
        yield
    except (sqlite3.IntegrityError, OverflowError, UnicodeError) as error:
        raise StoreError(f"{path}: does not fit into the database: {error}") from error


def _build_task(db: Database, build: Build, path: Path, position: int, task: BuiltTask) -> Row:
    if not _known(db, "task", "key", task.key):
        raise StoreError(f"{path}: its task {task.label} ({task.key}) is not known; extract the model again")
    is_known = task.run_key is None or _known(db, "run", "key", task.run_key)
    # A lock file goes where the records do not that its configs come from.
    if not is_known and not task.locked:
        raise StoreError(f"{path}: its run {task.run_key} of {task.label} has no shard; compile it again")
    return {
        "build": build.name,
        "task_key": task.key,
        "position": position,
        "weight": task.weight,
        "matched": task.matched,
        "reason": task.reason,
        "run_key": task.run_key if is_known else None,
        "config": None if task.config is None else canonical_json(task.config),
        "latency_s": task.latency_s,
    }


def _refinement(build: Build) -> Iterator[Row]:
    for task in build.tasks:
        for number, tried in enumerate(task.refined):
            yield {"build": build.name, "task_key": task.key, "number": number, **row_of(tried)}


def _known(db: Database, table: str, column: str, value: str) -> bool:
    return db.table(table).count_where(f"{column} = ?", [value]) > 0


def _upsert(db: Database, table: str, row: Row, key: str) -> None:
    db.table(table).upsert(dict(row), pk=key)


def _replace(db: Database, table: str, place: Row, rows: Iterable[Row]) -> None:
    """Replaces all rows that have the given values in some columns by other rows."""
    where = " and ".join(f"{column} = :{column}" for column in place)
    db.execute(f"delete from {table} where {where}", dict(place))
    _insert(db, table, list(rows))


def _insert(db: Database, table: str, rows: Sequence[Row]) -> None:
    if rows:
        columns = ", ".join(rows[0])
        values = ", ".join(f":{column}" for column in rows[0])
        db.conn.executemany(f"insert into {table} ({columns}) values ({values})", rows)
