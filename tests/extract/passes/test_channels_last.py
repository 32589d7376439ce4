"""The NHWC layout: convolutions are converted, and other operators work on NHWC data without permutations."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import ir, relax

from anole.extract.passes.canonicalize import canonicalize
from anole.extract.passes.channels_last import sink_permutations, to_channels_last

from .building import assert_rewritten, calls, constant, network, operators, random_array

NHWC = random_array(2, 5, 6, 3)


def test_a_convolution_of_stacked_channels_is_converted() -> None:
    def build(x: ir.Expr) -> ir.Expr:
        return relax.op.nn.conv2d(relax.op.stack([x, relax.op.exp(x)], 1), constant(5, 2, 3, 3))

    x = random_array(1, 6, 6, seed=1)
    converted = assert_rewritten(lambda module: to_channels_last(canonicalize(module)), build, x, rtol=1e-4)
    (layout,) = [str(call.attrs.data_layout) for call in calls(converted) if call.op.name == "relax.nn.conv2d"]
    assert layout == "NHWC"


def test_networks_without_convolutions_are_unchanged() -> None:
    assert operators(to_channels_last(network(relax.op.exp, (1, 6, 6, 6)))) == ["exp"]


def channels_first(x: ir.Expr) -> ir.Expr:
    return relax.op.permute_dims(x, [0, 3, 1, 2])


def parametric(x: ir.Expr) -> ir.Expr:
    """Return a PReLU with a slope for each channel, as imported from torch."""
    return relax.op.where(relax.op.greater(x, relax.const(0.0)), x, relax.op.multiply(x, constant(3, 1, 1)))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda x: relax.op.nn.leakyrelu(x, 0.1), ["leakyrelu"]),
        (lambda x: relax.op.clip(x, -0.5, 0.5), ["clip"]),
        (relax.op.tanh, ["tanh"]),
        (lambda x: relax.op.nn.pad(x, [0, 0, 1, 2, 3, 4, 5, 6], "constant", 7.0), ["pad"]),
        (lambda x: relax.op.nn.log_softmax(x, 1), ["log_softmax"]),
        (lambda x: relax.op.take(x, relax.const([3, 0, 3]), -1, "wrap"), ["take"]),
        (lambda x: relax.op.strided_slice(x, [1, -1], [1, 0], [3, 5], [1, 2]), ["strided_slice"]),
        (lambda x: relax.op.add(x, constant(2, 3, 5, 6)), ["add"]),
        (lambda x: relax.op.nn.max_pool2d(x, (2, 3), (2, 1), (0, 1, 1, 0), ceil_mode=True), ["max_pool2d"]),
        (lambda x: relax.op.nn.adaptive_avg_pool2d(x, (2, 3)), ["adaptive_avg_pool2d"]),
        (lambda x: relax.op.image.resize2d(x, (9, 7), layout="NCHW", method="linear"), ["resize2d"]),
        (lambda x: relax.op.concat([x, x], 1), ["concat"]),
        (lambda x: relax.op.nn.group_norm(x, constant(3), constant(3), 1, 1, [2, 3]), ["group_norm"]),
        (parametric, ["greater", "multiply", "where"]),
    ],
)
@pytest.mark.examples(2)
def test_permutations_cancel(make: Any, expected: list[str]) -> None:
    def build(x: ir.Expr) -> ir.Expr:
        return relax.op.permute_dims(make(channels_first(x)), [0, 2, 3, 1])

    assert_rewritten(sink_permutations, build, NHWC, left=expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("build", "left"),
    [
        # Readers of NCHW data still get it, and other permutations are merged.
        (
            lambda x: relax.op.reshape(relax.op.nn.leakyrelu(channels_first(x), 0.1), (2, 90)),
            ["leakyrelu", "permute_dims", "reshape"],
        ),
        (lambda x: relax.op.permute_dims(channels_first(x), [1, 0, 3, 2]), ["permute_dims"]),
    ],
)
def test_necessary_permutations_stay(build: Any, left: list[str]) -> None:
    assert_rewritten(sink_permutations, build, NHWC, left=left, rtol=1e-6, atol=0)


def test_operands_are_unchanged_if_one_would_need_a_permutation() -> None:
    module = network(lambda x, y: relax.op.add(channels_first(x), y), NHWC.shape, (2, 3, 5, 6))
    assert operators(sink_permutations(module)) == ["permute_dims", "add"]
