"""Builds for the accelerator: files, description, and correct results."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anole.config.entries import ModelSpec
from anole.documents.build import Build, read_build
from anole.documents.receipt import MeasuredConfig, Receipt
from anole.errors import BuildError
from anole.extract.torch import example_inputs, make_network, run_network
from anole_vta.area import relative_area, relative_memory
from anole_vta.compile.quantize import snr_db
from anole_vta.geometry import Geometry
from anole_vta.network.artifact import BuiltNetwork
from anole_vta.network.network import AcceleratorLayer, HostCall, IntegerReference, Pool, Quantized
from anole_vta.section import accelerator_of
from anole_vta.target import VtaTarget

RESIDUAL = ("torch:tiny:residual", (1, 3, 16, 16))
MORE = """
from torch import nn

def plain():
    return nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 5))

def stem():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())

def capped():
    layers = [nn.Conv2d(4, 8, 3, padding=1), nn.ReLU6(), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU6()]
    return nn.Sequential(*layers, nn.Conv2d(8, 4, 1), nn.Hardtanh(0, 0.25))

def twins():
    return nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))
"""


def read_built(folder: Path) -> tuple[Build, BuiltNetwork]:
    return read_build(folder), BuiltNetwork.load(folder)


def layers(network: BuiltNetwork) -> dict[str, AcceleratorLayer]:
    return {step.name: step for step in network.network.steps if isinstance(step, AcceleratorLayer)}


def expected_of(source: str, shape: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    """Return inputs, and the outputs of the network in torch."""
    model = ModelSpec("net", source, {"x": shape})
    arguments = example_inputs(model)
    outputs = run_network(model, make_network(model), arguments)
    return [tensor.numpy() for tensor in arguments.values()], [tensor.numpy() for tensor in outputs]


def check(network: BuiltNetwork, source: str, shape: tuple[int, ...], min_db: float) -> None:
    """Assert that a build is bit-equal to the reference, and close to the network itself."""
    inputs, expected = expected_of(source, shape)
    found, whole = network.run(inputs), network.run(inputs, IntegerReference())
    for name, value in whole.items():
        if isinstance(value, Quantized):
            np.testing.assert_array_equal(found[name].numbers, value.numbers)
    outputs = network.outputs(found)
    assert [array.shape for array in outputs] == [array.shape for array in expected]
    for mine, theirs in zip(outputs, expected, strict=True):
        assert (snr_db(theirs, mine) or 100) > min_db


def test_the_folder_holds_the_network_and_its_description(accelerated: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(accelerated)
    said, network = read_built(accelerated / "net")
    names = sorted(path.name for path in (accelerated / "net").iterdir())
    assert names == ["build.json", "host.so", "network.json", "steps"]
    kinds = [type(step) for step in network.network.steps]
    assert kinds == [HostCall, AcceleratorLayer, Pool, AcceleratorLayer, AcceleratorLayer, HostCall, AcceleratorLayer]
    assert list(layers(network)) == ["stem.0", "first.0", "second.0", "head"]
    accelerator, geometry = accelerator_of(Path("net"), said), Geometry(variant="vta++")
    assert accelerator.geometry == geometry.to_json()
    assert (accelerator.area, accelerator.memory) == (relative_area(geometry), relative_memory(geometry))
    assert [step.name for step in accelerator.steps] == [
        "stem.0", "max_pool_v4", "first.0", "second.0", "head",
    ]  # fmt: skip
    assert accelerator.cycles == sum(step.cycles for step in accelerator.steps)
    assert accelerator.latency_s == accelerator.cycles / 100e6
    # Nothing is tuned.
    assert accelerator.untuned_latency_s == accelerator.latency_s
    assert {task.matched for task in said.tasks} == {"default"} and said.coverage.share == 0
    assert accelerator.samples == 4
    assert set(accelerator.snr_db) == {step.value for step in accelerator.steps}
    assert all(ratio > 20 for ratio in accelerator.snr_db.values())
    assert said.size_bytes > sum(path.stat().st_size for path in (accelerated / "net/steps").iterdir())
    (pool,) = (step for step in network.network.steps if isinstance(step, Pool))
    first, second = (layers(network)[name] for name in ("first.0", "second.0"))
    assert first.data == second.residual == pool.result and second.data == first.result
    assert (first.low, second.low, layers(network)["head"].low) == (0, 0, -127)
    check(network, *RESIDUAL, 15)


def tuned_config(tasks: Any) -> dict[str, Receipt]:
    """Return a receipt for the layer with the residual, with half of its rows per tile."""
    (task,) = (task for task in tasks if task.label == "conv2d 16->16 k3x3 s1 8x8")
    config = {**VtaTarget(task.target).default_config(task.workload), "tile_h": 4, "tile_w": 8}
    return {task.key: Receipt(task.key, "c" * 64, 2, config, 1e-9)}


@pytest.mark.guard
def test_the_untuned_network_may_have_no_room_for_a_fused_residual(project: Path, accelerate: Any) -> None:
    # 128 accumulators hold 8 x 8 results with a bias, but not also a residual.
    small = {"geometry": {"acc_bytes": 1 << 13}}
    accelerate(*RESIDUAL, name="untuned", **small)
    accelerate(*RESIDUAL, name="tuned", receipts=tuned_config, **small)
    (of_untuned, untuned), (of_tuned, tuned) = read_built(project / "untuned"), read_built(project / "tuned")
    assert layers(untuned)["second.0"].residual is None
    assert layers(tuned)["second.0"].residual is not None
    for said in (of_untuned, of_tuned):
        assert accelerator_of(Path("net"), said).untuned_latency_s == accelerator_of(Path("net"), of_untuned).latency_s
    assert of_tuned.coverage.share > 0.9 and of_tuned.tasks[0].matched == "tuned"
    for network in (untuned, tuned):
        check(network, *RESIDUAL, 15)


@pytest.mark.guard
@pytest.mark.parametrize(("name", "shape"), [("joined", (3, 6)), ("branches", (1, 3, 12, 12))])
def test_other_networks_are_correct(project: Path, accelerate: Any, name: str, shape: tuple[int, ...]) -> None:
    source = f"torch:tiny:{name}"
    accelerate(source, shape)
    check(BuiltNetwork.load(project / "net"), source, shape, 20)


def test_a_network_may_need_no_host_and_its_build_is_logged(
    project: Path, accelerate: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (project / "more.py").write_text(MORE)
    with caplog.at_level(logging.INFO, "anole_vta"):
        said = accelerate("torch:more:plain", (2, 6))
    assert not (project / "net/host.so").exists()
    network = BuiltNetwork.load(project / "net")
    assert [type(step) for step in network.network.steps] == [AcceleratorLayer, AcceleratorLayer]
    check(network, "torch:more:plain", (2, 6), 20)

    lines = [record.getMessage() for record in caplog.records]
    cycles = [step.cycles for step in accelerator_of(Path("net"), said).steps]
    assert any(f": {cycles[0]} cycles, signal to noise " in line for line in lines)
    assert any(f"net: {sum(cycles)} cycles on a block of 1x16x16 and 504 KiB of memory, " in line for line in lines)
    assert sum("is NOT TUNED (it was not tuned)" in line for line in lines) == 2
    assert read_build(project / "net") == said


@pytest.mark.guard
def test_a_network_may_have_nothing_for_the_accelerator(project: Path, accelerate: Any) -> None:
    (project / "more.py").write_text(MORE)
    for hardware in ("fixed", "search"):
        said = accelerate("torch:more:stem", (1, 3, 8, 8), hardware=hardware)
        assert said.tasks == () and said.coverage.share == 1
        assert (accelerator_of(Path("net"), said).cycles, accelerator_of(Path("net"), said).untuned_latency_s) == (0, 0)
        network = BuiltNetwork.load(project / "net")
        assert [type(step) for step in network.network.steps] == [HostCall]
        check(network, "torch:more:stem", (1, 3, 8, 8), 80)


def test_the_first_layer_runs_on_the_host_even_if_a_later_one_is_equal(project: Path, accelerate: Any) -> None:
    (project / "more.py").write_text(MORE)
    said = accelerate("torch:more:twins", (1, 4, 6, 6))
    network = BuiltNetwork.load(project / "net")
    assert list(layers(network)) == ["2"] and [task.layers for task in said.tasks] == [("2",)]
    check(network, "torch:more:twins", (1, 4, 6, 6), 20)


def test_clips_are_part_of_the_layers_before_them(project: Path, accelerate: Any) -> None:
    (project / "more.py").write_text(MORE)
    accelerate("torch:more:capped", (1, 4, 6, 6), first_layer="vta")
    network = BuiltNetwork.load(project / "net")
    first, last = layers(network).values()
    assert (first.low, last.low) == (0, 0)
    assert np.ldexp(last.high, last.result_exponent) <= 0.25 and last.high >= 64
    check(network, "torch:more:capped", (1, 4, 6, 6), 20)
    (output,) = network.outputs(network.run([np.full((1, 4, 6, 6), 100, np.float32)]))
    assert 0.2 < output.max() <= 0.25 and output.min() >= 0


def test_a_searched_accelerator_is_shared_by_the_network(project: Path, accelerate: Any) -> None:
    def designs(tasks: Any) -> dict[str, Receipt]:
        """Return receipts of layers tried on two blocks, and faster on the second."""
        receipts = {}
        for task in tasks:
            target = VtaTarget(task.target)
            there = [target.with_geometry(Geometry(1, *block)) for block in ((16, 16), (8, 32))]
            configs = [each.default_config(task.workload) for each in there]
            tried = tuple(MeasuredConfig(config, (2 - n) * 1e-9) for n, config in enumerate(configs))
            receipts[task.key] = Receipt(task.key, "c" * 64, 2, configs[1], 1e-9, designs=tried)
        return receipts

    said = accelerate(*RESIDUAL, receipts=designs, hardware="search")
    assert {(task.config["tile_ci"], task.config["tile_co"]) for task in said.tasks} == {(8, 32)}
    assert {task.matched for task in said.tasks} == {"tuned"}
    block = tuple(accelerator_of(Path("net"), said).geometry[name] for name in ("batch", "block_in", "block_out"))
    assert block == (1, 8, 32) == accelerator_of(Path("net"), said).candidates[0].block
    network = BuiltNetwork.load(project / "net")
    assert {loaded.program.geometry.block_out for loaded in network.hardware.loaded.values()} == {32}
    check(network, *RESIDUAL, 15)


@pytest.mark.guard
def test_samples_decide_the_scales(project: Path, accelerate: Any) -> None:
    samples = np.random.default_rng(0).standard_normal((3, *RESIDUAL[1])).astype(np.float32)
    networks = {}
    for factor in (1, 8):
        np.savez(project / "samples.npz", x=factor * samples)
        said = accelerate(*RESIDUAL, samples="samples.npz", first_layer="vta")
        assert accelerator_of(Path("net"), said).samples == 3 and said.entry["samples"] == "samples.npz"
        networks[factor] = layers(BuiltNetwork.load(project / "net"))
    assert networks[8]["stem.0"].data_exponent == networks[1]["stem.0"].data_exponent + 3
    assert networks[8]["stem.0"].weight_exponent == networks[1]["stem.0"].weight_exponent


def test_broken_samples_leave_the_old_build(project: Path, accelerate: Any) -> None:
    (project / "net").mkdir()
    (project / "net/build.json").write_text("old")
    (project / "samples.npy").write_text("no numbers")
    with pytest.raises(BuildError, match=r"^samples\.npy: is neither \.npy nor \.npz: "):
        accelerate(*RESIDUAL, samples="samples.npy")
    assert (project / "net/build.json").read_text() == "old"
    assert sorted(path.name for path in project.iterdir() if path.is_dir() and path.name[0] != "_") == ["net", "work"]
