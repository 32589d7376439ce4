"""Records of version 0.1.0 can be read, and their tasks are not tuned again.

`old_records` is a project of the last commit of 0.1.0, without its networks and compiled libraries: a searched
accelerator, a CPU on an RPC server, tasks that share a budget, and a refined build.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from anole.documents import layout
from anole.documents.build import read_build
from anole.documents.document import encode_with_schema
from anole.documents.evaluation import read_evaluation
from anole.documents.manifest import read_manifest, read_task
from anole.documents.receipt import read_receipts, read_refined
from anole.merge.exchange.importing import import_records
from anole.merge.schema import FORMER_TABLES
from anole.merge.stage import merge_builds
from anole.project.pipeline import Pipeline
from anole.project.plan import make_plan
from anole.search.settings import TunerSettings
from anole.store.shard import read_shard

OLD = Path(__file__).parent / "old_records"
BUILDS = sorted(path.name for path in (OLD / "builds").iterdir())
MEASURED_ELSEWHERE = ("residual-accelerator-dcoc", "residual-board-anole", "encoder-shared")
"""Builds for targets whose description does not depend on the machine."""


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the project with an old network file, without targets that only the original machine can describe."""
    shutil.copytree(OLD, tmp_path / "old")
    shutil.copy(OLD.parent / "tiny_networks.py", tmp_path / "old/tiny.py")
    os.utime(tmp_path / "old/tiny.py", ns=(0, 0))
    spec = tmp_path / "old/models.yaml"
    spec.write_text("".join(line for line in spec.read_text().splitlines(keepends=True) if "here" not in line))
    monkeypatch.chdir(tmp_path / "old")
    return tmp_path / "old"


def without_nulls(value: Any) -> Any:
    """Return a plain value without null fields, which 0.1.0 left out in some documents."""
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def plain(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.mark.parametrize("build", BUILDS)
def test_documents_have_the_same_content(build: str) -> None:
    found = read_build(OLD / "builds" / build)
    assert without_nulls(encode_with_schema(found)) == without_nulls(plain(OLD / "builds" / build / "build.json"))
    manifest = OLD / layout.manifest_path(found.model, found.target)
    assert encode_with_schema(read_manifest(manifest)) == {**plain(manifest), "prepared": [], "files": None}
    evaluation = OLD / layout.evaluation_path(build)
    assert without_nulls(encode_with_schema(read_evaluation(evaluation))) == without_nulls(plain(evaluation))


def test_tasks_have_the_same_keys() -> None:
    paths = sorted((OLD / layout.TASKS).iterdir())
    assert len(paths) == 14
    for path in paths:
        assert read_task(path).to_json() == plain(path)


def test_receipts_have_the_same_content() -> None:
    tuned = sorted((OLD / "work").glob("tuned*/**/*.json"))
    assert len(tuned) == 9
    for path in tuned:
        for held in plain(path).get("receipts", [plain(path)]):
            receipt = read_receipts([path])[held["task_key"]]
            assert (receipt.run_key, receipt.config, receipt.latency_s) == (
                held["run_key"], held["config"], held["latency_s"],
            )  # fmt: skip
            assert [each.config for each in receipt.rivals] == [each["config"] for each in held["rivals"]]
            assert [each.config for each in receipt.designs] == [each["config"] for each in held["designs"]]
    (path,) = (OLD / "work/refined").iterdir()
    assert encode_with_schema(read_refined(path)) == plain(path)


def test_nothing_is_tuned_again(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assumes that the tuner and templates have not changed, and that extracting finds the same tasks."""
    monkeypatch.setattr("anole.project.pipeline.TUNER_VERSION", 4)
    monkeypatch.setattr(TunerSettings, "to_json", settings_of_then)
    monkeypatch.setattr(
        Pipeline, "origin", lambda _, model, target: read_manifest(old / layout.manifest_path(model, target)).origin
    )
    pipeline = Pipeline.load(old / "models.yaml")
    assert tuple(pipeline.spec.builds) == MEASURED_ELSEWHERE
    for build in pipeline.spec.builds.values():
        assert pipeline.unmeasured(build) == []
        assert all((old / receipt).exists() for receipt in pipeline.receipts(build))
        shards = {layout.SHARDS / key / f"{pipeline.run(build, key).key}.jsonl" for key in manifest_keys(old, build)}
        assert all((old / shard).exists() for shard in shards)
    assert [step.stage for step in make_plan(pipeline).steps] == ["merge"]


def settings_of_then(settings: TunerSettings) -> dict[str, Any]:
    """Return the former settings of a preset's runs; parts of DCOC have changed since."""
    runs = [read_shard(path).run for path in sorted((OLD / layout.SHARDS).glob("*/*.jsonl"))]
    return next(dict(run.settings) for run in runs if run.preset == settings.preset)


def test_tasks_of_changed_tuners_are_tuned_again(old: Path) -> None:
    pipeline = Pipeline.load(old / "models.yaml")
    build = pipeline.spec.builds["residual-accelerator-dcoc"]
    shards = [layout.SHARDS / key / f"{pipeline.run(build, key).key}.jsonl" for key in manifest_keys(old, build)]
    assert shards and not any((old / shard).exists() for shard in shards)


def manifest_keys(project: Path, build: Any) -> list[str]:
    return [task.key for task in read_manifest(project / layout.manifest_path(build.model, build.target)).tasks]


def test_merging_gives_the_same_database(old: Path, tmp_path: Path) -> None:
    database = tmp_path / "new.sqlite"
    merge_builds([old / "builds" / build for build in BUILDS], old / layout.SHARDS, database)
    assert rows(database) == rows(old / layout.DATABASE)


def test_merging_into_the_old_database_changes_nothing(old: Path) -> None:
    before = rows(old / layout.DATABASE)
    merge_builds([old / "builds" / build for build in BUILDS], old / layout.SHARDS, old / layout.DATABASE)
    assert rows(old / layout.DATABASE) == before


def test_shards_can_be_restored_from_the_old_database(old: Path, tmp_path: Path) -> None:
    taken = import_records(old / layout.DATABASE, tmp_path / "shards")
    paths = sorted((old / layout.SHARDS).glob("*/*.jsonl"))
    assert (taken.new, taken.trials) == (len(paths), sum(len(read_shard(path).trials) for path in paths))
    for path in paths:
        mine, theirs = read_shard(tmp_path / "shards" / path.relative_to(old / layout.SHARDS)), read_shard(path)
        assert (mine.run.key, mine.task.key, mine.trials) == (theirs.run.key, theirs.task.key, theirs.trials)
        assert (mine.confirmations, mine.iterations, mine.space) == (
            theirs.confirmations, theirs.iterations, theirs.space,
        )  # fmt: skip


ADDED = ("sealed", "output_variation", "variation_error", "redrawn_error", "exact_error", "reference_exact_error")
ADDED += ("reference_sensitivity", "nearby_error", "averaged_error", "averaged_draws", "speedup_low", "speedup_high")
ADDED += ("narrow_error", "rounded_error", "precision", "reference_precision")
"""The columns that later versions added."""

ADDED_TABLES = ("size_latency", "load_latency", "kernel_profile", "kernel_latency")


def rows(database: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of the old tables, in order of columns, with builds' descriptions without nulls."""
    with sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True) as connection:
        names = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
        tables = {}
        for name in names:
            if name not in FORMER_TABLES:
                cursor = connection.execute(f"select * from {name}")
                columns = sorted(
                    (column, at) for at, (column, *_) in enumerate(cursor.description) if column not in ADDED
                )
                tables[name] = sorted(
                    (tuple(_comparable(column, row[at]) for column, at in columns) for row in cursor), key=repr
                )
    assert not any(tables.pop(name, []) for name in ADDED_TABLES), "old records have no rows in new tables"
    return tables


def _comparable(column: str, value: Any) -> Any:
    return json.dumps(without_nulls(json.loads(value)), sort_keys=True) if column == "manifest" else value
