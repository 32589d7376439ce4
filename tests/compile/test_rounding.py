"""A network that rounds too much is compiled again without large Winograd tiles, unless they are locked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from anole.compile.build import BuildSettings, compile_build
from anole.config.entries import ModelSpec
from anole.documents.build import Build, BuiltTask, read_build
from anole.documents.lockfile import LockedReceipt
from anole.documents.manifest import Manifest
from anole.documents.receipt import MeasuredConfig, Receipt
from anole.extract.tasks import extract_tasks
from anole.space import ALGORITHM
from anole.targets import get_target
from anole.targets.base import WINOGRAD
from anole.targets.cpu.settings import describe_cpu
from anole.task import Task


@dataclass(frozen=True)
class Net:
    """A network of one task, whose config is large tiles, and the configs of other sizes."""

    model: ModelSpec
    manifest: Manifest
    task: Task
    tiles: dict[int, Any]

    def receipt(self, *rivals: Any) -> Receipt:
        measured = (MeasuredConfig(config, 1e-6 * at) for at, config in enumerate((self.tiles[6], *rivals), 1))
        return Receipt(self.task.key, "a" * 64, 4, self.tiles[6], 1e-6, rivals=tuple(measured))

    def compile(self, receipt: Receipt, too_much: bool) -> tuple[Build, list[Any]]:
        """Return the build and the config of each one that was run."""
        ran: list[Any] = []

        def rounds_too_much(folder: Path) -> bool:
            ran.append(read_build(folder).tasks[0].config)
            return too_much

        receipts, settings = {self.task.key: receipt}, BuildSettings("net", "random", 4, False, 0)
        return compile_build(
            self.model, self.manifest, settings, receipts, Path("net"), rounds_too_much=rounds_too_much
        ), ran


@pytest.fixture
def net(project: Path) -> Net:
    target = get_target(describe_cpu(threads=1))
    model = ModelSpec("net", "torch:tiny:twins", {"x": (1, 8, 24, 24)})
    manifest, (task, *_) = extract_tasks(model, "cpu", target)
    space = target.space(task.workload)
    restricted = {size: space.restricted({ALGORITHM: [WINOGRAD], "tile_size": [size]}) for size in (2, 4, 6)}
    return Net(model, manifest, task, {size: part.best_sampled for size, part in restricted.items()})


def told(task: BuiltTask) -> tuple[Any, ...]:
    return task.config, task.matched, task.latency_s, task.reason


def test_the_fastest_rival_with_smaller_tiles_takes_the_place_of_large_ones(net: Net) -> None:
    other = {**net.tiles[6], "data_at": {"root": "parallel", "parallel": "root"}[net.tiles[6]["data_at"]]}
    build, ran = net.compile(net.receipt(other, net.tiles[2], net.tiles[4]), too_much=True)
    assert ran == [net.tiles[6]]
    assert told(build.tasks[0]) == (net.tiles[2], "tuned", pytest.approx(3e-6), None)
    assert read_build(Path("net")) == build


@pytest.mark.examples(1)
@pytest.mark.parametrize(("run_key", "reason"), [("a" * 64, "its tuned config rounds more than the network bears"),
                                                 ("", "its config was not tuned")])  # fmt: skip
def test_without_a_rival_it_is_a_default(net: Net, run_key: str, reason: str) -> None:
    build, _ = net.compile(replace(net.receipt(), run_key=run_key), too_much=True)
    assert told(build.tasks[0]) == (net.tiles[4], "default", None, reason)


def test_what_rounds_little_stays_as_it_is(net: Net) -> None:
    build, ran = net.compile(net.receipt(net.tiles[4]), too_much=False)
    assert ran == [net.tiles[6]] == [build.tasks[0].config]


def test_locked_configs_and_small_tiles_are_not_even_run(net: Net) -> None:
    locked = LockedReceipt(net.task.key, "a" * 64, 4, net.tiles[6], 1e-6, place="anole.lock.json")
    for receipt in (locked, replace(net.receipt(), config=net.tiles[4])):
        build, ran = net.compile(receipt, too_much=True)
        assert not ran and build.tasks[0].config == receipt.config
