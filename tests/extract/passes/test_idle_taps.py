"""Kernels lose the taps that only ever meet the border, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import ir, relax

from anole.extract.passes.padding import drop_idle_taps

from ...examples import examples
from .building import calls, drawn, module_of, run


def convolution(kernel: tuple[int, int], groups: int = 1, **attributes: Any) -> Any:
    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        weight = relax.const(drawn(*kernel, 4 // groups, 6, seed=1))
        layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
        return relax.op.nn.conv2d(x, weight, groups=groups, **layouts, **attributes)

    return build


def settings_of(module: Any) -> tuple[tuple[int, ...], list[int], list[int]]:
    (call,) = calls(module)
    shape = tuple(int(extent) for extent in call.args[1].ty.shape)
    return shape, [int(pad) for pad in call.attrs.padding], [int(each) for each in call.attrs.dilation]


@pytest.mark.parametrize(
    ("dilation", "kernel", "padding", "left"),
    [
        (24, (1, 1), [0, 0, 0, 0], [1, 1]),
        (14, (1, 1), [0, 0, 0, 0], [1, 1]),
        (13, (3, 3), [13, 13, 13, 13], [13, 13]),
    ],
)
def test_of_an_atrous_kernel_is_left_what_meets_the_image(
    dilation: int, kernel: tuple[int, int], padding: list[int], left: list[int]
) -> None:
    x = drawn(1, 14, 14, 4)
    before = module_of(convolution((3, 3), padding=(dilation,) * 4, dilation=(dilation,) * 2), x.shape)
    after = drop_idle_taps(before)
    assert settings_of(after) == ((*kernel, 4, 6), padding, left)
    np.testing.assert_allclose(run(after, x), run(before, x), rtol=1e-5, atol=1e-5)


def test_data_that_nothing_reads_are_not_cut_off() -> None:
    """The first tap of two meets but the border, the other not the first row: without the border it would."""
    x = drawn(1, 9, 1, 4)
    before = module_of(convolution((2, 1), padding=(1, 0, 0, 0), dilation=(3, 1), strides=(9, 1)), x.shape)
    assert settings_of(drop_idle_taps(before))[:2] == ((2, 1, 4, 6), [1, 0, 0, 0])


@settings(max_examples=examples(25), deadline=None)
@given(
    size=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    padding=st.tuples(*[st.integers(0, 7)] * 4),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    groups=st.sampled_from([1, 2]),
)
def test_the_answer_is_the_same(
    size: tuple[int, int],
    kernel: tuple[int, int],
    padding: tuple[int, ...],
    strides: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
) -> None:
    spans = [dilation[i] * (kernel[i] - 1) + 1 for i in range(2)]
    padding = tuple(
        pad + (max(0, spans[i % 2] - size[i % 2] - padding[i % 2] - padding[i % 2 + 2]) if i < 2 else 0)
        for i, pad in enumerate(padding)
    )
    x = drawn(2, *size, 4)
    build = convolution(kernel, groups, padding=padding, strides=strides, dilation=dilation)
    before = module_of(build, x.shape)
    after = drop_idle_taps(before)
    np.testing.assert_allclose(run(after, x), run(before, x), rtol=1e-4, atol=1e-4)
    assert settings_of(drop_idle_taps(after)) == settings_of(after)
