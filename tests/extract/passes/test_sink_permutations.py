"""What the conversion of layouts does not know is done to data as it lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import ir, relax

from anole.extract.passes.channels_last import sink_permutations

from .building import drawn, module_of, operators, run

NHWC = drawn(2, 5, 6, 3)


def between(make: Any) -> Any:
    """Returns what is done to data that is brought to channels first, and back."""

    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        first = builder.emit(relax.op.permute_dims(x, [0, 3, 1, 2]))
        return relax.op.permute_dims(builder.emit(make(builder, first)), [0, 2, 3, 1])

    return build


def grouped(_: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    """A normalisation of whole pictures, with a factor for each channel."""
    return relax.op.nn.group_norm(x, slopes(3), slopes(3), 1, 1, [2, 3])


def slopes(*shape: int) -> ir.Expr:
    return relax.const(drawn(*shape, seed=1))


def parametric(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    """A rectifier with a slope for each channel, as torch's import has it."""
    positive = builder.emit(relax.op.greater(x, relax.const(0.0)))
    return relax.op.where(positive, x, builder.emit(relax.op.multiply(x, slopes(3, 1, 1))))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda _, x: relax.op.nn.leakyrelu(x, 0.1), ["leakyrelu"]),
        (lambda _, x: relax.op.clip(x, -0.5, 0.5), ["clip"]),
        (lambda _, x: relax.op.tanh(x), ["tanh"]),
        (lambda _, x: relax.op.nn.pad(x, [0, 0, 1, 2, 3, 4, 5, 6], "constant", 7.0), ["pad"]),
        (lambda _, x: relax.op.nn.log_softmax(x, 1), ["log_softmax"]),
        (lambda _, x: relax.op.take(x, relax.const([3, 0, 3]), -1, "wrap"), ["take"]),
        (lambda _, x: relax.op.strided_slice(x, [1, -1], [1, 0], [3, 5], [1, 2]), ["strided_slice"]),
        (lambda _, x: relax.op.add(x, slopes(2, 3, 5, 6)), ["add"]),
        (lambda _, x: relax.op.nn.max_pool2d(x, (2, 3), (2, 1), (0, 1, 1, 0), ceil_mode=True), ["max_pool2d"]),
        (lambda _, x: relax.op.nn.adaptive_avg_pool2d(x, (2, 3)), ["adaptive_avg_pool2d"]),
        (lambda _, x: relax.op.image.resize2d(x, (9, 7), layout="NCHW", method="linear"), ["resize2d"]),
        (lambda _, x: relax.op.concat([x, x], 1), ["concat"]),
        (grouped, ["group_norm"]),
        (parametric, ["greater", "multiply", "where"]),
    ],
)
@pytest.mark.examples(2)
def test_permutations_are_gone(make: Any, expected: list[str]) -> None:
    before = module_of(between(make), NHWC.shape)
    after = sink_permutations(before)
    assert operators(after) == expected
    np.testing.assert_allclose(run(after, NHWC), run(before, NHWC), rtol=1e-6, atol=1e-6)


def test_who_wants_channels_first_still_has_them() -> None:
    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        first = builder.emit(relax.op.permute_dims(x, [0, 3, 1, 2]))
        return relax.op.reshape(builder.emit(relax.op.nn.leakyrelu(first, 0.1)), (2, 90))

    before = module_of(build, NHWC.shape)
    after = sink_permutations(before)
    assert operators(after) == ["leakyrelu", "permute_dims", "reshape"]
    np.testing.assert_allclose(run(after, NHWC), run(before, NHWC), rtol=1e-6)


def test_operands_of_which_one_would_have_to_be_permuted_stay() -> None:
    def build(builder: relax.BlockBuilder, x: ir.Expr, y: ir.Expr) -> ir.Expr:
        return relax.op.add(builder.emit(relax.op.permute_dims(x, [0, 3, 1, 2])), y)

    module = module_of(build, NHWC.shape, (2, 3, 5, 6))
    assert operators(sink_permutations(module)) == ["permute_dims", "add"]


def test_other_permutations_are_joined() -> None:
    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        return relax.op.permute_dims(builder.emit(relax.op.permute_dims(x, [0, 3, 1, 2])), [1, 0, 3, 2])

    before = module_of(build, NHWC.shape)
    assert operators(sink_permutations(before)) == ["permute_dims"]
    np.testing.assert_array_equal(run(sink_permutations(before), NHWC), run(before, NHWC))
