"""What every target promises, for every operator it has a template for."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from anole.errors import TargetError
from anole.search.evaluators.fixed import Fixed
from anole.targets import BUILT_IN, get_device, get_kind, get_target
from anole.targets.base import Device, Place, Target, named_object
from anole.targets.cpu.settings import describe_cpu
from anole.targets.cuda.settings import describe_cuda
from anole.targets.shared.reference import weight_shape
from anole.targets.vta.settings import describe_vta
from anole.task import BatchMatmul, Conv2d, Dense, Workload

DESCRIPTIONS = {"cpu": describe_cpu(), "cuda": describe_cuda("sm_90"), "vta": describe_vta()}
WORKLOADS = [
    Conv2d(1, 7, 7, 8, 24, (3, 3), padding=(1, 1, 1, 1)),
    Dense(1, 40, 24),
    BatchMatmul(2, 12, 8, 24),
]


@pytest.fixture(params=list(BUILT_IN))
def target(request: pytest.FixtureRequest) -> Target:
    return get_target(DESCRIPTIONS[request.param])


@pytest.fixture
def device(target: Target) -> Device:
    if target.place is Place.SIMULATOR:
        pytest.skip("is simulated")
    return get_device(target.description)


@pytest.fixture
def present(device: Device) -> Device:
    if device.absence() is not None:
        pytest.skip(f"needs a GPU of {device.description['arch']}")
    return device


@pytest.fixture(params=WORKLOADS, ids=lambda workload: workload.operator)
def workload(request: pytest.FixtureRequest, target: Target) -> Workload:
    if request.param.operator not in target.operators:
        pytest.skip("runs on the host")
    return request.param


def test_every_operator_has_a_version(target: Target, workload: Workload) -> None:
    assert target.template_version(workload) >= 1
    with pytest.raises(TargetError, match="no template for 'sort'"):
        target.template_version(SimpleNamespace(operator="sort"))


@pytest.mark.parametrize("any_workload", WORKLOADS, ids=lambda workload: workload.operator)
def test_what_has_no_template_is_not_taken(target: Target, any_workload: Workload) -> None:
    assert target.takes(any_workload, 1) == (any_workload.operator in target.operators)


def test_the_default_config_is_one_of_the_space(target: Target, workload: Workload) -> None:
    assert target.space(workload).rejection(target.default_config(workload)) is None


def test_a_space_is_the_same_every_time(target: Target, workload: Workload) -> None:
    first, again = target.space(workload), get_target(target.description).space(workload)
    assert [(knob.name, knob.values) for knob in first.knobs] == [(knob.name, knob.values) for knob in again.knobs]


def test_packing_gives_the_shape_it_says(device: Device, workload: Workload) -> None:
    template, config = device.template(workload), device.default_config(workload)
    packed = template.pack_weight(workload, config, np.ones(weight_shape(workload), dtype=np.float32))
    assert packed.shape == template.packed_shape(workload, config)
    assert packed.sum() == math.prod(weight_shape(workload))


def test_configs_of_one_packed_shape_pack_alike(device: Device, workload: Workload) -> None:
    template, space = device.template(workload), device.space(workload)
    weight = np.random.default_rng(0).standard_normal(weight_shape(workload), dtype=np.float32)
    first: dict[tuple[int, ...], np.ndarray] = {}
    for vector in space.sample(40, np.random.default_rng(0)):
        config = space.config(vector)
        packed = template.pack_weight(workload, config, weight)
        np.testing.assert_array_equal(packed, first.setdefault(template.packed_shape(workload, config), packed))
    assert len(first) < 40


def test_builds_without_the_hardware(device: Device, workload: Workload, tmp_path: Path) -> None:
    device.build(workload, device.default_config(workload), tmp_path / "kernel.so")
    assert (tmp_path / "kernel.so").stat().st_size > 0


def test_builds_what_its_runner_runs_right(present: Device, workload: Workload, tmp_path: Path) -> None:
    config = present.default_config(workload)
    present.build(workload, config, tmp_path / "kernel.so")
    kernel = present.runner(workload).load(tmp_path / "kernel.so", config)
    assert kernel.relative_error() < 1e-5
    assert 0 < Fixed(number=1, repeats=3).evaluate(kernel).latency_s < 1


def test_the_peak_is_above_every_kernel(present: Device, tmp_path: Path) -> None:
    workload = WORKLOADS[0]
    config = present.default_config(workload)
    present.build(workload, config, tmp_path / "kernel.so")
    latency_s = present.runner(workload).load(tmp_path / "kernel.so", config)(10)
    assert present.peak_gflops() > workload.flop / latency_s / 1e9


def test_what_is_simulated_is_exact(target: Target, workload: Workload) -> None:
    if target.place is not Place.SIMULATOR:
        pytest.skip("is measured")
    config = target.default_config(workload)
    latency_s = target.simulate(workload, config)
    assert latency_s > 0
    assert get_target(target.description).simulate(workload, config) == latency_s
    with pytest.raises(TargetError, match="is simulated; there is no device"):
        get_device(target.description)


def test_only_what_can_be_observed_is_refined(target: Target) -> None:
    assert get_kind(target.description["kind"]).refinable == (target.observable() is not None)


def test_something_compiles_and_runs_its_networks(target: Target) -> None:
    assert callable(named_object(target.networks.compiler))
    runner = named_object(target.networks.runner)(target)
    assert runner.threads >= 1 and isinstance(runner.is_exact, bool)


def test_what_is_described_again_is_the_same(target: Target) -> None:
    assert get_target(json.loads(json.dumps(target.description))).description == target.description


def test_an_unknown_kind_is_said() -> None:
    with pytest.raises(TargetError, match="found target kind 'abacus'; allowed are cpu"):
        get_target({"kind": "abacus"})
