"""Fronts of accelerators: their table matches the layers of the networks, and no point is dominated."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from anole.config.entries import AcceleratorOrder
from anole.documents import layout
from anole.documents.manifest import ListedTask, Manifest, Origin, write_manifest, write_task
from anole.errors import BuildError, DocumentError
from anole.search.presets import PRESETS
from anole.store.shard import read_shard
from anole.task import Conv2d, Task
from anole.tune.job import TuneOptions
from anole.tune.stage import tune_task
from anole_vta.accelerator import FRONT
from anole_vta.accelerator.fastest import fastest_programs
from anole_vta.accelerator.pareto import front_mask
from anole_vta.accelerator.stage import ALL_NETWORKS, explore
from anole_vta.area import relative_area
from anole_vta.geometry import Geometry, vta_config
from anole_vta.settings import describe_vta
from anole_vta.simulator.timing import is_extrapolated

DESCRIPTION = describe_vta(hardware="search")
LAYERS = [Conv2d(1, 2, 2, 48, 64, (1, 1)), Conv2d(1, 2, 4, 64, 32, (1, 1))]
WEIGHTS = {"one": (1, 0), "two": (1, 3)}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with two networks of two layers, with trials of all programs."""
    folder = tmp_path_factory.mktemp("accelerator")
    tasks = [Task(layer, DESCRIPTION, 2) for layer in LAYERS]
    for task in tasks:
        write_task(folder / layout.task_path(task.key), task)
        options = TuneOptions(PRESETS["exhaustive"], 0, 1_000_000, folder / layout.SHARDS)
        tune_task(folder / layout.task_path(task.key), options, folder / f"{task.key}.json")
    for model, weights in WEIGHTS.items():
        listed = tuple(
            ListedTask(task.key, task.label, task.workload.flop, n, ("layer",))
            for task, n in zip(tasks, weights, strict=True)
            if n
        )
        manifest = Manifest(model, "npu", f"onnx:{model}.onnx", {}, Origin({}, DESCRIPTION, {}), listed, 1)
        write_manifest(folder / layout.manifest_path(model, "npu"), manifest)
    return folder


def explore_fronts(project: Path, monkeypatch: pytest.MonkeyPatch, **settings: object) -> list[dict[str, str]]:
    monkeypatch.chdir(project)
    order = AcceleratorOrder({"two": 0.5, "one": 1.0}, {"npu": DESCRIPTION}, settings)
    explore("edge", order, project.glob("*.json"), Path("accelerators/edge"))
    with Path("accelerators/edge", FRONT).open() as file:
        return list(csv.DictReader(file))


def fastest(project: Path, layer: Conv2d) -> dict[Geometry, float]:
    task = Task(layer, DESCRIPTION, 2)
    (shard,) = (project / layout.SHARDS / task.key).glob("*.jsonl")
    return {g: each.cycles for g, each in fastest_programs(task, read_shard(shard).trials).items()}


def test_cycles_are_those_of_the_layers(project, monkeypatch):
    rows = explore_fronts(project, monkeypatch)
    first, second = (fastest(project, layer) for layer in LAYERS)
    assert list(dict.fromkeys(row["network"] for row in rows)) == ["one", "two", ALL_NETWORKS]
    for row in rows:
        g = Geometry.from_name(row["accelerator"])
        two = first[g] + 3 * second[g]
        assert float(row["cycles"]) == round(
            {"one": first[g], "two": two, ALL_NETWORKS: first[g] + two / 2}[row["network"]]
        )
        assert float(row["latency_ms"]) == pytest.approx(float(row["cycles"]) / 1e5, rel=1e-3)
        assert float(row["area"]) == pytest.approx(relative_area(g), abs=1e-4)
        assert row["checked"] == ("extrapolated" if is_extrapolated(g) else "RTL")
        assert json.loads((project / "accelerators/edge/points" / f"{g.name}.json").read_text()) == vta_config(g)


def test_fronts_and_knees_are_marked(project, monkeypatch):
    rows = explore_fronts(project, monkeypatch)
    for network in WEIGHTS:
        own = [row for row in rows if row["network"] == network]
        points = np.array([[float(row[name]) for name in ("latency_ms", "area", "relative_energy")] for row in own])
        assert front_mask(points).all() and len(own) > 3
        assert (np.diff(points[:, 0]) >= 0).all() and points[:, 2].min() == 1
        (marked,) = [number for number, row in enumerate(own) if "time x area" in row["knee"].split(" and ")]
        assert marked == np.argmin(points[:, 0] * points[:, 1])


def test_a_slower_clock_makes_a_block_slower(project, monkeypatch):
    usual = {row["accelerator"]: row for row in explore_fronts(project, monkeypatch) if row["network"] == "one"}
    slow = [row for row in explore_fronts(project, monkeypatch, frequency_mhz={"1x8x8": 50}) if row["network"] == "one"]
    (block,) = {row["block"] for row in slow if row["frequency_mhz"] == "50"}
    assert block == "1x8x8"
    for row in slow:
        if row["block"] == block and row["accelerator"] in usual:
            assert float(row["latency_ms"]) == pytest.approx(
                2 * float(usual[row["accelerator"]]["latency_ms"]), rel=1e-3
            )


def test_energies_are_absolute_in_a_process(project, monkeypatch):
    by_nm = {}
    for technology_nm in (22, 45):
        rows = explore_fronts(project, monkeypatch, technology_nm=technology_nm)
        by_nm[technology_nm] = min(float(row["energy_mj"]) for row in rows if row["network"] == "one")
    assert 0 < by_nm[22] < by_nm[45] < 1


def test_an_untuned_layer_is_an_error(project, monkeypatch):
    monkeypatch.chdir(project)
    order = AcceleratorOrder({"one": 1.0}, {"npu": DESCRIPTION}, {})
    with pytest.raises(DocumentError, match="no receipt shows that it is tuned"):
        explore("edge", order, [], Path("accelerators/none"))
    assert not Path("accelerators/none").exists()


def test_a_network_without_accelerator_layers_is_an_error(project, monkeypatch):
    monkeypatch.chdir(project)
    write_manifest(
        layout.manifest_path("none", "npu"),
        Manifest("none", "npu", "onnx:none.onnx", {}, Origin({}, DESCRIPTION, {}), (), 0),
    )
    with pytest.raises(BuildError, match="none: the accelerator runs none of its layers; remove the model"):
        explore("edge", AcceleratorOrder({"none": 1.0}, {"npu": DESCRIPTION}, {}), [], Path("accelerators/none"))
