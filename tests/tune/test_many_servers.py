"""A run on two servers: its trials, records and keys are those of a run on one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from anole.record import Status
from anole.search.presets import read_tuner
from anole.store.content import ShardContent, read_shard
from anole.targets.cpu.settings import describe_cpu
from anole.targets.rpc.address import Remote
from anole.task import Dense, Task
from anole.tune.options import TuneOptions
from anole.tune.stage import tune_task

from ..measure.servers import HOST, Process, server

RANDOM = read_tuner({"preset": "random", "batch": 4, "evaluator": {"number": 1, "repeats": 2}, "n_confirm": 1})
TASK = Task(Dense(1, 32, 64), {**describe_cpu(threads=1), "model": "a board"}, 1)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Process]]:
    folder = tmp_path_factory.mktemp("servers")
    processes = [server(folder), server(folder)]
    for each in processes:
        each.launch()
    for each in processes:
        each.await_listening()
    yield processes
    for each in processes:
        each.kill()


def tuned(folder: Path, servers: list[Process], *budgets: int) -> ShardContent:
    folder.mkdir()
    path = folder / f"{TASK.key}.json"
    path.write_text(json.dumps(TASK.to_json()))
    (_, port), *others = [(HOST, process.port) for process in servers]
    for trials in budgets:
        remote = Remote(HOST, port, others=tuple(others))
        options = TuneOptions(RANDOM, 7, trials, folder / "shards", remote, n_builders=2)
        tune_task(path, options, folder / f"{trials}.json")
    (shard,) = (folder / "shards").glob("*/*.jsonl")
    return read_shard(shard)


@pytest.mark.guard
def test_a_run_on_two_servers_is_resumed_and_ends_with_the_trials_of_a_run_on_one(
    tmp_path: Path, pair: list[Process]
) -> None:
    one, two = tuned(tmp_path / "one", pair[:1], 7), tuned(tmp_path / "two", pair, 3, 7)
    assert [trial.config for trial in two.trials] == [trial.config for trial in one.trials]
    assert [trial.number for trial in two.trials] == list(range(7))
    assert {trial.measurement.status for trial in two.trials} == {Status.OK}
    assert two.run.key == one.run.key
    assert two.run.host["measured_at"] == {"rpc": [f"{HOST}:{process.port}" for process in pair]}
    assert one.run.host["measured_at"] == {"rpc": f"{HOST}:{pair[0].port}"}
