"""Merging shards and documents into the database: content, precedence, repetition and errors."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.codec import encode
from anole.documents.build import read_build, write_build
from anole.documents.evaluation import read_evaluation
from anole.documents.manifest import read_manifest
from anole.errors import DocumentError, StoreError
from anole.merge.database import Merged, merge_files
from anole.record import Remeasurement
from anole.store.content import encode_shard, parse_shard, seal_lines
from anole.store.shard import read_shard

from ..examples import examples
from ..record_project import as_first_schema

LATER = "2030-01-01T00:00:00.000Z"


def assert_rows_match(rows: Sequence[Mapping[str, Any]], records: Sequence[Any]) -> None:
    assert len(rows) == len(records)
    for row, record in zip(rows, records, strict=True):
        plain = encode(record)
        names = plain.keys() & row.keys()
        found = {name: json.loads(row[name]) if isinstance(plain[name], (dict, list)) else row[name] for name in names}
        assert found == {name: plain[name] for name in names} != {}


def test_the_database_matches_the_merged_shards(project) -> None:
    project.fill()
    assert project.merge() == Merged(changed_runs=4, runs=4, trials=15)
    for path in project.shards.glob("*/*.jsonl"):
        content = read_shard(path)
        key = content.run.key
        assert_rows_match(project.rows("select * from run where key = ?", key), [content.run])
        (task,) = project.rows("select * from task where key = ?", content.task.key)
        stored = {name: json.loads(task[name]) for name in ("workload", "target")}
        assert stored.items() <= content.task.to_json().items()
        for table, records in (("trial", content.trials), ("confirmation", content.confirmations)):
            assert_rows_match(project.rows(f"select * from {table} where run_key = ? order by number", key), records)
        logs = project.rows("select number, log from iteration where run_key = ?", key)
        assert {row["number"]: json.loads(row["log"]) for row in logs} == content.iterations


@pytest.mark.parametrize("locked", [None, True])
def test_only_a_locked_config_may_refer_to_a_missing_run(project, locked: bool | None) -> None:
    run = project.run_of(project.CONV)
    project.extract("resnet18", [(project.CONV, 4)])
    folder = project.compile("resnet18", [(project.CONV, 4, run)]).parent
    build = read_build(folder)
    write_build(folder, replace(build, tasks=(replace(build.tasks[0], locked=locked),)))
    if locked is None:
        with pytest.raises(StoreError, match=rf"its run {run.key} of .* has no shard; compile it again"):
            project.merge()
        return
    project.merge()
    assert [row["run_key"] for row in project.rows("select run_key from build_task")] == [None]
    project.tune(run, project.CONV, [2e-3])
    project.merge()
    assert [row["run_key"] for row in project.rows("select run_key from build_task")] == [run.key]


def test_the_database_matches_the_merged_documents(project) -> None:
    project.fill()
    project.merge()
    manifest = read_manifest(project.folder / "work/models/resnet34/cpu.json")
    build = read_build(project.folder / "builds/resnet18-cpu")
    evaluation = read_evaluation(project.folder / "work/evaluations/resnet18-cpu.json")
    profile = evaluation.kernel_profile
    loads = sorted(evaluation.load_latencies, key=lambda load: (load.neighbours, load.engine))
    at_sizes = [latency for each in evaluation.sizes_latencies for latency in each.latencies]
    of_build = "where build = 'resnet18-cpu' order by"
    for sql, records in [
        ("select * from model where name = 'resnet34'", [manifest]),
        ("select *, task_key as key from model_task where model = 'resnet34' order by position", manifest.tasks),
        ("select * from build where name = 'resnet18-cpu'", [build]),
        (f"select *, task_key as key from build_task {of_build} position", build.tasks),
        (f"select * from refinement {of_build} number", build.tasks[0].refined),
        (f"select * from evaluation {of_build} reference desc", evaluation.latencies),
        (f"select * from evaluation {of_build} reference", [evaluation] * 2),
        ("select * from size_latency order by sizes, reference desc", at_sizes),
        ("select * from size_latency order by sizes", [each for each in evaluation.sizes_latencies for _ in range(2)]),
        ("select * from load_latency order by neighbours, engine", loads),
        ("select * from load_latency", [evaluation] * len(loads)),
        ("select * from kernel_profile", [profile]),
        ("select * from kernel_latency order by number", profile.kernels),
    ]:
        assert_rows_match(project.rows(sql), records)
    (row,) = project.rows("select * from build where name = 'resnet18-cpu'")
    manifest = json.loads((project.folder / "builds/resnet18-cpu/build.json").read_text())
    assert json.loads(row["manifest"]) == {name: manifest[name] for name in manifest if name != "crc"}
    assert row["coverage_flop_share"] == manifest["coverage"]["share"] < 1
    matched = [(task["matched"], task["reason"]) for task in manifest["tasks"]]
    assert matched == [("tuned", None), ("default", "no trial succeeded")]


def test_an_empty_project_gives_an_empty_database(project) -> None:
    assert project.merge() == Merged(changed_runs=0, runs=0, trials=0)
    assert project.rows("select * from best_trial") == []


@pytest.fixture(scope="module")
def states(new_project: Callable) -> list[tuple[Path, list[bytes]]]:
    """The path of the shard of each of three runs, and its possible states, newest last."""
    project = new_project()
    found = []
    for task, preset in ((project.CONV, "autotvm"), (project.CONV, "random"), (project.DENSE, "autotvm")):
        run = project.run_of(task, preset)
        path = project.tune(run, task, [3e-3, None, 2e-3, 2.5e-3], [2.1e-3])
        grown = path.read_bytes()
        path.unlink()
        content = read_shard(project.tune(run, task, [4e-3, 1e-3]))
        restarted = encode_shard(replace(content, started_at=LATER), path)
        young = b"".join(grown.splitlines(keepends=True)[:4])
        truncated = grown[:-20]
        found.append((path.relative_to(project.shards), [young, truncated, grown, restarted]))
    return found


@settings(max_examples=examples(25), deadline=None)
@given(data=st.data())
def test_the_order_partition_and_repetition_of_copies_do_not_matter(
    new_project: Callable, states: list[tuple[Path, list[bytes]]], dump: Callable, data: st.DataObject
) -> None:
    project = new_project()
    runs = range(len(states))
    parts = data.draw(
        st.lists(st.dictionaries(st.sampled_from(runs), st.integers(0, 3), min_size=1), min_size=1, max_size=3)
    )
    folders = []
    for index, part in enumerate(parts):
        folders.append(project.folder / f"part{index}")
        for run, state in part.items():
            place, contents = states[run]
            path = folders[-1] / place.with_suffix(f".{state:012x}.jsonl")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(contents[state])
    shuffled = data.draw(st.permutations(folders + folders[:1]))
    for name, order in (("straight", folders), ("shuffled", shuffled)):
        for folder in order:
            project.merge(shards=folder, database=project.folder / f"{name}.sqlite")
    together = project.folder / "all"
    for index, folder in enumerate(folders):
        for path in folder.glob("*/*.jsonl"):
            (together / path.parent.name).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, together / path.parent.name / f"{index}-{path.name}")
    project.merge(shards=together, database=project.folder / "together.sqlite")
    straight = dump(project.folder / "straight.sqlite")
    assert straight == dump(project.folder / "shuffled.sqlite") == dump(project.folder / "together.sqlite")
    assert len(straight["run"]) == len({run for part in parts for run in part})


@settings(max_examples=examples(15), deadline=None)
@given(data=st.data())
def test_the_database_matches_the_local_shards_whatever_it_contained(
    new_project: Callable, states: list[tuple[Path, list[bytes]]], dump: Callable, data: st.DataObject
) -> None:
    project = new_project()
    for _ in range(2):
        for place, contents in states:
            for path in (project.shards / place, (project.shards / place).with_suffix(".0123456789ab.jsonl")):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data.draw(st.sampled_from(contents)))
        project.merge()
    fresh = project.folder / "fresh.sqlite"
    for path in project.shards.glob("*/*.0123456789ab.jsonl"):
        path.unlink()
    project.merge(database=fresh)
    assert dump(project.database) == dump(fresh)


def test_a_local_shard_wins_over_a_longer_newer_state_in_the_database(project) -> None:
    run = project.run_of(project.CONV)
    path = project.tune(run, project.CONV, [3e-3, 2e-3, 1e-3])
    project.merge()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    merged = project.merge()
    assert (merged.changed_runs, merged.trials) == (1, 2)
    assert merged.replaced == (
        f"{path}: 1 trials that the database had are not in this shard; the database now matches the shard",
    )
    project.tune(run, project.CONV, [1.5e-3])
    assert project.merge().replaced == ()
    rows = project.rows("select latency_s from trial order by number")
    assert [row["latency_s"] for row in rows] == [3e-3, 2e-3, 1.5e-3]
    path.unlink()
    project.tune(run, project.CONV, [4e-3])
    encoded = encode_shard(replace(read_shard(path), started_at="2020-01-01T00:00:00.000Z"), path)
    path.write_bytes(encoded.replace(b"2026-11-21T10:00:00", b"2026-11-21T10:00:01"))
    content = parse_shard(path, as_first_schema(path.read_bytes()))
    assert content is not None
    path.write_bytes(seal_lines(content, path.read_bytes()))
    assert "3 trials that the database had" in project.merge().replaced[0]
    assert project.rows("select latency_s from trial") == [{"latency_s": 4e-3}]


def test_a_trial_that_is_measured_again_is_not_reported_as_lost(project) -> None:
    run = project.run_of(project.CONV)
    project.tune(run, project.CONV, [3e-3, None])
    project.merge()
    with project.open(run) as shard:
        trial = project.trial_of(1, 1e-3, project.CONV.workload.flop)
        shard.append_remeasurement(Remeasurement(1, trial.measurement, trial.gflops, LATER))
    assert project.merge() == Merged(changed_runs=1, runs=1, trials=2)
    assert [row["latency_s"] for row in project.rows("select latency_s from trial order by number")] == [3e-3, 1e-3]


def test_a_restored_shard_of_the_same_size_is_merged(project) -> None:
    path = project.tune(project.run_of(project.CONV), project.CONV, [3e-3])
    good = path.read_bytes()
    content = read_shard(path)
    (trial,) = content.trials
    measurement = replace(trial.measurement, run_s=0.3)
    path.write_bytes(encode_shard(replace(content, trials=(replace(trial, measurement=measurement),)), path))
    project.merge()
    path.write_bytes(good)
    assert len(good) == project.rows("select shard_bytes from run")[0]["shard_bytes"]
    assert project.merge().changed_runs == 1
    assert project.rows("select run_s from trial") == [{"run_s": 0.2}]


def test_a_copy_is_ignored_with_a_message_if_there_is_a_local_shard(project, new_project: Callable) -> None:
    run, other = project.run_of(project.CONV), new_project()
    local = project.tune(run, project.CONV, [3e-3])
    copy = local.with_name(f"{run.key}.0123456789ab.jsonl")
    copy.write_bytes(other.tune(run, project.CONV, [1e-3, 2e-3]).read_bytes())
    ignored = (f"{copy}: is not merged: there is a local shard of its run",)
    assert project.merge() == Merged(changed_runs=1, runs=1, trials=1, ignored=ignored)
    assert project.merge().ignored == ignored
    local.write_bytes(b"")
    assert project.merge().trials == 2
    newer = local.with_name(f"{run.key}.ba9876543210.jsonl")
    newer.write_bytes(encode_shard(replace(read_shard(copy), started_at=LATER), newer))
    assert project.merge().ignored == (f"{copy}: is not merged: {newer.name} is a newer state of its run",)
    newer.unlink()
    assert project.merge().ignored == (f"{copy}: is not merged: the database has a newer state of its run",)


def test_a_shard_with_the_name_of_another_run_is_rejected(project) -> None:
    path = project.tune(project.run_of(project.CONV), project.CONV, [3e-3])
    other = project.run_of(project.CONV, seed=1)
    path.rename(path.with_name(f"{other.key}.jsonl"))
    with pytest.raises(StoreError, match=r"holds the run .*, not the one in its name"):
        project.merge()


def test_shards_without_checksums_and_runs_without_shards_are_counted(project) -> None:
    path = project.tune(project.run_of(project.CONV), project.CONV, [3e-3])
    path.write_bytes(as_first_schema(path.read_bytes()))
    other = project.tune(project.run_of(project.DENSE), project.DENSE, [3e-3])
    assert project.merge() == Merged(changed_runs=2, runs=2, trials=2, unsealed_runs=1)
    assert project.rows("select sealed from run order by sealed") == [{"sealed": 0}, {"sealed": 1}]
    other.unlink()
    assert project.merge() == Merged(changed_runs=0, runs=2, trials=2, unsealed_runs=1, runs_without_shard=1)


def test_merging_twice_changes_nothing(project, dump: Callable) -> None:
    project.fill()
    project.merge()
    before, inode = dump(project.database), project.database.stat().st_ino
    assert project.merge() == Merged(changed_runs=0, runs=4, trials=15)
    assert (dump(project.database), project.database.stat().st_ino) == (before, inode)


def test_a_longer_run_is_merged_and_deleted_files_stay_in_the_database(project) -> None:
    project.fill()
    project.merge()
    shutil.rmtree(project.folder / "work" / "models" / "resnet34")
    shutil.rmtree(project.shards / project.WIDE.key)
    project.tune(project.run_of(project.DENSE), project.DENSE, [1e-3])
    os.remove(project.folder / "builds/resnet34-cpu/build.json")
    assert project.merge() == Merged(changed_runs=1, runs=4, trials=16, runs_without_shard=1)
    assert len(project.rows("select * from model_latency")) == 4
    assert len(project.rows("select * from best_trial")) == 3


def test_merged_documents_win_over_newer_ones_in_the_database(project) -> None:
    project.fill()
    project.compile("resnet18", [(project.CONV, 4, None)], created_at="2026-11-22T00:00:00.000Z", preset="anole")
    evaluation = project.evaluate("resnet18-cpu", 0.015, created_at="2026-11-22T01:00:00.000Z")
    project.merge()
    folder = project.compile("resnet18", [(project.CONV, 4, None)], preset="random").parent
    evaluation.unlink()
    merged = project.merge()
    assert merged.replaced == (f"{folder}/build.json: replaced a build of this name that was compiled later",)
    assert project.rows("select * from model_latency where build = 'resnet18-cpu'") == []
    project.evaluate("resnet18-cpu", 0.016)
    assert project.merge().replaced == ()
    project.evaluate("resnet18-cpu", 0.014, created_at="2026-11-21T11:30:00.000Z")
    assert project.merge().replaced == (f"{evaluation}: replaced a later evaluation of this build",)
    found = project.rows("select preset, latency_s from model_latency where build = 'resnet18-cpu'")
    assert found == [{"preset": "random", "latency_s": 0.014}] * 2


def test_the_newest_of_several_documents_with_one_name_wins(project, dump: Callable) -> None:
    project.fill()
    old = project.folder / "old"
    shutil.copytree(project.folder / "builds", old / "builds")
    shutil.copytree(project.folder / "work/evaluations", old / "work/evaluations")
    project.compile("resnet18", [(project.CONV, 4, None)], created_at="2026-11-22T00:00:00.000Z", preset="anole")
    project.evaluate("resnet18-cpu", 0.015, created_at="2026-11-22T01:00:00.000Z")
    project.merge()
    newer = dump(project.database)
    manifests = sorted(project.folder.glob("work/models/*/*.json"))
    builds = sorted(project.folder.glob("**/builds/*"))
    evaluations = sorted(project.folder.glob("**/evaluations/*.json"))
    for step in (1, -1):
        both = project.folder / f"both{step}.sqlite"
        merged = merge_files(project.shards, manifests, builds[::step], evaluations[::step], both)
        assert dump(both) == newer
        of_18 = f"{old}/builds/resnet18-cpu: is not merged: {project.folder}/builds/resnet18-cpu has the same name "
        assert len(merged.ignored) == 4 and any(text.startswith(of_18) for text in merged.ignored)


def test_refinements_of_the_newest_build_are_stored(project) -> None:
    project.fill()
    project.merge()
    rows = project.rows("select build, task_key, number, latency_s, latency_alone_s, chosen from refinement")
    of_conv = [("resnet18-cpu", project.CONV.key, number) for number in range(3)]
    assert [tuple(row.values())[:3] for row in rows] == of_conv
    assert [tuple(row.values())[3:] for row in rows] == [(2.2e-3, 2e-3, 0), (1.9e-3, 2.1e-3, 1), (None, 3e-3, 0)]
    project.compile("resnet18", [(project.CONV, 4, None)], created_at="2026-11-22T00:00:00.000Z")
    project.merge()
    assert project.rows("select * from refinement") == []


def test_views_omit_evaluations_of_a_former_build(project) -> None:
    project.fill()
    project.compile("resnet18", [(project.CONV, 4, None)], created_at="2026-11-22T00:00:00.000Z")
    project.merge()
    assert {row["build"] for row in project.rows("select * from model_latency")} == {"resnet34-cpu"}
    assert project.rows("select * from model_load_latency") == []


def test_the_rows_of_an_evaluation_are_replaced_with_it(project) -> None:
    def n_rows() -> list[int]:
        project.merge()
        return [len(project.rows(f"select * from {table}")) for table in ("load_latency", "kernel_latency")]

    project.fill()
    assert n_rows() == [6, 3]
    project.evaluate("resnet18-cpu", loads=project.LOADS[:2], created_at="2026-11-21T13:00:00.000Z")
    assert n_rows() == [2, 0]
    project.compile("resnet18", [(project.CONV, 4, None)], created_at="2026-11-22T00:00:00.000Z")
    evaluation = project.evaluate("resnet18-cpu", created_at="2026-11-22T01:00:00.000Z", loads=project.LOADS)
    assert n_rows() == [6, 0]
    project.compile("resnet18", [(project.CONV, 4, None)])
    evaluation.unlink()
    assert n_rows() == [0, 0]


def test_decreasing_percentiles_are_rejected(project) -> None:
    project.fill()
    project.evaluate("resnet18-cpu", loads=(replace(project.LOADS[0], p95_s=1e-3),))
    with pytest.raises(StoreError, match="does not fit into the database: CHECK constraint failed: p95_s >= p50_s"):
        project.merge()


def test_only_complete_files_are_read(project) -> None:
    project.fill()
    (path,) = project.shards.glob(f"{project.WIDE.key}/*")
    data = path.read_bytes()
    path.write_bytes(data[:-30])
    path.with_name(f".{path.name}.abc").write_bytes(b"being written")
    path.with_name(f".half{path.name}").write_bytes(b"being written\n")
    path.with_name(f"begun{path.name}").write_bytes(data[:100])
    assert project.merge() == Merged(changed_runs=4, runs=4, trials=14)
    path.write_bytes(data)
    assert project.merge() == Merged(changed_runs=1, runs=4, trials=15)


def corrupt_shard(project) -> str:
    path = project.tune(project.run_of(project.CONV), project.CONV, [1e-3, 2e-3])
    path.write_bytes(path.read_bytes().replace(b'"kind":"trial"', b'"kind":"trail"', 1))
    return f"{path}:"


def too_large_number(project) -> str:
    path = project.tune(project.run_of(project.CONV, seed=77), project.CONV, [1e-3])
    path.write_bytes(as_first_schema(path.read_bytes()).replace(b'"seed":77', b'"seed":%d' % (1 << 64)))
    return f"{path}:1: "


def corrupt_build(project) -> str:
    path = project.folder / "builds" / "resnet18-cpu" / "build.json"
    path.write_text(path.read_text()[:-10])
    return f"{path}: is not JSON"


def missing_task(project) -> str:
    project.extract("another", [(project.CONV, 1), (project.OTHER, 1)])
    path = project.folder / "work" / "tasks" / f"{project.OTHER.key}.json"
    path.unlink()
    return f"{path}: there is no such file"


def duplicate_in_a_manifest(project) -> str:
    path = project.extract("another", [(project.CONV, 1), (project.CONV, 1)])
    return f"{path}: does not fit into the database: UNIQUE"


def build_without_model(project) -> str:
    path = project.compile("nobody", [(project.CONV, 1, None)])
    return f"{path}: there is no manifest of its model nobody"


def build_without_run(project) -> str:
    path = project.compile("resnet18", [(project.CONV, 1, project.run_of(project.CONV, seed=9))], LATER)
    return f"{path}: its run "


def build_without_task(project) -> str:
    path = project.compile("resnet18", [(project.OTHER, 1, None)], LATER)
    return f"{path}: its task {project.OTHER.label}"


def evaluation_without_build(project) -> str:
    return f"{project.evaluate('nothing')}: there is no build nothing"


@pytest.mark.parametrize(
    "damage",
    [
        corrupt_shard,
        too_large_number,
        corrupt_build,
        missing_task,
        duplicate_in_a_manifest,
        build_without_model,
        build_without_run,
        build_without_task,
        evaluation_without_build,
    ],
)
def test_a_failed_merge_names_the_file_and_leaves_the_database_unchanged(project, damage: Callable[..., str]) -> None:
    project.fill()
    project.merge()
    before = {path: path.read_bytes() for path in project.database.parent.iterdir()}
    assert len(before) == 2
    project.tune(project.run_of(project.CONV, seed=3), project.CONV, [1e-3])
    message = damage(project)
    with pytest.raises((StoreError, DocumentError)) as caught:
        project.merge()
    assert str(caught.value).startswith(message)
    assert {path: path.read_bytes() for path in project.database.parent.iterdir()} == before
