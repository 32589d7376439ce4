"""Zeros that are written around data for a convolution are its own padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import ir, relax

from anole.extract.passes.padding import absorb_pads

from .building import calls, drawn, module_of, operators, run

X = drawn(2, 5, 6, 3)


def padded(widths: list[int], **settings: Any) -> Any:
    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        border = builder.emit(relax.op.nn.pad(x, widths, **settings))
        channels = 3 + sum(widths[-2:])
        layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
        weight = relax.const(drawn(3, 3, channels, 4, seed=1))
        return relax.op.nn.conv2d(border, weight, strides=(2, 1), padding=(1, 0, 0, 2), **layouts)

    return build


def test_the_convolution_pads() -> None:
    before = module_of(padded([0, 0, 1, 2, 0, 3, 0, 0]), X.shape)
    after = absorb_pads(before)
    (call,) = calls(after)
    assert [int(pad) for pad in call.attrs.padding] == [2, 0, 2, 5]
    np.testing.assert_allclose(run(after, X), run(before, X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("widths", "settings"),
    [
        ([0, 0, 1, 1, 1, 1, 0, 0], {"pad_value": 1.0}),
        ([0, 0, 1, 1, 1, 1, 0, 0], {"pad_mode": "reflect"}),
        ([0, 0, 1, 1, 1, 1, 0, 1], {}),
        ([1, 0, 1, 1, 1, 1, 0, 0], {}),
    ],
)
def test_other_borders_stay(widths: list[int], settings: dict[str, Any]) -> None:
    module = module_of(padded(widths, **settings), X.shape)
    assert operators(absorb_pads(module)) == ["pad", "conv2d"]
