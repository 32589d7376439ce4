"""Exporting records for other machines: selection of runs, and complete records with their origin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anole.errors import StoreError
from anole.merge.exchange.exporting import Exported, describe_origin, export_records
from anole.merge.exchange.importing import import_records
from anole.merge.exchange.selection import Selection
from anole.record import Remeasurement, Source
from anole.store.shard import shard_path

from ...record_project import dump_of

ALL = Selection()
TABLES = ("task", "space", "run", "warm_start", "iteration", "trial", "confirmation")


@pytest.fixture
def filled(project: Any) -> Any:
    """A project with every kind of record, including a run on another machine with a remeasured trial."""
    project.fill()
    run = project.run_of(project.CONV, seed=5)
    run.host["measured_at"] = {"rpc": "board:9090"}
    with project.open(run) as shard:
        shard.append_sources([Source(project.WIDE.key, project.run_of(project.WIDE).key, 7)])
    project.tune(run, project.CONV, [2e-3, None], [1.9e-3])
    with project.open(run) as shard:
        again = project.trial_of(1, 1e-3)
        shard.append_remeasurement(Remeasurement(1, again.measurement, again.gflops, "2026-11-22T10:00:00.000Z"))
    project.merge()
    return project


def rows(database: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of each table, without the columns of runs that describe the bytes of shards."""
    found = dump_of(database)
    return {table: [row[: 10 if table == "run" else None] for row in found[table]] for table in TABLES}


def export_keys(project: Any, selection: Selection, source: Path | None = None) -> set[str]:
    """Export the selected runs, and return their keys."""
    there = project.folder / "exported"
    manifests = project.folder.glob("work/models/*/*.json")
    done = export_records(source or project.shards, there, selection, manifests)
    found = {path.stem for path in there.glob("*/*.jsonl")}
    assert done.runs == len(found)
    for path in sorted(there.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    return found


@pytest.mark.parametrize("form", ["shards", "database"])
def test_exported_imported_and_merged_records_have_the_same_rows(
    filled: Any, new_project: Callable, tmp_path: Path, form: str
) -> None:
    source, there, other = getattr(filled, form), tmp_path / "there", new_project()
    assert export_records(source, there, ALL) == Exported(runs=5, tasks=3, trials=17)
    assert " (exported on " in describe_origin(there) and describe_origin(source) == ""
    assert import_records(there, other.shards).new == 5
    other.merge()
    assert rows(other.database) == rows(filled.database)
    for path in filled.shards.glob("*/*.jsonl") if form == "shards" else ():
        assert (other.shards / path.parent.name / path.name).read_bytes() == path.read_bytes()


def test_runs_can_be_selected_by_each_condition(filled: Any) -> None:
    conv, random, again, wide, dense = (
        run.key
        for run in (
            filled.run_of(filled.CONV),
            filled.run_of(filled.CONV, "random"),
            filled.run_of(filled.CONV, seed=5),
            filled.run_of(filled.WIDE),
            filled.run_of(filled.DENSE),
        )
    )
    all_runs = {conv, random, again, wide, dense}
    assert export_keys(filled, Selection(tasks=(filled.CONV.label,))) == {conv, random, again}
    assert export_keys(filled, Selection(tasks=(filled.WIDE.key[:8], filled.DENSE.key))) == {wide, dense}
    assert export_keys(filled, Selection(presets=("random",))) == {random}
    assert export_keys(filled, Selection(runs=(wide[:6],))) == {wide}
    assert export_keys(filled, Selection(targets=("cpu",))) == all_runs
    assert export_keys(filled, Selection(since="2026-11-22T10:00:00")) == {again}
    assert export_keys(filled, Selection(tasks=(filled.CONV.label,), presets=("random",))) == {random}
    for source in (filled.shards, filled.database):
        assert export_keys(filled, Selection(models=("resnet18",)), source) == all_runs - {wide}


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (Selection(tasks=("conv2d 64->64 k3x3 s1 56x57",)), "no run: did you mean 'conv2d 64->64 k3x3 s1 56x56'"),
        (Selection(presets=("autotvn",)), "did you mean 'autotvm'"),
        (Selection(targets=("gpu",)), "target 'gpu' matches no run: did you mean 'cpu'"),
        (Selection(models=("resnet",)), "did you mean 'resnet34'"),
        (Selection(runs=("abcdef0",)), "run 'abcdef0' matches no run$"),
        (Selection(presets=("random",), models=("resnet34",), since="2027-01-01T00:00:00"), "no run satisfies all"),
    ],
)
def test_unknown_names_are_reported_and_nothing_is_written(filled: Any, selection: Selection, message: str) -> None:
    manifests = filled.folder.glob("work/models/*/*.json")
    before = set(filled.folder.rglob("*"))
    with pytest.raises(StoreError, match=message):
        export_records(filled.shards, filled.folder / "there", selection, manifests)
    assert set(filled.folder.rglob("*")) == before


def test_selecting_a_model_needs_manifests_or_a_database(filled: Any) -> None:
    with pytest.raises(StoreError, match=r"no manifest or database here lists .* that does \(--from\)"):
        export_records(filled.shards, filled.folder / "there", Selection(models=("resnet18",)))


def test_existing_files_are_not_replaced(filled: Any) -> None:
    with pytest.raises(StoreError, match="already exists"):
        export_records(filled.shards, filled.shards, ALL)
    with pytest.raises(StoreError, match="records are exported as a folder of shards; give the"):
        export_records(filled.shards, filled.folder / "there.sqlite", ALL)
    with pytest.raises(StoreError, match="there is no such"):
        export_records(filled.folder / "nothing", filled.folder / "there", ALL)


def test_the_newest_copy_of_a_run_is_exported_unless_there_is_a_local_shard(
    project: Any, new_project: Callable, tmp_path: Path
) -> None:
    run = project.run_of(project.CONV)
    mine = project.tune(run, project.CONV, [3e-3]).read_bytes()
    for latencies_s in ([2e-3], [2.5e-3, 1e-3]):
        other = new_project()
        other.tune(run, project.CONV, latencies_s)
        import_records(other.shards, project.shards)
    export_records(project.shards, tmp_path / "own", ALL)
    assert shard_path(tmp_path / "own", run).read_bytes() == mine
    shard_path(project.shards, run).unlink()
    project.merge()
    assert export_records(project.shards, tmp_path / "copies", ALL).runs == 1
    (held,) = project.rows("select shard_bytes from run")
    assert shard_path(tmp_path / "copies", run).stat().st_size == held["shard_bytes"]
