"""The contract of targets, for every operator with a template, as a test class to subclass; needs pytest."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from anole.errors import TargetError
from anole.search.evaluators.fixed import Fixed
from anole.targets import get_device, get_kind, get_profilable, get_target
from anole.targets.base import Device, DeviceLocation, Simulator, Target, named_object
from anole.targets.shared.reference import weight_shape
from anole.task import Attention, BatchMatmul, Conv2d, Dense, Workload

WORKLOADS = (
    Conv2d(1, 7, 7, 8, 24, (3, 3), padding=(1, 1, 1, 1)),
    Dense(1, 40, 24),
    BatchMatmul(2, 12, 8, 24),
    Attention(2, 12, 20, 8, 24, addends=1),
)
"""A small layer of every operator."""


class TargetContract:
    """Tests of a target, whose description a subclass provides as a fixture.

    A test is skipped if the hardware is absent or if the test does not apply to the kind of target.

    ```
    class TestMyTarget(TargetContract):
        @pytest.fixture
        def description(self):
            return {"kind": "mine", "threads": 1}
    ```
    """

    @pytest.fixture
    def description(self) -> Mapping[str, Any]:
        """The description of the target, with its kind."""
        raise NotImplementedError

    @pytest.fixture(params=WORKLOADS, ids=lambda workload: workload.operator)
    def any_workload(self, request: pytest.FixtureRequest) -> Workload:
        """A small layer, whether or not the target runs its operator."""
        return cast(Workload, request.param)

    @pytest.fixture
    def target(self, description: Mapping[str, Any]) -> Target:
        """The target."""
        return get_target(description)

    @pytest.fixture
    def device(self, target: Target) -> Device:
        """The target; skips the test if it is simulated."""
        if target.location is DeviceLocation.SIMULATOR:
            pytest.skip("is simulated")
        return get_device(target.description)

    @pytest.fixture
    def present(self, device: Device) -> Device:
        """The target; skips the test if this machine does not have it."""
        absence = device.absence()
        if absence is not None:
            pytest.skip(absence)
        return device

    @pytest.fixture
    def workload(self, any_workload: Workload, target: Target) -> Workload:
        """A small layer of an operator that the target runs."""
        if any_workload.operator not in target.operators:
            pytest.skip("runs on the host")
        return any_workload

    def test_every_operator_has_a_version(self, target: Target, workload: Workload) -> None:
        """The version is part of a task's key."""
        assert target.template_version(workload) >= 1
        with pytest.raises(TargetError, match="no template for 'sort'"):
            target.template_version(cast(Workload, SimpleNamespace(operator="sort")))

    def test_an_operator_without_a_template_is_rejected(self, target: Target, any_workload: Workload) -> None:
        """An operator without a template runs on the host."""
        assert target.takes(any_workload, 1) == (any_workload.operator in target.operators)

    def test_the_default_config_is_in_the_space(self, target: Target, workload: Workload) -> None:
        """The default config is valid and satisfies the constraints."""
        assert target.space(workload).rejection(target.default_config(workload)) is None

    def test_a_space_is_the_same_every_time(self, target: Target, workload: Workload) -> None:
        """Recorded configs are looked up in the space."""
        space, copy = target.space(workload), get_target(target.description).space(workload)
        assert [(knob.name, knob.values) for knob in space.knobs] == [(knob.name, knob.values) for knob in copy.knobs]

    def test_packed_weights_have_the_packed_shape(self, device: Device, workload: Workload) -> None:
        """Packing neither loses nor repeats a weight."""
        template, config = device.template(workload), device.default_config(workload)
        packed = template.pack_weight(workload, config, np.ones(weight_shape(workload), dtype=np.float32))
        assert packed.shape == template.packed_shape(workload, config)
        assert packed.sum() == math.prod(weight_shape(workload))

    def test_configs_with_the_same_packed_shape_pack_the_same_way(self, device: Device, workload: Workload) -> None:
        """A network's weights are packed once for all configs with the same packed shape."""
        template, space = device.template(workload), device.space(workload)
        weight = np.random.default_rng(0).standard_normal(weight_shape(workload), dtype=np.float32)
        by_shape: dict[tuple[int, ...], NDArray[Any]] = {}
        for vector in space.sample(40, np.random.default_rng(0)):
            config = space.config(vector)
            packed = template.pack_weight(workload, config, weight)
            np.testing.assert_array_equal(packed, by_shape.setdefault(template.packed_shape(workload, config), packed))
        assert len(by_shape) < 40

    def test_builds_without_the_hardware(self, device: Device, workload: Workload, tmp_path: Path) -> None:
        """Candidates are built while other candidates run."""
        device.build(workload, device.default_config(workload), tmp_path / "kernel.so")
        assert (tmp_path / "kernel.so").stat().st_size > 0

    def test_a_kernel_computes_the_reference(self, present: Device, workload: Workload, tmp_path: Path) -> None:
        """The default config's kernel is compared with the reference, as every candidate is."""
        config = present.default_config(workload)
        present.build(workload, config, tmp_path / "kernel.so")
        kernel = present.runner(workload).load(tmp_path / "kernel.so", config)
        assert kernel.relative_error() < 1e-5
        assert 0 < Fixed(number=1, repeats=3).evaluate(kernel).latency_s < 1

    def test_the_peak_is_above_every_kernel(self, present: Device, tmp_path: Path) -> None:
        """The peak is an upper bound of the speed, for every type."""
        workload = next(workload for workload in WORKLOADS if workload.operator in present.operators)
        config = present.default_config(workload)
        present.build(workload, config, tmp_path / "kernel.so")
        latency_s = present.runner(workload).load(tmp_path / "kernel.so", config)(10)
        assert all(present.peak_gflops(dtype) > workload.flop / latency_s / 1e9 for dtype in present.dtypes)
        assert present.dtypes[0] == "float32"

    def test_simulated_latencies_are_exact(self, target: Target, workload: Workload) -> None:
        """A simulated latency is reproducible and needs no device."""
        if target.location is not DeviceLocation.SIMULATOR:
            pytest.skip("is measured")
        config = target.default_config(workload)
        simulator, recreated = cast(Simulator, target), cast(Simulator, get_target(target.description))
        assert simulator.simulate(workload, config) == recreated.simulate(workload, config) > 0
        with pytest.raises(TargetError, match="is simulated; there is no device"):
            get_device(target.description)

    def test_a_profilable_target_measures_its_copy_bandwidth(self, target: Target) -> None:
        """The latencies of a network's kernels are compared with a roofline."""
        profilable = get_profilable(target.description)
        if profilable is None or profilable.absence() is not None:
            pytest.skip("cannot be profiled here")
        assert profilable.copy_bytes_per_s() > 0

    def test_the_compiler_and_the_runner_of_networks_exist(self, target: Target) -> None:
        """The target names both."""
        assert callable(named_object(target.networks.compiler))
        runner = named_object(target.networks.runner)(target)
        assert runner.threads >= 1 and isinstance(runner.is_exact, bool)

    def test_the_extensions_of_its_kind_can_be_imported(self, target: Target) -> None:
        """Commands and sections are given by name, and imported on demand."""
        kind = get_kind(target.description["kind"])
        assert all(named_object(path).name == name for name, path in kind.commands.items())
        assert all(callable(named_object(path).make) for path in kind.sections)
        assert all(callable(named_object(path)) for path in (kind.finer_tiles, kind.exporter) if path is not None)

    def test_a_description_survives_a_round_trip_through_json(self, target: Target) -> None:
        """A description is stored as JSON, in a task and in a build."""
        assert get_target(json.loads(json.dumps(target.description))).description == target.description
