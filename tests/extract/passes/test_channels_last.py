"""Convolutions get their channels last, whatever comes before them."""

from __future__ import annotations

import numpy as np
from tvm import ir, relax

from anole.extract.passes.canonicalize import canonicalize
from anole.extract.passes.channels_last import lay_channels_last

from .building import calls, drawn, module_of, operators, run

WEIGHT = drawn(5, 2, 3, 3)


def test_a_convolution_of_stacked_channels_is_converted() -> None:
    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        stacked = builder.emit(relax.op.stack([x, builder.emit(relax.op.exp(x))], 1))
        return relax.op.nn.conv2d(stacked, relax.const(WEIGHT))

    plain = module_of(build, (1, 6, 6))
    converted = lay_channels_last(canonicalize(plain))
    (layout,) = [str(call.attrs.data_layout) for call in calls(converted) if call.op.name == "relax.nn.conv2d"]
    assert layout == "NHWC"
    x = drawn(1, 6, 6, seed=1)
    np.testing.assert_allclose(run(converted, x), run(plain, x), rtol=1e-4, atol=1e-5)


def test_a_network_without_convolutions_stays() -> None:
    module = module_of(lambda _, x: relax.op.exp(x), (1, 6, 6, 6))
    assert operators(lay_channels_last(module)) == ["exp"]
