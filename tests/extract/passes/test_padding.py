"""Zero padding is folded into convolutions, and kernel taps that read only padding are dropped."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import ir, relax

from anole.extract.passes.padding import absorb_pads, drop_idle_taps
from anole.ir.mutators import extents

from ...examples import examples
from .building import assert_rewritten, calls, conv2d, network, operators, random_array

X = random_array(2, 5, 6, 3)


def padded(widths: list[int], **settings: Any) -> Any:
    channels = 3 + sum(widths[-2:])
    attributes = {"strides": (2, 1), "padding": (1, 0, 0, 2)}
    return lambda x: conv2d(relax.op.nn.pad(x, widths, **settings), 3, 3, channels, 4, **attributes)


def test_zero_padding_is_folded() -> None:
    after = assert_rewritten(absorb_pads, padded([0, 0, 1, 2, 0, 3, 0, 0]), X, left=["conv2d"])
    assert settings_of(after)[1] == [2, 0, 2, 5]


@pytest.mark.parametrize(
    ("widths", "settings"),
    [
        ([0, 0, 1, 1, 1, 1, 0, 0], {"pad_value": 1.0}),
        ([0, 0, 1, 1, 1, 1, 0, 0], {"pad_mode": "reflect"}),
        ([0, 0, 1, 1, 1, 1, 0, 1], {}),
        ([1, 0, 1, 1, 1, 1, 0, 0], {}),
    ],
)
def test_other_padding_is_unchanged(widths: list[int], settings: dict[str, Any]) -> None:
    assert operators(absorb_pads(network(padded(widths, **settings), X.shape))) == ["pad", "conv2d"]


def settings_of(module: tvm.IRModule) -> tuple[tuple[int, ...], list[int], list[int]]:
    """Return the only convolution's kernel, padding and dilation."""
    (call,) = calls(module)
    return (
        tuple(extents(call.args[1])[:2]),
        [int(pad) for pad in call.attrs.padding],
        [int(each) for each in call.attrs.dilation],
    )


@pytest.mark.parametrize(
    ("dilation", "left"),
    [
        (24, ((1, 1), [0, 0, 0, 0], [1, 1])),
        (14, ((1, 1), [0, 0, 0, 0], [1, 1])),
        (13, ((3, 3), [13, 13, 13, 13], [13, 13])),
    ],
)
def test_taps_of_atrous_kernels_outside_the_image_are_dropped(dilation: int, left: Any) -> None:
    def build(x: ir.Expr) -> ir.Expr:
        return conv2d(x, 3, 3, 4, 6, padding=(dilation,) * 4, dilation=(dilation,) * 2)

    assert settings_of(assert_rewritten(drop_idle_taps, build, random_array(1, 14, 14, 4))) == left


def test_padding_never_becomes_negative() -> None:
    """The first of two taps reads only padding, but without it the other one would need negative padding."""
    attributes = {"padding": (1, 0, 0, 0), "dilation": (3, 1), "strides": (9, 1)}
    before = network(lambda x: conv2d(x, 2, 1, 4, 6, **attributes), (1, 9, 1, 4))
    assert settings_of(drop_idle_taps(before))[:2] == ((2, 1), [1, 0, 0, 0])


@settings(max_examples=examples(25), deadline=None)
@given(
    size=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    padding=st.tuples(*[st.integers(0, 7)] * 4),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    groups=st.sampled_from([1, 2]),
)
def test_dropping_idle_taps_preserves_results(
    size: tuple[int, int], kernel: tuple[int, int], padding: tuple[int, ...], groups: int, **attributes: tuple[int, int]
) -> None:
    spans = [attributes["dilation"][i] * (kernel[i] - 1) + 1 for i in range(2)]
    missing = [max(0, spans[i] - size[i] - padding[i] - padding[i + 2]) for i in range(2)]
    padding = (padding[0] + missing[0], padding[1] + missing[1], *padding[2:])

    def build(x: ir.Expr) -> ir.Expr:
        return conv2d(x, *kernel, 4 // groups, 6, padding=padding, groups=groups, **attributes)

    after = assert_rewritten(drop_idle_taps, build, random_array(2, *size, 4), rtol=1e-4, atol=1e-4)
    assert settings_of(drop_idle_taps(after)) == settings_of(after)
