"""Records made elsewhere: taken over whole, and never in place of longer ones."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from anole.errors import StoreError
from anole.merge.exchange import TakenOver, import_records
from anole.record import Source
from anole.store.shard import Shard, read_shard, shard_path


def contents(folder):
    return {path.name: read_shard(path) for path in folder.glob("*/*.jsonl")}


@pytest.mark.parametrize("form", ["database", "folder"])
def test_all_that_is_known_of_all_runs_is_taken_over(project, tmp_path, form) -> None:
    project.fill()
    project.merge()
    taken = import_records(project.database if form == "database" else project.shards, tmp_path / "here")
    assert taken == TakenOver(runs=4, known=0, trials=15)
    here, there = contents(tmp_path / "here"), contents(project.shards)
    if form == "database":
        # There what is known of a space belongs to the task, and so to all of its runs.
        here = {name: replace(content, space=there[name].space) for name, content in here.items()}
    assert here == there
    again = import_records(project.database, tmp_path / "here")
    assert again == TakenOver(runs=0, known=4, trials=0)


def test_what_a_run_learned_from_is_taken_over(project, tmp_path) -> None:
    run = project.run_of(project.CONV)
    with Shard.open(project.shards, run, project.CONV) as shard:
        shard.append_sources([Source(project.WIDE.key, project.run_of(project.WIDE).key, 7)])
    project.tune(run, project.CONV, [1e-3])
    project.merge()
    import_records(project.database, tmp_path / "here")
    assert contents(tmp_path / "here") == contents(project.shards)


def test_the_longer_state_of_a_run_is_kept(project, new_project, tmp_path) -> None:
    other, run = new_project(), project.run_of(project.CONV)
    project.tune(run, project.CONV, [3e-3, 2e-3])
    other.tune(run, project.CONV, [3e-3, 2e-3, 1e-3])
    assert import_records(project.shards, other.shards) == TakenOver(0, 1, 0)
    assert import_records(other.shards, project.shards) == TakenOver(1, 0, 3)
    assert len(read_shard(shard_path(project.shards, run)).trials) == 3


def test_a_run_that_is_being_tuned_is_left_alone(project, new_project) -> None:
    other, run = new_project(), project.run_of(project.CONV)
    other.tune(run, project.CONV, [3e-3])
    with Shard.open(project.shards, run, project.CONV):
        with pytest.raises(StoreError, match="is in use"):
            import_records(other.shards, project.shards)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [("nothing", None, "there is no such database"), ("notes.txt", "hello", "is not a database of trials")],
)
def test_what_holds_no_records_is_refused(tmp_path, name, text, message) -> None:
    if text is not None:
        (tmp_path / name).write_text(text * 1000)
    with pytest.raises(StoreError, match=message):
        import_records(tmp_path / name, tmp_path / "here")
    assert not os.path.exists(tmp_path / "here")
