"""Shards: appending, reading, truncated and corrupt lines, checksums, and locking."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.codec import encode
from anole.errors import StoreError
from anole.merge.stage import seal_shards
from anole.record import Confirmation, Measurement, Remeasurement, Run, Status, Trial
from anole.store.content import SCHEMA, encode_shard, parse_shard
from anole.store.lines import Chain, complete_lines, strip_checksum
from anole.store.shard import Shard, copy_path, is_copy, read_shard, run_key_in_name, shard_path, shard_paths

from ..examples import examples
from ..record_project import CONV

seconds = st.floats(0, 1e6)
failures = st.builds(
    Measurement,
    status=st.sampled_from([status for status in Status if status is not Status.OK]),
    error=st.none() | st.text(),
    build_s=seconds,
    run_s=seconds,
    relative_error=st.none() | seconds,
)
successes = st.builds(
    Measurement,
    status=st.just(Status.OK),
    latency_s=st.floats(1e-9, 1e6),
    latency_std_s=st.none() | seconds,
    cv=st.none() | seconds,
    repeats=st.integers(0, 1000),
    build_s=seconds,
    run_s=seconds,
)
measurements = failures | successes
values = st.integers(-(2**63), 2**63 - 1) | st.text() | st.booleans() | st.lists(st.integers(1, 512), max_size=4)
configs = st.dictionaries(st.text(), values, max_size=5)
times = st.datetimes().map(lambda time: time.isoformat(timespec="milliseconds") + "Z")


@st.composite
def trial_lists(draw: st.DrawFn) -> list[Trial]:
    distinct = draw(st.lists(configs, max_size=6, unique_by=lambda config: json.dumps(config, sort_keys=True)))
    found = [draw(measurements) for _ in distinct]
    speeds = [speed_of(measurement.latency_s) if measurement.latency_s else None for measurement in found]
    return [
        Trial(number, draw(st.integers(0, 9)), config, found[number], draw(seconds), speeds[number], draw(times))
        for number, config in enumerate(distinct)
    ]


confirmations = st.builds(Confirmation, configs, measurements, st.integers(0, 1000), st.integers(0, 10), times)
logs = st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False), max_size=4)


@settings(max_examples=examples(40), deadline=None)
@given(trial_lists(), st.lists(confirmations, max_size=3), st.lists(logs, max_size=3))
def test_appended_records_are_read_back(
    new_project: Callable, trials: list[Trial], confirmed: list[Confirmation], searched: list[dict[str, float]]
) -> None:
    project = new_project()
    run = project.run_of(project.CONV)
    with project.open(run) as shard:
        for number, log in enumerate(searched):
            shard.append_iteration(number, log)
        for trial in trials:
            shard.append_trial(trial)
        for confirmation in confirmed:
            shard.append_confirmation(confirmation)
    content = read_shard(shard_path(project.shards, run))
    assert content.run == run
    assert encode(content.run) == encode(run)
    assert content.task.to_json() == project.CONV.to_json()
    assert [encode(trial) for trial in content.trials] == [encode(trial) for trial in trials]
    assert [encode(found) for found in content.confirmations] == [encode(given) for given in confirmed]
    assert content.iterations == dict(enumerate(searched))
    with project.open(run) as shard:
        assert shard.content == content


def test_a_run_is_resumed_where_it_stopped(project) -> None:
    run = project.run_of(project.CONV)
    path = project.tune(run, project.CONV, [3e-3, None])
    head = path.read_bytes()
    moved = replace(run, host={"cpu": "another"}, versions={"tvm": "0.28"})
    assert moved.key == run.key
    project.tune(moved, project.CONV, [1e-3])
    content = read_shard(path)
    assert [trial.measurement.latency_s for trial in content.trials] == [3e-3, None, 1e-3]
    assert content.run.host == run.host
    assert path.read_bytes().startswith(head)


@pytest.fixture
def tuned(project) -> Path:
    """A shard of two trials, an iteration and a confirmation."""
    return project.tune(project.run_of(project.CONV), project.CONV, [3e-3, None], [2.9e-3])


def test_a_truncated_last_line_is_ignored_at_every_byte(project, tuned: Path) -> None:
    data = tuned.read_bytes()
    lines = data.splitlines(keepends=True)
    for size in range(len(data) + 1):
        cut = data[:size]
        n_complete = cut.count(b"\n") + (cut + b"\n" in {data[: len(cut) + 1]} and data[size : size + 1] == b"\n")
        assert complete_lines(cut) == b"".join(lines[:n_complete])
        content = parse_shard(tuned, complete_lines(cut))
        if n_complete == 0:
            assert content is None
        else:
            assert content is not None
            assert len(content.trials) == sum(b'"kind":"trial"' in line for line in lines[:n_complete])


@pytest.mark.parametrize("missing", [1, 2, 100, 10_000])
def test_a_truncated_last_line_is_removed_when_the_run_is_resumed(project, tuned: Path, missing: int) -> None:
    data = tuned.read_bytes()
    with tuned.open("r+b") as file:
        file.truncate(max(0, len(data) - missing))
    with project.open() as shard:
        n_trials = len(shard.trials)
        shard.append_trial(project.trial_of(n_trials))
    assert read_shard(tuned).trials[n_trials:] == (project.trial_of(n_trials),)
    assert n_trials == (0 if missing == 10_000 else 2)
    assert tuned.read_bytes().startswith(data) == (missing == 1)


def test_an_unwritten_end_counts_as_truncated(project, tuned: Path) -> None:
    """After a power loss, blocks of a line may be missing, or sectors from its first byte or from its second one."""
    data, run = tuned.read_bytes(), project.run_of(project.CONV)
    last = data.rfind(b"\n", 0, -1) + 1
    before, line, half = data[:last], data[last:], len(data[last:]) // 2
    for truncated, expected in (
        (data + b"\0" * 4096, data),
        (before + b"\0" * len(line), before),
        (before + line[:half].ljust(len(line), b"\0"), before),
        (before + b"\0" * half + line[half:], before),
        (before + b"\0" + line[1:], before),
    ):
        tuned.write_bytes(truncated)
        assert (len(read_shard(tuned).trials), len(read_shard(tuned).confirmations)) == (2, expected == data)
        project.open(run).close()
        assert tuned.read_bytes() == expected
    changed = data[:-5] + b"\0" + data[-4:]
    assert complete_lines(changed) == changed


def test_a_shard_without_a_complete_line_holds_no_run(project, tuned: Path) -> None:
    tuned.write_bytes(tuned.read_bytes()[:50])
    with pytest.raises(StoreError, match="holds no run"):
        read_shard(tuned)
    tuned.write_bytes(b"\0" * 4096)
    project.tune(project.run_of(project.CONV), project.CONV, [1e-3])
    assert tuned.read_bytes().endswith(b"}\n")
    assert len(read_shard(tuned).trials) == 1


OTHER_TASK = {
    "workload": {"operator": "dense", "batch": 1, "in_features": 2, "out_features": 3},
    "target": {"kind": "cpu"},
    "template_version": 1,
}


def edit_fields(line: int, **change: object) -> Callable[[list[bytes]], None]:
    """Return a function that changes fields of a line without a checksum."""

    def apply(lines: list[bytes]) -> None:
        lines[line - 1] = json.dumps({**json.loads(lines[line - 1]), **change}).encode()

    return apply


def replace_line(line: int, text: bytes) -> Callable[[list[bytes]], None]:
    return lambda lines: lines.__setitem__(line - 1, text)


def rewrite(path: Path, damage: Callable[[list[bytes]], None], *, schema: int = SCHEMA) -> None:
    """Damage the lines of a shard, and give them correct checksums, or none for schema 1."""
    lines = [strip_checksum(text) for text in path.read_bytes().split(b"\n")[:-1]]
    if schema == 1:
        edit_fields(1, schema=1)(lines)
    damage(lines)
    if schema > 1:
        chain = Chain.of(json.loads(lines[0]).get("key", ""))
        lines = [chain.seal(text) if text.endswith(b"}") else text for text in lines]
    path.write_bytes(b"\n".join([*lines, b""]))


@pytest.mark.parametrize(
    ("damage", "line", "problem"),
    [
        (replace_line(3, b'{"kind":"trial",'), 3, "cannot be read"),
        (replace_line(3, b""), 3, "cannot be read"),
        (replace_line(3, b"\xff\xfe"), 3, "cannot be read"),
        (replace_line(3, b'{"a":1}'), 3, "is not a record of kind trial, again, confirmation, iteration"),
        (replace_line(3, b'{"kind":"trail"}'), 3, "is not a record of kind"),
        (replace_line(1, b'{"kind":"trial"}'), 1, "is not a record of kind run"),
        (edit_fields(3, number="0"), 3, "trial: number is '0', not an integer"),
        (edit_fields(3, latency_s="fast"), 3, "latency_s is 'fast', not a number or null"),
        (edit_fields(3, latency_s=float("nan")), 3, "cannot be read"),
        (edit_fields(3, config=None), 3, "config is None, not an object"),
        (edit_fields(3, status="great"), 3, "status is 'great', not one of ok, rejected"),
        (edit_fields(3, created_at="now"), 3, "created_at is 'now'"),
        (edit_fields(4, number=0), 4, "found trial 0; expected trial 1"),
        (edit_fields(4, number=2), 4, "found trial 2; expected trial 1"),
        (lambda lines: lines.insert(3, lines[2]), 4, "the config of line 3 is measured again"),
        (edit_fields(2, log=3), 2, "iteration: log is 3, not an object"),
        (edit_fields(5, rank="first"), 5, "confirmation: rank is 'first'"),
        (edit_fields(1, seed=1), 1, "the run's key is"),
        (edit_fields(1, task={"workload": {"operator": "lstm"}}), 1, "the task cannot be read"),
        (edit_fields(1, task=OTHER_TASK), 1, "but the task dense 2->3 has the key"),
        (edit_fields(1, preset=None), 1, "run: preset is None, not text"),
        (edit_fields(1, seed=10**30), 1, "does not fit into 64 bits"),
        (edit_fields(1, seed=2**63), 1, "does not fit into 64 bits"),
        (edit_fields(3, latency_s=0.0), 3, "latency_s is 0.0; it must be from 1e-10 to 1e+06"),
        (edit_fields(3, latency_s=-1.0), 3, "latency_s is -1.0"),
        (edit_fields(3, latency_s=1e-300), 3, "latency_s is 1e-300"),
        (edit_fields(3, latency_s=None), 3, "the status is ok and latency_s is None"),
        (edit_fields(3, status="run_error"), 3, "the status is run_error and latency_s is 0.003"),
        (edit_fields(3, gflops=77.0), 3, "gflops is 77.0; 231211008 operations in 0.003 s are 77.07"),
        (edit_fields(3, gflops=None), 3, "gflops is None and latency_s is 0.003"),
        (edit_fields(3, run_s=-0.1), 3, "run_s is -0.1"),
        (edit_fields(3, iteration=-1), 3, "iteration is -1"),
        (edit_fields(2, log={"loss": 1e999}), 2, "cannot be read"),
        (replace_line(2, b'{"kind":"iteration","number":0,"log":{"loss":1e999}}'), 2, "Out of range float"),
        (replace_line(3, b'{"kind":"trial","config":"\\ud800"}'), 3, "cannot be read"),
        (replace_line(3, b'{"kind":"trial","config":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), 3, "cannot be read"),
        (replace_line(3, b'{"kind":"trial","config":' + b"[" * 100 + b"]" * 100 + b"}"), 3, "cannot be read"),
        (replace_line(5, b'{"kind":"again","number":7}'), 5, "again: status is missing"),
        (edit_fields(5, after_trials=-1), 5, "after_trials is -1"),
    ],
)
@pytest.mark.parametrize("schema", [1, SCHEMA])
def test_a_corrupt_line_is_named_and_nothing_is_changed(
    project, tuned: Path, damage: Callable[[list[bytes]], None], line: int, problem: str, schema: int
) -> None:
    rewrite(tuned, damage, schema=schema)
    damaged = tuned.read_bytes()
    for attempt in (lambda: read_shard(tuned), lambda: project.open()):
        with pytest.raises(StoreError) as caught:
            attempt()
        assert f"{tuned}:{line}: " in str(caught.value)
        assert problem in str(caught.value)
    assert tuned.read_bytes() == damaged


def test_the_repair_command_in_the_message_works(project, tuned: Path) -> None:
    lines = tuned.read_bytes().split(b"\n")
    lines[3] = b"garbage"
    tuned.write_bytes(b"\n".join(lines))
    with pytest.raises(StoreError) as caught:
        read_shard(tuned)
    command = str(caught.value).split("(")[-1].split(")")[0]
    subprocess.run(command, shell=True, check=True)
    assert len(read_shard(tuned).trials) == 1
    assert tuned.with_name(f"{tuned.name}.damaged").read_bytes() == b"\n".join(lines)
    project.tune(project.run_of(project.CONV), project.CONV, [None, 2e-3])
    assert len(read_shard(tuned).trials) == 3


def test_a_newer_schema_is_rejected(tuned: Path) -> None:
    rewrite(tuned, edit_fields(1, schema=3))
    with pytest.raises(StoreError, match=r"newer Anole \(schema 3; this one reads 2\)"):
        read_shard(tuned)


def test_invalid_records_are_not_written(project, tuned: Path) -> None:
    data = tuned.read_bytes()
    fresh, first = project.trial_of(2), project.trial_of(0)
    with project.open() as shard:
        for trial, problem in [
            (project.trial_of(1), "found trial 1; expected trial 2"),
            (replace(fresh, config=first.config), "measures a config again"),
            (replace(fresh, gflops=float("nan")), "cannot store a record: gflops is nan"),
            (replace(fresh, elapsed_s=float("nan")), "cannot store a record: elapsed_s is nan"),
            (replace(fresh, config={"tile_f": {1, 2}}), "cannot store a trial"),
        ]:
            with pytest.raises(StoreError, match=problem):
                shard.append_trial(trial)
        assert tuned.read_bytes() == data
        shard.append_trial(fresh)
        with pytest.raises(StoreError, match="measures a config again"):
            shard.append_trial(replace(fresh, number=3))


def test_infinite_metrics_and_invalid_unicode_are_stored(project) -> None:
    run = project.run_of(project.CONV)
    failure = replace(project.trial_of(0, None).measurement, error="tool said \udcff")
    with project.open(run) as shard:
        shard.append_iteration(0, {"loss": float("nan"), "steps": 3.0})
        shard.append_iteration(0, {"loss": float("inf"), "steps": 4.0})
        shard.append_trial(replace(project.trial_of(0, None), measurement=failure))
    content = read_shard(shard_path(project.shards, run))
    assert content.iterations == {0: {"loss": None, "steps": 4.0}}
    assert content.trials[0].measurement.error == "tool said ?"


def test_every_append_is_synced_when_it_returns(project, monkeypatch: pytest.MonkeyPatch) -> None:
    run = project.run_of(project.CONV)
    path = shard_path(project.shards, run)
    synced: list[tuple[Path, int]] = []
    fsync = os.fsync

    def spy(descriptor: int) -> None:
        fsync(descriptor)
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink(), os.fstat(descriptor).st_size))

    monkeypatch.setattr(os, "fsync", spy)
    with project.open(run) as shard:
        above = [project.shards, project.shards.parent, project.folder]
        assert [place for place, _ in synced] == [*above, path, path.parent, project.shards]
        shard.append_iteration(0, {"steps": 1.0})
        assert synced[-1] == (path, path.stat().st_size)
        shard.append_trial(project.trial_of(0))
        assert synced[-1] == (path, path.stat().st_size)
        shard.append_confirmation(project.confirmation_of(project.trial_of(0), 1e-3, 1))
        assert synced[-1] == (path, path.stat().st_size)
    assert len(synced) == 9


def test_closing_a_shard_ignores_errors(project, monkeypatch: pytest.MonkeyPatch) -> None:
    """All records are already on disk."""

    def fail(descriptor: int) -> None:
        close(descriptor)
        raise OSError(errno.EIO, "Input/output error")

    close = os.close
    with project.open() as shard:
        shard.append_trial(project.trial_of(0))
        monkeypatch.setattr(os, "close", fail)
    monkeypatch.undo()
    assert len(read_shard(shard.path).trials) == 1


def test_a_shard_of_another_task_or_run_is_rejected(project, tuned: Path) -> None:
    with pytest.raises(StoreError, match="cannot store trials of the task"):
        Shard.open(project.shards, project.run_of(project.CONV), project.DENSE)
    other = project.run_of(project.CONV, "random")
    shard_path(project.shards, other).write_bytes(tuned.read_bytes())
    with pytest.raises(StoreError, match="not the one in its name"):
        project.open(other)


def test_a_shard_can_only_be_opened_once_at_a_time(project, tuned: Path) -> None:
    with project.open() as shard:
        with pytest.raises(StoreError, match="in use"):
            project.open()
        assert len(read_shard(tuned).trials) == 2
        other = project.run_of(project.CONV, seed=1)
        project.open(other).close()
    with pytest.raises(StoreError, match="is closed"):
        shard.append_trial(project.trial_of(2))
    project.open().close()


def test_a_file_system_without_locks_is_reported(project, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("anole.store.shard.fcntl.flock", flock)
    run = project.run_of(project.CONV)
    with pytest.raises(StoreError, match=f"{run.key}.jsonl: its file system cannot lock files"):
        project.open(run)


def test_a_folder_that_cannot_be_written_is_named(project) -> None:
    project.shards.parent.mkdir(parents=True)
    project.shards.write_text("a file where the folder should be")
    with pytest.raises(StoreError, match=r"jsonl: cannot be written"):
        project.open()


def test_a_full_disk_loses_no_stored_trial(project, tuned: Path) -> None:
    data = tuned.read_bytes()
    run = project.run_of(project.CONV)
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    with project.open(run) as shard:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(data) + 100, unlimited[1]))
        try:
            with pytest.raises(StoreError, match=r"cannot be written: File too large; its 2 trials are safe"):
                shard.append_trial(project.trial_of(2))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        with pytest.raises(StoreError, match="is closed"):
            shard.append_trial(project.trial_of(2))
    assert tuned.read_bytes() == data
    project.tune(run, project.CONV, [1e-3])
    assert len(read_shard(tuned).trials) == 3


def test_a_trial_that_is_measured_again_keeps_its_number(project, tuned: Path) -> None:
    run, before = project.run_of(project.CONV), tuned.read_bytes()
    again = Remeasurement(1, Measurement(Status.OK, None, 2e-3, repeats=5), speed_of(2e-3), "2026-11-22T00:00:00Z")
    with project.open(run) as shard:
        for wrong in (replace(again, number=2), replace(again, gflops=None)):
            with pytest.raises(StoreError):
                shard.append_remeasurement(wrong)
        failed = shard.trials[1]
        shard.append_remeasurement(again)
        repaired = shard.trials
    assert tuned.read_bytes().startswith(before)
    content = read_shard(tuned)
    assert content.trials == repaired
    assert (failed.measurement.status, repaired[1].measurement) == (Status.RUN_ERROR, again.measurement)
    assert (repaired[1].config, repaired[1].iteration) == (failed.config, failed.iteration)


def test_old_shards_can_be_read_and_sealed(project, tuned: Path) -> None:
    rewrite(tuned, lambda lines: None, schema=1)
    old = read_shard(tuned)
    assert not old.sealed
    assert seal_shards(project.shards) == 1
    assert seal_shards(project.shards) == 0
    assert read_shard(tuned) == replace(old, sealed=True)
    assert all(b'"crc":"' in line for line in tuned.read_bytes().splitlines())


def test_old_copies_are_sealed_in_place(project, tuned: Path) -> None:
    rewrite(tuned, lambda lines: None, schema=1)
    old = read_shard(tuned)
    copies = [copy_path(project.shards, old), tuned.with_name(f"0-{tuned.name}"), tuned.with_name("mine.jsonl")]
    for copy in copies:
        shutil.copy(tuned, copy)
    tuned.unlink()
    assert seal_shards(project.shards) == 3
    assert [read_shard(copy) for copy in copies] == [replace(old, sealed=True)] * 3
    assert not tuned.exists()


def test_only_a_shard_named_by_its_run_is_a_local_one(project, tuned: Path) -> None:
    run, copy = project.run_of(project.CONV), copy_path(project.shards, read_shard(tuned))
    assert (is_copy(tuned), run_key_in_name(tuned)) == (False, run.key)
    assert (is_copy(copy), run_key_in_name(copy)) == (True, run.key)
    for name in ("mine.jsonl", f"0-{tuned.name}", f"{run.key}.copy.jsonl", f"{run.key}.jsonl.old"):
        assert (is_copy(tuned.with_name(name)), run_key_in_name(tuned.with_name(name))) == (True, None)


def test_checksums_of_appended_lines_cover_the_lines_of_an_old_shard(project, tuned: Path) -> None:
    rewrite(tuned, lambda lines: None, schema=1)
    project.tune(project.run_of(project.CONV), project.CONV, [1e-3])
    assert len(read_shard(tuned).trials) == 3
    assert not read_shard(tuned).sealed
    data = tuned.read_bytes()
    tuned.write_bytes(data.replace(b'"created_at":"2026-11-21T10:00:00', b'"created_at":"2026-11-21T10:00:01'))
    with pytest.raises(StoreError, match="has a wrong checksum"):
        read_shard(tuned)
    tuned.write_bytes(data)
    assert seal_shards(project.shards) == 1
    assert read_shard(tuned).sealed


def test_a_process_that_waited_for_a_replaced_shard_opens_the_new_one(project, tuned: Path) -> None:
    run, opened = project.run_of(project.CONV), threading.Event()
    with project.open(run) as shard:
        waiting = threading.Thread(target=append_one, args=(project, run, opened))
        waiting.start()
        opened.wait()
        time.sleep(0.1)
        longer = replace(shard.content, trials=(*shard.trials, project.trial_of(2)))
        shard.replace(encode_shard(longer, tuned))
    waiting.join()
    assert [trial.number for trial in read_shard(tuned).trials] == [0, 1, 2, 3]


def append_one(project, run: Run, opened: threading.Event) -> None:
    opened.set()
    with project.open(run, wait=True) as shard:
        shard.append_trial(project.trial_of(len(shard.trials)))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda path: path.unlink(), "removed or replaced"),
        (lambda path: path.write_bytes(path.read_bytes() + b"{}\n"), "changed"),
    ],
)
def test_a_change_by_another_program_is_reported(project, tuned: Path, change, problem) -> None:
    with project.open() as shard:
        change(tuned)
        with pytest.raises(StoreError, match=f"another program has {problem} it"):
            shard.append_trial(project.trial_of(2))


def speed_of(latency_s: float) -> float:
    """Return the GFLOP/s of the tests' convolution."""
    return CONV.workload.flop / latency_s / 1e9


def test_a_folder_that_the_disk_cannot_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: Path) -> list[str]:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "listdir", fail)
    with pytest.raises(StoreError, match=f"{re.escape(str(tmp_path))}: cannot be read: Input/output error"):
        list(shard_paths(tmp_path))
