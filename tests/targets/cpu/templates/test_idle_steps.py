"""A direct convolution skips the steps that would multiply only padding, and no others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.targets.cpu.templates.conv2d import Conv2dTemplate
from anole.targets.cpu.templates.conv2d_space import conv2d_space
from anole.targets.cpu.templates.idle_steps import live_share, met_share, skips
from anole.task import Conv2d

from ....examples import examples
from .kernels import UNIT, error_of, text_of

TEMPLATE = Conv2dTemplate(UNIT)
ATROUS = Conv2d(1, 14, 14, 16, 32, (3, 3), padding=(12, 12, 12, 12), dilation=(12, 12))


def test_of_an_atrous_kernel_few_steps_are_left() -> None:
    # Of 3 x 14 pairs of a tap and a row, 14 + 2 + 2 meet data.
    assert met_share(ATROUS) == pytest.approx((18 / 42) ** 2)
    tiles = {"tile_y": np.array([[14, 1, 1], [2, 1, 7]]), "tile_x": np.array([[1, 14], [2, 7]])}
    taps = {name: np.array([[3, 1], [1, 3]]) for name in ("tile_ry", "tile_rx")}
    np.testing.assert_allclose(live_share(ATROUS, tiles | taps), [18 / 42, 1])


@settings(max_examples=examples(60), deadline=None)
@given(
    size=st.integers(1, 9),
    taps=st.integers(1, 4),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 6),
    pads=st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
def test_no_step_that_meets_data_is_skipped(
    size: int, taps: int, stride: int, dilation: int, pads: tuple[int, int]
) -> None:
    size = max(size, (taps - 1) * dilation + 1 - sum(pads))
    w = Conv2d(1, size, 1, 1, 16, (taps, 1), (stride, 1), (pads[0], 0, pads[1], 0), (dilation, 1))
    places = [[0 <= y * stride + tap * dilation - pads[0] < size for tap in range(taps)] for y in range(w.out_height)]
    assert met_share(w) == pytest.approx(np.mean(places))
    rows = np.array([n for n in range(1, w.out_height + 1) if w.out_height % n == 0])
    ones = np.ones_like(rows)
    columns = {"tile_y": np.column_stack([w.out_height // rows, ones, rows]), "tile_x": np.column_stack([ones, ones])}
    columns |= {"tile_ry": np.column_stack([taps * ones, ones]), "tile_rx": np.column_stack([ones, ones])}
    meeting = [np.reshape(places, (-1, n, taps)).any(axis=1).mean() for n in rows]
    found = live_share(w, columns)
    assert (found >= np.array(meeting) - 1e-9).all()
    if stride == 1:
        np.testing.assert_allclose(found, meeting)


CASES = [
    ATROUS,
    replace(ATROUS, in_channels=3, out_channels=20, padding=(13, 5, 4, 12), dilation=(7, 6)),
    replace(ATROUS, batch=2, height=9, width=17, strides=(2, 1), padding=(8, 8, 8, 8), dilation=(8, 8)),
    # The weights come from memory, and are prefetched.
    replace(ATROUS, height=5, width=5, in_channels=512, out_channels=64, padding=(4, 4, 4, 4), dilation=(4, 4)),
    Conv2d(1, 4, 4, 8, 16, (3, 3), padding=(1, 1, 1, 1)),
]


@pytest.mark.parametrize("workload", CASES, ids=lambda workload: workload.label)
@pytest.mark.examples(1)
def test_any_config_is_right(workload: Conv2d) -> None:
    assert skips(workload)
    space = conv2d_space(UNIT, 2, workload)
    for config in [space.best_drawn, *map(space.config, space.sample(4, np.random.default_rng(0)))]:
        assert error_of(TEMPLATE, workload, config) < 1e-5


def test_the_reduction_is_inside_the_condition() -> None:
    config = conv2d_space(UNIT, 2, ATROUS).best_drawn
    whole = {name: (3, 1) for name in ("tile_ry", "tile_rx")} | {"tile_rc": (1, 16), "pad_at": "root"}
    before, _, inside = text_of(TEMPLATE, ATROUS, {**config, **whole}).partition("if ")
    assert "conv2d_init" in before and "conv2d_update" in inside and "conv2d_update" not in before


@pytest.mark.parametrize("side", [7, 14, 56])
def test_ordinary_convolutions_have_no_conditions(side: int) -> None:
    workload = Conv2d(1, side, side, 16, 32, (3, 3), padding=(1, 1, 1, 1))
    config = {**conv2d_space(UNIT, 2, workload).best_drawn, "pad_at": "root"}
    assert not skips(workload) and "if " not in text_of(TEMPLATE, workload, config)


@pytest.mark.parametrize(("channels", "pad_at"), [(512, "root"), (1024, "root"), (1024, "inline")])
def test_pixels_whole_ways_apart_are_copied_with_gaps(channels: int, pad_at: str) -> None:
    workload = Conv2d(1, 8, 8, channels, 16, (3, 3), padding=(1, 1, 1, 1))
    config = {**conv2d_space(UNIT, 2, workload).best_drawn, "pad_at": pad_at}
    assert ("buffer_dim_align" in text_of(TEMPLATE, workload, config)) == (channels == 1024 and pad_at == "root")
