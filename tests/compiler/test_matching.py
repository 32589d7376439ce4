"""The config that each task is compiled with, and the reason if it was not tuned."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from anole.compiler.matching import Match, coverage, match_tasks, warn_of_float32_layers, warn_of_untuned
from anole.documents.build import Coverage
from anole.documents.lockfile import LockedReceipt
from anole.documents.manifest import ListedTask, Manifest, Origin
from anole.documents.receipt import Receipt
from anole.errors import BuildError
from anole.task import BatchMatmul, Dense, Task


@pytest.fixture
def net(network: Callable[[str], Any]) -> Any:
    return network("residual")


def manifest(net: Any) -> Manifest:
    tasks = tuple(
        ListedTask(task.key, task.label, task.workload.flop, weight, tuple(f"layer{i}_{n}" for n in range(weight)))
        for i, (task, weight) in enumerate(zip(net.tasks.values(), (1, 2, 1), strict=True))
    )
    origin = Origin({}, net.target.description, {})
    return Manifest("residual", "cpu", "torch:tiny:residual", {}, origin, tasks, sum(t.flop * t.weight for t in tasks))


def receipt(net: Any, position: int, **changes: Any) -> dict[str, Receipt]:
    task = list(net.tasks.values())[position]
    config = net.target.default_config(task.workload)
    return {task.key: replace(Receipt(task.key, "c" * 64, 64, config, 1e-3), **changes)}


def test_receipts_determine_configs(net: Any) -> None:
    receipts = receipt(net, 1)
    matches = match_tasks(manifest(net), net.tasks, receipts, net.target)
    built = [match.built for match in matches]
    assert [task.matched for task in built] == ["default", "tuned", "default"]
    assert [task.reason for task in built] == ["it was not tuned", None, "it was not tuned"]
    assert [task.run_key for task in built] == [None, "c" * 64, None]
    assert built[1].config == receipts[built[1].key].config
    flops = [task.workload.flop for task in net.tasks.values()]
    total = flops[0] + 2 * flops[1] + flops[2]
    assert coverage(matches) == Coverage(2 * flops[1], total, pytest.approx(2 * flops[1] / total))


MISFITS = [{"tile_f": [1, 1, 7]}, {"unknown_knob": 1}]


@pytest.mark.parametrize(
    ("changes", "reason", "is_default"),
    [
        ({"config": None, "latency_s": None}, "none of 64 candidates worked", True),
        ({"config": None, "latency_s": None, "trials": 0}, "the budget had no trials for it", True),
        *(({"config": misfit}, "its tuned config does not fit: ", True) for misfit in MISFITS),
        ({"run_key": ""}, "its config was not tuned", False),
    ],
)
def test_configs_that_no_run_found_do_not_count_as_tuned(
    net: Any, changes: dict[str, Any], reason: str, is_default: bool
) -> None:
    default = net.target.default_config(next(iter(net.tasks)))
    if changes.get("config") is not None:
        changes = {"config": {**default, **changes["config"]}}
    receipts = receipt(net, 0, **changes)
    built = match_tasks(manifest(net), net.tasks, receipts, net.target)[0].built
    assert (built.matched, built.run_key) == ("default", None)
    assert built.reason is not None and built.reason.startswith(reason)
    assert built.config == (default if is_default else receipts[built.key].config)


def test_untuned_layers_are_named_with_their_share(net: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_untuned("net-cpu", match_tasks(manifest(net), net.tasks, receipt(net, 0), net.target), 64)
        warn_of_untuned("net-cpu", match_tasks(manifest(net), net.tasks, {}, net.target), 0)
    first, second = (record.getMessage() for record in caplog.records)
    assert "net-cpu: conv2d 16->16 k3x3 s1 8x8 is NOT TUNED" in first
    assert "% of the work: layer1_0, layer1_1" in first
    assert "dense 16->10" in second


def test_a_network_that_differs_from_its_manifest_is_rejected(net: Any, network: Callable[[str], Any]) -> None:
    with pytest.raises(BuildError, match=r"model residual has changed since it was extracted: .*extract it again"):
        match_tasks(manifest(net), network("branches").tasks, {}, net.target)


def test_coverage_without_anchors_is_complete() -> None:
    assert coverage([]) == Coverage(0, 0, 1.0)


def locked_receipts(net: Any, position: int, **changes: Any) -> dict[str, Receipt]:
    (tuned,) = receipt(net, position, **changes).values()
    fields = (tuned.task_key, tuned.run_key, tuned.trials, tuned.config, tuned.latency_s)
    return {tuned.task_key: LockedReceipt(*fields, place="anole.lock.json: builds.net.tasks.k (layer)")}


def test_float32_layers_in_a_quantized_network_are_logged_with_share_and_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dense = Dense(1, 64, 64)
    workloads = {
        "bytes": replace(dense, dtype="uint8"),
        "float": dense,
        "odd": replace(dense, exact=True),
        "attention": BatchMatmul(1, 8, 64, 8),
    }
    matches = [Match(Task(each, {}, 1), 1, (name,), {}, None) for name, each in workloads.items()]
    warn_of_float32_layers("net", matches[1:])
    assert not caplog.text
    warn_of_float32_layers("net", matches)
    found = [line.rpartition(": ")[2] + " " + line.partition("(")[2].partition(")")[0] for line in caplog.messages]
    assert found == [
        "float its operands are not both quantized",
        "odd its groups are too small, or its weights need more than 8 bits",
        "attention its operands are not both quantized",
    ]
    assert "25.0 % of the work: float" in caplog.text


def test_locked_configs_are_marked_as_tuned_or_not(net: Any) -> None:
    receipts = {**locked_receipts(net, 0), **locked_receipts(net, 1, run_key="", latency_s=None), **receipt(net, 2)}
    built = [match.built for match in match_tasks(manifest(net), net.tasks, receipts, net.target)]
    assert [task.locked for task in built] == [True, True, None]
    assert [task.matched for task in built] == ["tuned", "default", "tuned"]
    assert [task.run_key for task in built] == ["c" * 64, None, "c" * 64]
    assert [task.config for task in built] == [receipts[task.key].config for task in built]
    assert built[1].reason == "it is locked to a config that was not tuned"


def test_a_locked_config_has_its_knobs_in_the_order_of_the_space(net: Any) -> None:
    ((key, tuned),) = receipt(net, 0).items()
    backwards = dict(reversed(tuned.config.items()))
    (match, *_) = match_tasks(manifest(net), net.tasks, locked_receipts(net, 0, config=backwards), net.target)
    assert match.task.key == key and list(match.config or {}) == list(tuned.config) != list(backwards)


@pytest.mark.parametrize("change", MISFITS)
def test_a_locked_config_outside_its_space_is_rejected(net: Any, change: dict[str, Any]) -> None:
    config = {**net.target.default_config(next(iter(net.tasks))), **change}
    with pytest.raises(BuildError) as caught:
        match_tasks(manifest(net), net.tasks, locked_receipts(net, 0, config=config), net.target)
    assert str(caught.value).startswith("anole.lock.json: builds.net.tasks.k (layer): config: does not fit: ")
    assert "or delete the task's entry" in str(caught.value)


def test_a_config_that_cannot_be_scheduled_is_recorded(net: Any) -> None:
    (match, *_) = match_tasks(manifest(net), net.tasks, locked_receipts(net, 0), net.target)
    built = match.as_unscheduled("there is no room").built
    assert (built.config, built.unscheduled, built.reason) == (None, match.config, "there is no room")
