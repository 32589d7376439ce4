"""A direct convolution skips exactly the steps that would multiply only padding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.targets.cpu.templates.skip_padding import active_share, data_share, skips
from anole.task import Conv2d

from .cases import ATROUS, IDLE, tries


def test_few_steps_of_a_dilated_kernel_remain() -> None:
    # Of 3 x 14 pairs of a tap and a row, 14 + 2 + 2 read data.
    assert data_share(ATROUS) == pytest.approx((18 / 42) ** 2)
    tiles = {"tile_y": np.array([[14, 1, 1], [2, 1, 7]]), "tile_x": np.array([[1, 14], [2, 7]])}
    taps = {name: np.array([[3, 1], [1, 3]]) for name in ("tile_ry", "tile_rx")}
    np.testing.assert_allclose(active_share(ATROUS, tiles | taps), [18 / 42, 1])


@tries(60)
@given(
    size=st.integers(1, 9),
    taps=st.integers(1, 4),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 6),
    pads=st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
def test_no_step_with_data_is_skipped(size: int, taps: int, stride: int, dilation: int, pads: tuple[int, int]) -> None:
    size = max(size, (taps - 1) * dilation + 1 - sum(pads))
    w = Conv2d(1, size, 1, 1, 16, (taps, 1), (stride, 1), (pads[0], 0, pads[1], 0), (dilation, 1))
    has_data = [[0 <= y * stride + tap * dilation - pads[0] < size for tap in range(taps)] for y in range(w.out_height)]
    assert data_share(w) == pytest.approx(np.mean(has_data))
    rows = np.array([n for n in range(1, w.out_height + 1) if w.out_height % n == 0])
    ones = np.ones_like(rows)
    columns = {"tile_y": np.column_stack([w.out_height // rows, ones, rows]), "tile_x": np.column_stack([ones, ones])}
    columns |= {"tile_ry": np.column_stack([taps * ones, ones]), "tile_rx": np.column_stack([ones, ones])}
    expected = [np.reshape(has_data, (-1, n, taps)).any(axis=1).mean() for n in rows]
    found = active_share(w, columns)
    assert (found >= np.array(expected) - 1e-9).all()
    if stride == 1:
        np.testing.assert_allclose(found, expected)


def test_only_convolutions_with_much_padding_skip_steps() -> None:
    assert all(map(skips, IDLE))
    assert not any(skips(Conv2d(1, side, side, 16, 32, (3, 3), padding=(1, 1, 1, 1))) for side in (7, 14, 56))
