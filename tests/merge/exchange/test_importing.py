"""Importing records from other machines: completely, and without replacing local ones."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from anole.errors import ShardInUseError, StoreError
from anole.merge.exchange.importing import ImportCounts, import_all, import_records
from anole.store.shard import read_shard, shard_path


def contents(folder):
    return {path.name: read_shard(path) for path in folder.glob("*/*.jsonl")}


@pytest.mark.parametrize("form", ["database", "folder"])
def test_all_records_of_all_runs_are_imported(project, tmp_path, form) -> None:
    project.fill()
    project.merge()
    imported = import_records(project.database if form == "database" else project.shards, tmp_path / "here")
    assert imported == ImportCounts(new=4, trials=15)
    here, there = contents(tmp_path / "here"), contents(project.shards)
    if form == "database":
        # In a database, the facts of a space belong to the task, and thus to all of its runs.
        here = {name: replace(content, space=there[name].space) for name, content in here.items()}
    assert here == there
    again = import_records(project.database, tmp_path / "here")
    assert again == ImportCounts(known=4)


def test_a_run_that_was_continued_elsewhere_is_updated(project, new_project) -> None:
    other, run = new_project(), project.run_of(project.CONV)
    path = project.tune(run, project.CONV, [3e-3, 2e-3])
    import_records(project.shards, other.shards)
    other.tune(run, project.CONV, [1e-3], [0.9e-3])
    assert import_records(project.shards, other.shards) == ImportCounts(known=1)
    assert import_records(other.shards, project.shards) == ImportCounts(continued=1, trials=1)
    assert read_shard(path) == read_shard(shard_path(other.shards, run))
    project.tune(run, project.CONV, [0.5e-3])
    assert len(read_shard(path).trials) == 4


@pytest.mark.parametrize("form", ["database", "folder"])
def test_both_of_two_different_states_of_a_run_are_kept(project, new_project, form) -> None:
    other, run = new_project(), project.run_of(project.CONV)
    path = project.tune(run, project.CONV, [3e-3, 2e-3])
    local = path.read_bytes()
    remote = read_shard(other.tune(run, project.CONV, [3.1e-3, 2e-3, 1e-3]))
    other.merge()
    done = import_records(other.database if form == "database" else other.shards, project.shards)
    (copy,) = done.kept_beside
    assert done == ImportCounts(kept_beside=(copy,), trials=3)
    assert copy == path.with_name(f"{run.key}.{remote.digest[:12]}.jsonl")
    assert path.read_bytes() == local
    assert read_shard(copy).trials == remote.trials
    for source in (other.database, other.shards):
        assert import_records(source, project.shards) == ImportCounts(known=1)


def test_a_run_that_is_being_tuned_is_skipped_and_the_others_are_imported(project, new_project) -> None:
    other = new_project()
    busy, free = project.run_of(project.CONV), project.run_of(project.DENSE)
    for run, task in ((busy, project.CONV), (free, project.DENSE)):
        other.tune(run, task, [3e-3])
    with project.open(busy) as shard:
        with pytest.raises(ShardInUseError, match="1 runs are in use on this machine and were not imported"):
            import_records(other.shards, project.shards)
        assert len(read_shard(shard_path(project.shards, free)).trials) == 1
        shard.append_trial(project.trial_of(0, 3.3e-3))
    assert len(import_records(other.shards, project.shards).kept_beside) == 1
    assert len(read_shard(shard_path(project.shards, busy)).trials) == 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [("nothing", None, "there is no such database"), ("notes.txt", "hello", "is not a database of trials")],
)
def test_a_source_without_records_is_rejected(tmp_path, name, text, message) -> None:
    if text is not None:
        (tmp_path / name).write_text(text * 1000)
    with pytest.raises(StoreError, match=message):
        import_records(tmp_path / name, tmp_path / "here")
    assert not os.path.exists(tmp_path / "here")


def test_all_sources_are_checked_before_anything_is_written(project, new_project, tmp_path) -> None:
    project.fill()
    project.merge()
    other = new_project()
    other.tune(other.run_of(other.OTHER), other.OTHER, [1e-3])
    broken = other.tune(other.run_of(other.OTHER, seed=1), other.OTHER, [1e-3, 2e-3])
    undamaged = broken.read_bytes()
    broken.write_bytes(undamaged.replace(b'"trial"', b'"trail"', 1))
    here, sources = tmp_path / "here", [project.database, other.shards]
    with pytest.raises(StoreError, match="trail"):
        list(import_all(sources, here))
    assert not here.exists()
    broken.write_bytes(undamaged)
    done = dict(import_all(sources, here))
    assert done == {project.database: ImportCounts(new=4, trials=15), other.shards: ImportCounts(new=2, trials=3)}
    again = dict(import_all(sources, here))
    assert again == {project.database: ImportCounts(known=4), other.shards: ImportCounts(known=2)}


def test_a_source_whose_runs_are_in_use_does_not_stop_the_others(project, new_project) -> None:
    busy, free, run = new_project(), new_project(), project.run_of(project.CONV)
    busy.tune(run, project.CONV, [3e-3])
    free.tune(free.run_of(free.DENSE), free.DENSE, [3e-3])
    with project.open(run):
        done = import_all([busy.shards, free.shards], project.shards)
        assert next(done) == (free.shards, ImportCounts(new=1, trials=1))
        with pytest.raises(ShardInUseError, match="1 runs are in use on this machine"):
            next(done)
