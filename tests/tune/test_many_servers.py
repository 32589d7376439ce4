"""A run on two servers has the same trials, records and keys as a run on one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from anole.record import Status
from anole.store.content import ShardContent
from anole.targets.cpu.settings import describe_cpu
from anole.targets.rpc.address import Remote

from ..measure.servers import HOST, Process, server
from .conftest import RANDOM, Project


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


def tune(folder: Path, servers: list[Process], *budgets: int) -> ShardContent:
    project = Project(folder, target={**describe_cpu(threads=1), "model": "a board"})
    (_, port), *others = [(HOST, process.port) for process in servers]
    for trials in budgets:
        project.tune(trials, replace(RANDOM, batch=4), remote=Remote(HOST, port, others=tuple(others)))
    return project.content


@pytest.mark.guard
def test_a_resumed_run_on_two_servers_has_the_same_trials_as_a_run_on_one(tmp_path: Path, pair: list[Process]) -> None:
    one, two = tune(tmp_path / "one", pair[:1], 7), tune(tmp_path / "two", pair, 3, 7)
    assert [trial.config for trial in two.trials] == [trial.config for trial in one.trials]
    assert [trial.number for trial in two.trials] == list(range(7))
    assert {trial.measurement.status for trial in two.trials} == {Status.OK}
    assert two.run.key == one.run.key
    assert two.run.host["measured_at"] == {"rpc": [f"{HOST}:{process.port}" for process in pair]}
    assert one.run.host["measured_at"] == {"rpc": f"{HOST}:{pair[0].port}"}
