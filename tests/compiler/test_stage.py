"""The compile stage: the lock file takes precedence over receipts, and tasks without an entry are logged."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anole.compiler.stage import compile_network
from anole.config.entries import ModelSpec
from anole.documents import layout
from anole.documents.build import read_build
from anole.documents.lockfile import LockedBuild, LockedTask, Lockfile, write_lockfile
from anole.documents.manifest import Manifest, Order, read_listed_task, read_manifest, write_manifest
from anole.documents.receipt import Receipt, SharedReceipts, write_receipt
from anole.errors import BuildError, SpecError
from anole.extract.stage import extract_model
from anole.targets import get_target
from anole.targets.cpu.settings import describe_cpu
from anole.task import Task


@dataclass(frozen=True)
class Locked:
    """A tiny network with three tasks: the first is locked, and the first two have receipts."""

    order: Order
    manifest: Manifest
    tasks: list[Task]
    configs: list[Any]

    def compile(self, **changes: Any) -> None:
        path = layout.manifest_path("net", "cpu")
        compile_network("net", replace(self.order, **changes), path, [Path("receipts.json")], Path("builds/net"))


@pytest.fixture
def net(project: Path) -> Locked:
    target = get_target(describe_cpu(threads=1))
    model = ModelSpec("net", "torch:tiny:residual", {"x": (1, 3, 16, 16)})
    path = layout.manifest_path("net", "cpu")
    extract_model(model, "cpu", target.description, path, layout.TASKS)
    manifest = read_manifest(path)
    tasks = [read_listed_task(path, listed.key) for listed in manifest.tasks]
    space = target.space(tasks[0].workload)
    (locked,) = (space.config(vector) for vector in space.sample(1, np.random.default_rng(0)))
    configs = [target.default_config(task.workload) for task in tasks]
    receipts = (Receipt(task.key, "a" * 64, 4, config, 1e-5) for task, config in zip(tasks[:2], configs, strict=False))
    write_receipt(Path("receipts.json"), SharedReceipts(4, tuple(receipts)))
    entry = LockedBuild(target.description, {tasks[0].key: LockedTask(tasks[0].label, locked, 2e-5, "b" * 64)})
    write_lockfile(Lockfile(layout.LOCKFILE, {"net": entry}))
    order = Order("net", "cpu", manifest.origin, "random", 4, shared=False, seed=0, lock=entry.key)
    return Locked(order, manifest, tasks, [locked, *configs[1:]])


def test_a_locked_config_takes_precedence_over_its_receipt(net: Locked, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        net.compile()
    build = read_build(Path("builds/net"))
    assert build.lock == net.order.lock
    assert [task.config for task in build.tasks] == net.configs
    found = [(task.locked, task.run_key, task.latency_s) for task in build.tasks]
    assert found == [(True, "b" * 64, 2e-5), (None, "a" * 64, 1e-5), (None, None, None)]
    logs = [record.getMessage() for record in caplog.records if "no config in" in record.getMessage()]
    assert logs == [f"net: {task.label} has no config in anole.lock.json: using its records" for task in net.tasks[1:]]


def test_a_changed_lock_or_a_lock_for_another_target_is_rejected(net: Locked) -> None:
    with pytest.raises(BuildError, match=r"^anole.lock.json: builds.net: has changed since this job was planned"):
        net.compile(lock="c" * 64)
    description = {**net.order.origin.target_description, "threads": 3}
    origin = replace(net.order.origin, target_description=description)
    write_manifest(layout.manifest_path("net", "cpu"), replace(net.manifest, origin=origin))
    with pytest.raises(SpecError, match=r"builds.net.target: differs from .*: threads is 1, but 3 here"):
        net.compile(origin=origin)
    layout.LOCKFILE.unlink()
    with pytest.raises(BuildError, match="has changed"):
        net.compile(origin=origin)
    assert not Path("builds").exists()
