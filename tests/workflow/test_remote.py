"""A target on another machine, from models.yaml to its trials, simulated by a local server."""

from __future__ import annotations

import pytest

from anole.record import Status
from anole.targets.cpu.settings import describe_cpu

from ..measure.servers import HOST, server
from .conftest import Project

pytestmark = [pytest.mark.workflow, pytest.mark.guard]


def test_a_network_is_tuned_on_a_remote_device(empty: Project) -> None:
    process = server(empty.folder)
    process.start()
    remote = {
        "kind": "cpu",
        "mcpu": describe_cpu()["mcpu"],
        "threads": 1,
        "model": "a board",
        "measure": {"rpc": f"{HOST}:{process.port}"},
    }
    empty.write_chain(16, targets={"board": remote}, builds=[{"model": "chain", "target": "board"}])
    outcome = empty.snakemake("tuned", "--printshellcmds")
    process.kill()
    assert outcome.code == 0, outcome.output
    (content,) = empty.shards().values()
    assert [trial.measurement.status for trial in content.trials] == [Status.OK] * 2
    assert content.task.target["model"] == "a board"
    assert content.run.host["measured_at"] == remote["measure"]
    (command,) = [line for line in outcome.output.splitlines() if "anole tune " in line]
    assert f'"rpc":"{HOST}:{process.port}"' in command and "--builders 1" in command
