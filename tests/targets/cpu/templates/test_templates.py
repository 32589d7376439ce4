"""The CPU's templates: any valid config of any workload computes the correct result, with any vector unit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from tvm import s_tir, tirx

from anole.ir.nodes import collect
from anole.space import ALGORITHM
from anole.targets.base import TILES, WINOGRAD
from anole.targets.shared.kernel import define
from anole.targets.shared.reference import weight_shape
from anole.task import Attention, BatchMatmul, Conv2d, Dense

from .cases import AMX, ATROUS, AVX2, AVX512, FROM_MEMORY, IDLE, NEON, SEEDS, Case, cases, tries

SAME = (1, 1, 1, 1)


LONG = Conv2d(1, 5, 45, 12, 33, (3, 3), (1, 2), (0, 1, 0, 1), (1, 3), dtype="bfloat16")


def is_float_convolution(case: Case) -> bool:
    return isinstance(case.workload, Conv2d) and case.workload.dtype == "float32"


@tries(100)
@given(case=cases, seed=SEEDS)
# Two bundles, the second one with a missing group; and one whose filters do not fill a vector.
@example(case=Case(Conv2d(2, 9, 7, 15, 12, (3, 3), (2, 1), (1, 0, 2, 1), groups=3), AVX512), seed=0)
@example(case=Case(Conv2d(1, 6, 6, 20, 20, (3, 3), groups=5), AVX512), seed=1)
# AMX tiles: two for a row of pixels, for a single column, and for rows that do not fill them.
@example(case=Case(LONG, AMX, values={"tile_x": (1, 21), "tile_f": (1, 3, 16), "tile_y": (3, 1, 1)}), seed=0)
@example(case=Case(Conv2d(2, 37, 1, 8, 20, (3, 1), (1, 2), (0, 0, 2, 1), dtype="bfloat16"), AMX), seed=0)
@example(case=Case(Dense(37, 72, 33, "uint8"), AMX, values={ALGORITHM: TILES, "tile_y": (1, 3, 13)}), seed=0)
# Winograd blocks that span two images, in full rows of tiles.
@example(case=Case(Conv2d(4, 4, 5, 3, 16, (3, 3), padding=(2, 2, 2, 2)), values={ALGORITHM: WINOGRAD}), seed=0)
# Dilation that divides the rows, but not the columns.
@example(
    case=Case(Conv2d(2, 12, 13, 3, 16, (3, 3), padding=(4, 3, 4, 3), dilation=(4, 3)), values={ALGORITHM: WINOGRAD}),
    seed=0,
)
def test_any_valid_config_is_correct(case: Case, seed: int) -> None:
    assert case.error(case.random_config(seed)) < 1e-5


@tries(200)
@given(case=cases, seed=SEEDS)
def test_every_space_has_a_valid_default_and_features(case: Case, seed: int) -> None:
    vectors = case.space.sample(5, np.random.default_rng(seed))
    features = case.space.features(vectors)
    assert len(vectors) and case.space.valid(vectors).all()
    assert np.isfinite(features).all()
    np.testing.assert_array_equal(features[:1], case.space.features(vectors[:1]))
    assert case.space.rejection(case.default) is None


@tries(90)
@given(case=cases.filter(is_float_convolution), seed=SEEDS)
def test_packed_weights_are_the_filters_in_order_with_zero_padding(case: Case, seed: int) -> None:
    config, template, filters = case.random_config(seed), case.template, case.workload.out_channels
    weight = np.random.default_rng(seed).standard_normal(weight_shape(case.workload), dtype=np.float32)
    packed = template.pack_weight(case.workload, config, weight)
    assert packed.shape == template.packed_shape(case.workload, config) and packed.dtype == np.float32
    found = np.moveaxis(packed, 0, -2).reshape(*packed.shape[1:-1], -1)
    assert not found[..., filters:].any()
    if config.get(ALGORITHM) == WINOGRAD:
        # The last point is infinity, where a filter's value is its last tap.
        found, weight = found[-1, -1], weight[-1, -1]
    np.testing.assert_array_equal(found[..., :filters], weight.reshape(*found.shape[:-1], filters))


def depthwise(size: int, channels: int, stride: int = 1) -> Conv2d:
    return Conv2d(1, size, size, channels, channels, (3, 3), (stride, stride), SAME, groups=channels)


WIDE_DEPTHWISE = Conv2d(1, 14, 14, 128, 128, (7, 7), padding=(3, 3, 3, 3), groups=128)


def strided_apart(channels: int) -> Conv2d:
    return Conv2d(1, 8, 8, channels, 16, (3, 3), padding=SAME, exact=True)


def grouped(filters: int, channels: int) -> Conv2d:
    return Conv2d(1, 14, 14, 8 * channels, 8 * filters, (3, 3), padding=SAME, groups=8)


@pytest.mark.parametrize(
    "case",
    [
        *map(
            Case,
            [
                Conv2d(1, 8, 8, 16, 16, (3, 3), padding=SAME, groups=16),
                Conv2d(1, 5, 7, 64, 1, (1, 1)),
                Conv2d(1, 1, 1, 3, 5, (1, 1)),
                Conv2d(1, 9, 9, 3, 33, (7, 7), strides=(2, 2), padding=(3, 3, 3, 3)),
                Dense(1, 512, 1000),
                Dense(3, 1, 1),
                BatchMatmul(1, 1, 1, 1),
                BatchMatmul(2, 19, 8, 19, transpose_right=True),
                Attention(1, 1, 1, 1, 1),
                Attention(2, 19, 33, 5, 17, addends=2, masked=True),
                # TVM partitions this convolution's tiles incorrectly.
                Conv2d(1, 10, 10, 96, 96, (7, 7), padding=(3, 3, 3, 3), groups=96),
                *(depthwise(112, 32), depthwise(112, 96, 2), depthwise(14, 384), depthwise(7, 960)),
                *(WIDE_DEPTHWISE, grouped(4, 4)),
            ],
        ),
        *(Case(grouped(filters, channels), AVX512) for filters, channels in ((4, 4), (8, 8), (12, 12), (2, 1))),
        *(Case(Conv2d(2, 9, 11, 12, 19, (3, 3), padding=SAME), unit) for unit in (AVX512, AVX2, NEON)),
        *(Case(BatchMatmul(2, 12, 20, 64), values={"pack_at": at}) for at in ("inline", "tile", "root")),
        *map(Case, IDLE),
    ],
    ids=lambda case: case.workload.label,
)
@pytest.mark.examples(7)
def test_defaults_of_awkward_shapes_are_correct(case: Case) -> None:
    assert case.space.rejection(case.config) is None
    assert case.error(case.config) < 1e-5


SHARED, VECTORS = {"T.parallel(", "T.unroll("}, {"T.parallel(", "T.vectorized(", "T.unroll("}
OPTIONAL_MARKS = {"prefetch", "buffer_dim_align", "T.Shuffle(", "T.Select(", "multiply_tiles"}
"""Marks that only some kernels contain."""

PLAIN = Conv2d(1, 12, 12, 32, 32, (3, 3))
BF16_LAYER, BF16_DENSE = replace(PLAIN, dtype="bfloat16"), Dense(20, 64, 48, "bfloat16")


@pytest.mark.parametrize(
    ("case", "held"),
    [
        (Case(Conv2d(1, 14, 14, 32, 64, (3, 3), padding=SAME, exact=True)), VECTORS),
        (Case(BatchMatmul(4, 16, 8, 24, transpose_right=True)), VECTORS),
        *((Case(depthwise(*each), AVX512), {*SHARED, "T.vectorized(16)"}) for each in ((112, 96, 2), (7, 960))),
        *((Case(grouped(*each), AVX512), {*SHARED, "T.Shuffle("}) for each in ((4, 4), (2, 1))),
        *((Case(grouped(*each), AVX512), {*SHARED, "T.Select("}) for each in ((8, 8), (12, 12))),
        *((Case(each, values={"prefetch": 0}), {"T.parallel("}) for each in FROM_MEMORY),
        *((Case(each, values={"prefetch": 1}), {"prefetch"}) for each in FROM_MEMORY),
        (Case(Dense(7, 500, 600), values={"prefetch_k": 0}), {"T.parallel("}),
        (Case(Dense(7, 500, 600), values={"prefetch_k": 32}), {"prefetch"}),
        # Points of a tile, or pixels, at multiples of a cache way apart are stored with gaps.
        (Case(PLAIN, values={"prefetch_rc": 0}), {*VECTORS, "buffer_dim_align"}),
        (Case(PLAIN, values={"prefetch_rc": 4}), {*VECTORS, "buffer_dim_align", "prefetch"}),
        (Case(strided_apart(512), values={"pad_at": "root"}), VECTORS),
        (Case(strided_apart(1024), values={"pad_at": "root"}), {*VECTORS, "buffer_dim_align"}),
        (Case(strided_apart(1024), values={"pad_at": "inline"}), VECTORS),
        (Case(WIDE_DEPTHWISE, AVX2, values={"pad_at": "parallel"}), {*VECTORS, "buffer_dim_align"}),
        (Case(WIDE_DEPTHWISE, AVX2, values={"pad_at": "inline"}), VECTORS),
        (Case(replace(WIDE_DEPTHWISE, kernel=(3, 3)), AVX2, values={"pad_at": "parallel"}), VECTORS),
        *(
            (Case(grouped(*each), AVX2), {*SHARED, mark})
            for each, mark in (((4, 4), "T.Shuffle("), ((4, 8), "T.Select("))
        ),
        *((Case(each, AMX), {"T.parallel(", "multiply_tiles", "release_tiles"}) for each in (BF16_LAYER, BF16_DENSE)),
    ],
)
def test_kernels_contain_the_chosen_features(case: Case, held: set[str]) -> None:
    text = case.text(case.config)
    assert {mark for mark in OPTIONAL_MARKS | held if mark in text} == held


@pytest.mark.parametrize("side", [7, 14, 56])
def test_ordinary_convolutions_have_no_conditions(side: int) -> None:
    case = Case(Conv2d(1, side, side, 16, 32, (3, 3), padding=SAME, exact=True), values={"pad_at": "root"})
    assert "if " not in case.text(case.config)


def test_the_reduction_is_inside_the_condition() -> None:
    taps_outside = {name: (3, 1) for name in ("tile_ry", "tile_rx")} | {"tile_rc": (1, 16), "pad_at": "root"}
    case = Case(ATROUS, values=taps_outside)
    before, _, inside = case.text(case.config).partition("if ")
    assert "conv2d_init" in before and "conv2d_update" in inside and "conv2d_update" not in before


@pytest.mark.parametrize(
    ("workload", "in_place"),
    [
        (BatchMatmul(2, 12, 20, 64), True),
        (BatchMatmul(2, 12, 20, 65), False),
        (BatchMatmul(2, 12, 20, 64, transpose_right=True), False),
    ],
    ids=["full vectors", "a partial vector", "transposed"],
)
def test_only_full_vectors_are_read_in_place(workload: BatchMatmul, in_place: bool) -> None:
    (pack_at,) = (knob for knob in Case(workload).space.knobs if knob.name == "pack_at")
    assert ("inline" in pack_at.values) == in_place


@pytest.mark.parametrize(
    "workload", [Conv2d(1, 8, 8, 16, 20, (1, 1)), depthwise(8, 20), Dense(8, 16, 20), BatchMatmul(2, 8, 16, 20)]
)
def test_no_vector_has_a_condition_on_its_lanes(workload: Conv2d | Dense | BatchMatmul) -> None:
    case = Case(workload, AVX512)
    func = case.template.schedule(define(case.template, workload, case.default), workload, case.default)
    vectors = [loop for loop in collect(func.body, tirx.For) if loop.kind == tirx.ForKind.VECTORIZED]
    conditions = [(loop, block.predicate) for loop in vectors for block in collect(loop, s_tir.SBlockRealize)]
    assert conditions
    for loop, condition in conditions:
        assert not any(each.same_as(loop.loop_var) for each in collect(condition, tirx.Var))
