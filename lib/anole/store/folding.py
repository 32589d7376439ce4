"""The folding of what was read into the database: each source replaces what it told before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlite_utils import Database

from anole.documents.documents import Document, read_task
from anole.keys import canonical_json
from anole.record import Measurement
from anole.store.content import ShardContent
from anole.task import Task, workload_to_json

Row = Mapping[str, Any]


class Recording(NamedTuple):
    """Which state of a shard is in the database; of two, the greater one is kept, whichever is merged first.

    A shard only grows, so more bytes are more trials; one that was deleted and begun anew started later.
    """

    started_at: str
    shard_bytes: int
    shard_sha256: str


def recordings(db: Database) -> dict[str, Recording]:
    """Returns, by the run's key, what the database has of each run."""
    rows = db.query("select key, started_at, shard_bytes, shard_sha256 from run")
    return {row.pop("key"): Recording(**row) for row in rows}


def fold_run(db: Database, content: ShardContent, recording: Recording) -> None:
    """Puts a run, its task and all that its shard tells in place of what was known of the run."""
    run, key = content.run, content.run.key
    _fold_task(db, content.task)
    _fold_space(db, content)
    _upsert(
        db,
        "run",
        {
            "key": key,
            "task_key": run.task_key,
            "preset": run.preset,
            "seed": run.seed,
            "tuner_version": run.tuner_version,
            "settings": canonical_json(run.settings),
            "threads": run.threads,
            "host": canonical_json(run.host),
            "versions": canonical_json(run.versions),
            **recording._asdict(),
        },
        key="key",
    )
    trials = (
        {
            "run_key": key,
            "number": trial.number,
            "task_key": run.task_key,
            "iteration": trial.iteration,
            "config": config,
            **_measured(trial.measurement),
            "gflops": trial.gflops,
            "elapsed_s": trial.elapsed_s,
            "created_at": trial.created_at,
        }
        for trial, config in zip(content.trials, content.configs, strict=True)
    )
    confirmations = (
        {
            "run_key": key,
            "number": number,
            "after_trials": confirmation.after_trials,
            "rank": confirmation.rank,
            "config": canonical_json(confirmation.config),
            **_measured(confirmation.measurement),
            "created_at": confirmation.created_at,
        }
        for number, confirmation in enumerate(content.confirmations)
    )
    iterations = (
        {"run_key": key, "number": number, "log": canonical_json(log)} for number, log in content.iterations.items()
    )
    sources = (
        {
            "run_key": key,
            "source_run_key": source.run_key,
            "source_task_key": source.task_key,
            "trials": source.trials,
        }
        for source in content.sources or ()
    )
    tables = {"trial": trials, "confirmation": confirmations, "iteration": iterations, "warm_start": sources}
    for table, rows in tables.items():
        _replace(db, table, {"run_key": key}, rows)


def fold_manifest(db: Database, manifest: Document) -> None:
    """Puts a model and its tasks on one target in place of those of its former manifest.

    Raises:
        StoreError: a task is not known and its body cannot be read.
    """
    plain = manifest.plain
    for task in plain["tasks"]:
        if not _known(db, "task", "key", task["key"]):
            _fold_task(db, read_task(manifest, task["key"]))
    model = {"name": plain["model"], "source": plain["source"], "inputs": canonical_json(plain["inputs"])}
    _upsert(db, "model", model, key="name")
    place = {"model": plain["model"], "target": plain["target"]}
    rows = (
        {
            **place,
            "task_key": task["key"],
            "position": position,
            "weight": task["weight"],
            "layers": canonical_json(task["layers"]),
        }
        for position, task in enumerate(plain["tasks"])
    )
    _replace(db, "model_task", place, rows)


def fold_build(db: Database, build: Document) -> None:
    """Puts a build in place of an older one of its name.

    Raises:
        StoreError: its model, one of its tasks or one of its runs is not known.
    """
    plain, coverage = build.plain, build.plain["coverage"]
    name = plain["name"]
    if _has_newer(db, "build", "name", name, plain["created_at"]):
        return
    if not _known(db, "model", "name", plain["model"]):
        raise build.error(f"there is no manifest of its model {plain['model']}; extract the model again")
    row = {
        "name": name,
        "model": plain["model"],
        "target": plain["target"],
        "preset": plain["preset"],
        "trials": plain["trials"],
        "shared": int(plain.get("shared") or False),
        "seed": plain["seed"],
        "tuned_flop": coverage["tuned_flop"],
        "total_flop": coverage["total_flop"],
        "coverage_flop_share": coverage["share"],
        "size_bytes": plain.get("size_bytes"),
        "manifest": canonical_json(plain),
        "created_at": plain["created_at"],
    }
    _upsert(db, "build", row, key="name")
    rows = [_build_task(db, build, position, task) for position, task in enumerate(plain["tasks"])]
    _replace(db, "build_task", {"build": name}, rows)
    _replace(db, "refinement", {"build": name}, _refinement(name, plain["tasks"]))


def fold_evaluation(db: Database, evaluation: Document) -> None:
    """Puts an evaluation in place of an older one of the same build.

    Raises:
        StoreError: its build is not known.
    """
    plain = evaluation.plain
    if _has_newer(db, "evaluation", "build", plain["build"], plain["created_at"]):
        return
    if not _known(db, "build", "name", plain["build"]):
        raise evaluation.error(f"there is no build {plain['build']}; compile it again or delete this file")
    rows = (
        {
            "build": plain["build"],
            "reference": latency["reference"],
            "latency_s": latency["latency_s"],
            "latency_std_s": latency.get("latency_std_s"),
            "reference_latency_s": latency["reference_latency_s"],
            "reference_latency_std_s": latency.get("reference_latency_std_s"),
            "speedup": latency["speedup"],
            "relative_error": latency["relative_error"],
            "snr_db": latency.get("snr_db"),
            "rounds": latency.get("rounds"),
            "coverage_flop_share": plain["coverage_share"],
            "threads": plain["threads"],
            "host": canonical_json(plain["host"]),
            "versions": canonical_json(plain["versions"]),
            "created_at": plain["created_at"],
        }
        for latency in plain["latencies"]
    )
    _replace(db, "evaluation", {"build": plain["build"]}, rows)


def _fold_task(db: Database, task: Task) -> None:
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


def _fold_space(db: Database, content: ShardContent) -> None:
    facts = content.space
    if facts is not None:
        row = {
            "task_key": content.task.key,
            "size": facts.size,
            "sampled": facts.sampled,
            "rejections": canonical_json(facts.rejections),
        }
        _upsert(db, "space", row, key="task_key")


def _build_task(db: Database, build: Document, position: int, task: Row) -> Row:
    run_key, config = task.get("run_key"), task.get("config")
    if not _known(db, "task", "key", task["key"]):
        raise build.error(f"its task {task['label']} ({task['key']}) is not known; extract the model again")
    if run_key is not None and not _known(db, "run", "key", run_key):
        raise build.error(f"its run {run_key} of {task['label']} has no shard; compile it again")
    return {
        "build": build.plain["name"],
        "task_key": task["key"],
        "position": position,
        "weight": task["weight"],
        "matched": task["matched"],
        "reason": task.get("reason"),
        "run_key": run_key,
        "config": None if config is None else canonical_json(config),
        "latency_s": task.get("latency_s"),
    }


def _refinement(build: str, tasks: Iterable[Row]) -> Iterator[Row]:
    for task in tasks:
        for number, tried in enumerate(task.get("refined") or ()):
            yield {
                "build": build,
                "task_key": task["key"],
                "number": number,
                "config": canonical_json(tried["config"]),
                "latency_s": tried.get("latency_s"),
                "latency_alone_s": tried["latency_alone_s"],
                "chosen": int(tried["chosen"]),
            }


def _measured(measurement: Measurement) -> Row:
    return {
        "status": measurement.status.value,
        "error": measurement.error,
        "latency_s": measurement.latency_s,
        "latency_std_s": measurement.latency_std_s,
        "cv": measurement.cv,
        "repeats": measurement.repeats,
        "build_s": measurement.build_s,
        "run_s": measurement.run_s,
        "relative_error": measurement.relative_error,
    }


def _known(db: Database, table: str, column: str, value: str) -> bool:
    return db.table(table).count_where(f"{column} = ?", [value]) > 0


def _has_newer(db: Database, table: str, column: str, value: str, created_at: str) -> bool:
    return db.table(table).count_where(f"{column} = ? and created_at > ?", [value, created_at]) > 0


def _upsert(db: Database, table: str, row: Row, key: str) -> None:
    db.table(table).upsert(dict(row), pk=key)


def _replace(db: Database, table: str, place: Row, rows: Iterable[Row]) -> None:
    """Replaces all rows of a place, which some columns name, by others."""
    where = " and ".join(f"{column} = :{column}" for column in place)
    db.execute(f"delete from {table} where {where}", dict(place))
    _insert(db, table, list(rows))


def _insert(db: Database, table: str, rows: Sequence[Row]) -> None:
    if rows:
        columns = ", ".join(rows[0])
        values = ", ".join(f":{column}" for column in rows[0])
        db.conn.executemany(f"insert into {table} ({columns}) values ({values})", rows)
