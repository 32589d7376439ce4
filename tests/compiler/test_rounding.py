"""An inaccurate build is compiled again without large Winograd tiles, unless they are locked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from anole.compiler.build import BuildSettings, compile_build
from anole.config.entries import ModelSpec
from anole.documents.build import Build, BuiltTask, read_build
from anole.documents.lockfile import LockedReceipt
from anole.documents.manifest import Manifest
from anole.documents.receipt import MeasuredConfig, Receipt
from anole.extract.stage import extract_tasks
from anole.space import ALGORITHM
from anole.targets import get_target
from anole.targets.base import WINOGRAD
from anole.targets.cpu.settings import describe_cpu
from anole.task import Task


@dataclass(frozen=True)
class Net:
    """A network with one task, whose config has large tiles, and configs with other tile sizes."""

    model: ModelSpec
    manifest: Manifest
    task: Task
    tiles: dict[int, Any]

    def receipt(self, *rivals: Any) -> Receipt:
        measured = (MeasuredConfig(config, 1e-6 * at) for at, config in enumerate((self.tiles[6], *rivals), 1))
        return Receipt(self.task.key, "a" * 64, 4, self.tiles[6], 1e-6, rivals=tuple(measured))

    def compile(self, receipt: Receipt, inaccurate: bool) -> tuple[Build, list[Any]]:
        """Return the build and the config of each build that was checked."""
        checked: list[Any] = []

        def has_large_rounding_error(folder: Path) -> bool:
            checked.append(read_build(folder).tasks[0].config)
            return inaccurate

        receipts, settings = {self.task.key: receipt}, BuildSettings("net", "random", 4, False, 0)
        return compile_build(
            self.model,
            self.manifest,
            settings,
            receipts,
            Path("net"),
            has_large_rounding_error=has_large_rounding_error,
        ), checked


@pytest.fixture
def net(project: Path) -> Net:
    target = get_target(describe_cpu(threads=1))
    model = ModelSpec("net", "torch:tiny:twins", {"x": (1, 8, 24, 24)})
    manifest, (task, *_) = extract_tasks(model, "cpu", target)
    space = target.space(task.workload)
    restricted = {size: space.restrict({ALGORITHM: [WINOGRAD], "tile_size": [size]}) for size in (2, 4, 6)}
    return Net(model, manifest, task, {size: part.best_sampled for size, part in restricted.items()})


def summary(task: BuiltTask) -> tuple[Any, ...]:
    return task.config, task.matched, task.latency_s, task.reason


def test_the_fastest_rival_with_smaller_tiles_replaces_large_tiles(net: Net) -> None:
    other = {**net.tiles[6], "data_at": {"root": "parallel", "parallel": "root"}[net.tiles[6]["data_at"]]}
    build, checked_configs = net.compile(net.receipt(other, net.tiles[2], net.tiles[4]), inaccurate=True)
    assert checked_configs == [net.tiles[6]]
    assert summary(build.tasks[0]) == (net.tiles[2], "tuned", pytest.approx(3e-6), None)
    assert read_build(Path("net")) == build


@pytest.mark.examples(1)
@pytest.mark.parametrize(("run_key", "reason"), [("a" * 64, "its tuned config is too inaccurate for this network"),
                                                 ("", "its config was not tuned")])  # fmt: skip
def test_without_a_rival_the_default_is_used(net: Net, run_key: str, reason: str) -> None:
    build, _ = net.compile(replace(net.receipt(), run_key=run_key), inaccurate=True)
    assert summary(build.tasks[0]) == (net.tiles[4], "default", None, reason)


def test_an_accurate_build_is_kept(net: Net) -> None:
    build, checked_configs = net.compile(net.receipt(net.tiles[4]), inaccurate=False)
    assert checked_configs == [net.tiles[6]] == [build.tasks[0].config]


def test_locked_configs_and_small_tiles_are_not_checked(net: Net) -> None:
    locked = LockedReceipt(net.task.key, "a" * 64, 4, net.tiles[6], 1e-6, place="anole.lock.json")
    for receipt in (locked, replace(net.receipt(), config=net.tiles[4])):
        build, checked_configs = net.compile(receipt, inaccurate=True)
        assert not checked_configs and build.tasks[0].config == receipt.config
