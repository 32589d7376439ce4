"""The CPU's grouped and depthwise convolutions: which filters share vectors, and fusion with epilogues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import assume, given
from tvm import te, tirx

from anole.targets.cpu.device import builder
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates.depthwise_space import channel_lanes, is_depthwise
from anole.targets.cpu.templates.grouped import GroupedTemplate
from anole.targets.cpu.templates.grouped_space import Bundle, grouped_space, is_bundled, n_bundles
from anole.targets.shared.reference import anchor, data_shape, out_shape, weight_shape
from anole.task import Conv2d

from .cases import AVX2, AVX512, NEON, PROCESSOR, UNITS, grouped, tries


@tries(60)
@given(workload=grouped, unit=UNITS)
def test_every_lane_belongs_to_the_group_of_its_filter(workload: Conv2d, unit: VectorUnit) -> None:
    assume(is_bundled(unit, workload))
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
def test_groups_that_fill_vectors_together_share_them(
    filters: int, groups: int, unit: VectorUnit, bundled: tuple[int, int] | None
) -> None:
    workload = Conv2d(1, 8, 8, 5 * groups, filters * groups, (3, 3), groups=groups)
    bundle = Bundle.of(unit, workload)
    assert ((bundle.groups, bundle.vectors) if is_bundled(unit, workload) else None) == bundled


@pytest.mark.parametrize(
    ("channels", "unit", "lanes"),
    [(32, AVX512, 16), (24, AVX512, 8), (36, AVX512, 16), (13, AVX512, 16), (34, AVX512, 16), (13, NEON, 4)],
)
def test_vectors_are_as_wide_as_the_channels_allow(channels: int, unit: VectorUnit, lanes: int) -> None:
    assert channel_lanes(unit, Conv2d(1, 8, 8, channels, channels, (3, 3), groups=channels)) == lanes


def test_only_convolutions_with_one_channel_per_group_are_depthwise() -> None:
    assert is_depthwise(Conv2d(1, 8, 8, 4, 8, (3, 3), groups=4))
    assert not is_depthwise(Conv2d(1, 8, 8, 4, 8, (3, 3), groups=2))
    assert not is_depthwise(Conv2d(1, 8, 8, 1, 8, (3, 3)))


EPILOGUES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sigmoid": (te.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "clip": (lambda x: tirx.min(tirx.max(x, 0.0), 6.0), lambda x: np.clip(x, 0, 6)),
    "tanh": (te.tanh, np.tanh),
}


@pytest.mark.examples(2)
@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("filters", [4, 5], ids=["full vectors", "a partial vector"])
def test_any_epilogue_is_fused_with_a_residual(name: str, filters: int) -> None:
    workload = Conv2d(2, 6, 7, 20, 4 * filters, (3, 3), padding=(1, 0, 2, 1), groups=4)
    template, config = GroupedTemplate(AVX512), grouped_space(AVX512, 2, workload).best_sampled
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
