"""The CPU's grouped convolution: any valid config of any shape is right, in vectors that several groups share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, example, given, settings
from tvm import te, tirx

from anole.targets.cpu.device import builder
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.target import CpuTarget
from anole.targets.cpu.templates.grouped import GroupedTemplate
from anole.targets.cpu.templates.grouped_space import Bundle, grouped_space, is_bundled, n_bundles
from anole.targets.cpu.templates.programs import programs_of
from anole.targets.shared.reference import anchor, data_shape, out_shape, weight_shape
from anole.task import Conv2d

from ....examples import examples
from .kernels import AVX2, AVX512, PROCESSOR, UNITS, drawn, error_of, text_of
from .workloads import grouped_convolutions

LAYER = Conv2d(1, 14, 14, 32, 32, (3, 3), padding=(1, 1, 1, 1), groups=8)


@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(case=grouped_convolutions(UNITS.values()))
# Two bundles, the second of which lacks a group; and one with filters that fill no vector.
@example(case=(Conv2d(2, 9, 7, 15, 12, (3, 3), (2, 1), (1, 0, 2, 1), groups=3), AVX512, 0))
@example(case=(Conv2d(1, 6, 6, 20, 20, (3, 3), groups=5), AVX512, 1))
def test_any_valid_config_is_right(case: tuple[Conv2d, VectorUnit, int]) -> None:
    workload, unit, seed = case
    assert error_of(GroupedTemplate(unit), workload, drawn(grouped_space(unit, 2, workload), seed)) < 1e-5


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(case=grouped_convolutions(UNITS.values()))
def test_every_space_has_a_valid_default_and_features(case: tuple[Conv2d, VectorUnit, int]) -> None:
    workload, unit, seed = case
    space = grouped_space(unit, 2, workload)
    vectors = space.sample(5, np.random.default_rng(seed))
    assert len(vectors) and space.valid(vectors).all()
    assert np.isfinite(space.features(vectors)).all()
    assert space.rejection(space.best_drawn) is None


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(case=grouped_convolutions(UNITS.values()))
def test_packed_weights_are_the_filters_in_order_and_zeros(case: tuple[Conv2d, VectorUnit, int]) -> None:
    workload, unit, seed = case
    template, config = GroupedTemplate(unit), drawn(grouped_space(unit, 2, workload), seed)
    weight = np.random.default_rng(seed).standard_normal(weight_shape(workload), dtype=np.float32)
    packed = template.pack_weight(workload, config, weight)
    assert packed.shape == template.packed_shape(workload, config)
    filters = np.moveaxis(packed, 0, 3).reshape(*weight.shape[:3], -1)
    np.testing.assert_array_equal(filters[..., : workload.out_channels], weight)
    assert not filters[..., workload.out_channels :].any()


@settings(max_examples=examples(60), deadline=None)
@given(case=grouped_convolutions(UNITS.values()))
def test_every_lane_belongs_to_the_group_of_its_filter(case: tuple[Conv2d, VectorUnit, int]) -> None:
    workload, unit, _ = case
    bundle = Bundle.of(unit, workload)
    lanes = [group for vector in range(bundle.vectors) for group in bundle.groups_of(vector)]
    held = bundle.groups * bundle.group_filters
    assert lanes[:held] == [f * workload.groups // workload.out_channels for f in range(held)]
    assert set(lanes[held:]) <= {bundle.groups - 1} and len(lanes) - held < unit.lanes
    assert n_bundles(unit, workload) * bundle.groups >= workload.groups


@pytest.mark.parametrize(
    ("filters", "groups", "unit", "bundled"),
    [
        (4, 32, AVX512, (4, 1)),
        (8, 13, AVX512, (2, 1)),
        (24, 6, AVX512, (2, 3)),
        (24, 6, AVX2, None),
        (20, 3, AVX512, (3, 4)),
        (20, 3, AVX2, None),
        (16, 4, AVX512, None),
        (13, 64, AVX512, None),
        (13, 4, AVX512, (4, 4)),
        (32, 1, AVX512, None),
    ],
)
def test_groups_share_vectors_that_they_fill_together(
    filters: int, groups: int, unit: VectorUnit, bundled: tuple[int, int] | None
) -> None:
    workload = Conv2d(1, 8, 8, 5 * groups, filters * groups, (3, 3), groups=groups)
    bundle = Bundle.of(unit, workload)
    assert ((bundle.groups, bundle.vectors) if is_bundled(unit, workload) else None) == bundled


def test_only_their_tasks_have_another_version() -> None:
    target = CpuTarget({**PROCESSOR, "features": ["avx512f"]})
    layer = replace(LAYER, height=28, width=28)
    assert target.template_version(layer) == 2
    assert target.template_version(replace(layer, groups=2)) == 1
    assert target.template_version(replace(layer, groups=32)) == 2
    assert target.template_version(replace(layer, groups=32, out_channels=64)) == 3
    assert target.template_version(replace(layer, groups=32, out_channels=512)) == 2


@pytest.mark.parametrize("filters", [4, 8, 12, 2], ids="shuffled blended three-vectors multiplier".split())
def test_the_default_is_parallel_vectorised_and_joins_groups(filters: int) -> None:
    groups, channels = 8, 1 if filters == 2 else filters
    workload = replace(LAYER, in_channels=groups * channels, out_channels=groups * filters, groups=groups)
    config = grouped_space(AVX512, 2, workload).best_drawn
    template = programs_of(AVX512, workload, exact=False, is_open=False).template_for(AVX512)
    assert isinstance(template, GroupedTemplate)
    text = text_of(template, workload, config)
    assert "T.parallel(" in text and "T.unroll(" in text
    assert ("T.Shuffle(" in text) == (filters in (4, 2)) and ("T.Select(" in text) == (filters in (8, 12))
    assert error_of(template, workload, config) < 1e-5


EPILOGUES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sigmoid": (te.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "clip": (lambda x: tirx.min(tirx.max(x, 0.0), 6.0), lambda x: np.clip(x, 0, 6)),
    "tanh": (te.tanh, np.tanh),
}


@pytest.mark.examples(2)
@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("filters", [4, 5], ids=["whole vectors", "a part of one"])
def test_any_epilogue_joins_with_a_residual(name: str, filters: int) -> None:
    workload = Conv2d(2, 6, 7, 20, 4 * filters, (3, 3), padding=(1, 0, 2, 1), groups=4)
    template, config = GroupedTemplate(AVX512), grouped_space(AVX512, 2, workload).best_drawn
    symbolic, numeric = EPILOGUES[name]
    data = te.placeholder(data_shape(workload), name="data")
    packed = te.placeholder(template.packed_shape(workload, config), name="packed")
    conv = template.compute(workload, config, data, packed)
    residual = te.placeholder(conv.shape, name="residual")
    active = te.compute(conv.shape, lambda *at: symbolic(conv[at]), name="active")
    out = te.compute(conv.shape, lambda *at: active[at] + residual[at], name="sum")
    func = template.schedule(te.create_prim_func([data, packed, residual, out]), workload, config)

    rng = np.random.default_rng(0)
    shapes = (data_shape(workload), weight_shape(workload), out_shape(workload))
    x, weight, skip = (rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
    arguments = [x, template.pack_weight(workload, config, weight), skip, np.full_like(skip, np.nan)]
    tensors = [tvm.runtime.tensor(each) for each in arguments]
    builder.load(func, PROCESSOR)(*tensors)
    expected = numeric(anchor(workload, x.astype(np.float64), weight.astype(np.float64))) + skip
    np.testing.assert_allclose(tensors[-1].numpy(), expected, rtol=1e-4, atol=1e-5)
