"""Low-precision conversion: anchors get rounded operands, each value is rounded once, and all else stays float32."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm import ir, relax

from anole.extract.graph import workload_of
from anole.extract.passes.drop_integer_round_trips import drop_integer_round_trips
from anole.extract.passes.low_precision import lower_precision
from anole.ir.convolutions import CHANNELS_LAST
from anole.task import Conv2d, Workload

from .building import calls, constant, conv2d, module_of, operators, outputs, random_array, run

X = random_array(1, 8, 8, 4)
SAME = {"padding": (1, 1)}


def to_bfloat16(workload: Workload) -> Workload:
    """Convert all workloads but depthwise convolutions."""
    is_depthwise = isinstance(workload, Conv2d) and workload.groups > 1
    return workload if is_depthwise else replace(workload, dtype="bfloat16")


def convert(build: Any, *shapes: tuple[int, ...]) -> Any:
    return lower_precision(module_of(build, *shapes), workload_of, to_bfloat16)


def block(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    """Return a residual block: a convolution, and another one whose result is added to the first."""
    first = builder.emit(relax.op.nn.relu(builder.emit(conv2d(x, 3, 3, 4, 4, **SAME))))
    second = builder.emit(conv2d(first, 3, 3, 4, 4, seed=2, **SAME))
    return relax.op.add(second, first)


def test_a_value_is_rounded_once_for_all_readers() -> None:
    after = convert(block, X.shape)
    assert operators(after) == ["astype", "conv2d", "relu", "astype", "conv2d", "astype", "add"]
    assert [workload.dtype for call in calls(after) if (workload := workload_of(call))] == ["bfloat16"] * 2
    exact, found = run(module_of(block, X.shape), X), run(after, X)
    assert 1e-4 < np.linalg.norm(found - exact) / np.linalg.norm(exact) < 1e-2
    assert found.dtype == np.float32


def test_values_are_rounded_to_bfloat16() -> None:
    def rounded(array: np.ndarray) -> np.ndarray:
        return array.astype(ml_dtypes.bfloat16).astype(np.float32)

    weight = random_array(8, 5, seed=3)
    after = convert(lambda _, x: relax.op.matmul(x, relax.const(weight)), (6, 8))
    x = random_array(6, 8)
    np.testing.assert_allclose(run(after, x), rounded(x) @ rounded(weight), rtol=1e-5, atol=1e-5)


def test_operators_that_move_or_select_values_run_after_rounding() -> None:
    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        first = builder.emit(conv2d(x, 1, 1, 4, 4))
        pooled = builder.emit(relax.op.nn.max_pool2d(first, (2, 2), (2, 2), layout="NHWC"))
        other = builder.emit(conv2d(pooled, 1, 1, 4, 4, seed=2))
        joined = builder.emit(relax.op.concat([pooled, other], axis=3))
        return conv2d(joined, 1, 1, 8, 4, seed=3)

    after = operators(convert(build, X.shape))
    assert after == ["astype", "conv2d", "astype", "max_pool2d", "conv2d", "astype", "concat", "conv2d"]


def test_outputs_and_other_operators_read_unrounded_values() -> None:
    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        first = builder.emit(conv2d(x, 1, 1, 4, 4))
        second = builder.emit(conv2d(first, 1, 1, 4, 4, seed=2))
        depthwise = builder.emit(conv2d(first, 3, 3, 1, 4, groups=4))
        return relax.Tuple([first, second, depthwise])

    after = convert(build, X.shape)
    convolutions = [call for call in calls(after) if call.op.name == "relax.nn.conv2d"]
    assert [str(call.args[0].ty.dtype) for call in convolutions] == ["bfloat16", "bfloat16", "float32"]
    first, *_ = outputs(after, X)
    assert first.dtype == np.float32 and (first != first.astype(ml_dtypes.bfloat16)).any()


@pytest.mark.parametrize("build", [lambda _, x: conv2d(x, 3, 3, 1, 4, groups=4), lambda _, x: relax.op.exp(x)])
def test_networks_without_anchors_to_convert_are_unchanged(build: Any) -> None:
    before = module_of(build, X.shape)
    assert lower_precision(before, workload_of, to_bfloat16) is before


def quantize(builder: relax.BlockBuilder, x: ir.Expr, scale: float, zero: int, low: int = 0) -> ir.Expr:
    """Return quantized data minus the zero point, in float32."""
    rounded = builder.emit(relax.op.round(builder.emit(relax.op.divide(x, scalar(scale)))))
    clipped = builder.emit(relax.op.clip(builder.emit(relax.op.add(rounded, scalar(zero))), low, low + 255))
    return builder.emit(relax.op.subtract(clipped, scalar(zero)))


def scalar(value: float) -> ir.Expr:
    return relax.const(np.float32(value))


def int8(*shape: int, seed: int = 1) -> ir.Expr:
    return relax.const(np.random.default_rng(seed).integers(-128, 128, shape).astype(np.float32))


@pytest.mark.examples(6)
@pytest.mark.parametrize("low", [0, -128])
@pytest.mark.parametrize("zero", [0, 7])
@pytest.mark.parametrize("channels", [8, 3])
@pytest.mark.parametrize("padding", [(0, 0), (1, 2)])
def test_integer_products_are_computed_exactly_in_8_bits(
    low: int, zero: int, channels: int, padding: tuple[int, int]
) -> None:
    """Data is padded with the zero point, and channels to a multiple of the packed lanes."""

    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        data, settings = quantize(builder, x, 0.02, zero + low, low), {"padding": padding, "out_dtype": "int32"}
        weight = int8(3, 3, channels, 5)
        return relax.op.nn.conv2d(data, weight, **CHANNELS_LAST, **settings)

    x = random_array(1, 6, 7, channels)
    after = convert_to_uint8(build, x.shape)
    (convolution,) = [call for call in calls(after) if call.op.name == "relax.nn.conv2d"]
    assert [str(each.ty.dtype) for each in (*convolution.args, convolution)] == ["uint8", "int8", "int32"]
    np.testing.assert_array_equal(run(after, x), run(module_of(build, x.shape), x))


def test_all_readers_share_the_stored_values() -> None:
    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        data = quantize(builder, x, 0.02, 100)
        first = builder.emit(relax.op.matmul(data, int8(9, 16), out_dtype="int32"))
        second = builder.emit(relax.op.matmul(data, int8(9, 16, seed=2), out_dtype="int32"))
        return relax.Tuple([first, second, builder.emit(relax.op.multiply(data, scalar(0.02)))])

    x = random_array(4, 9)
    after, before = convert_to_uint8(build, x.shape), module_of(build, x.shape)
    assert sum(str(call.ty.dtype) == "uint8" and call.op.name == "relax.astype" for call in calls(after)) == 1
    for found, expected in zip(outputs(after, x), outputs(before, x), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_values_beyond_8_bits_stay_in_float32() -> None:
    """Values that are not rounded, ranges of more than 256 integers, and weights beyond int8 are unchanged."""

    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        data = quantize(builder, x, 0.1, 3)
        large = [
            builder.emit(relax.op.matmul(data, relax.const(np.full((8, 4), each, np.float32)), out_dtype="int32"))
            for each in (128, -129)
        ]
        wide = builder.emit(relax.op.clip(builder.emit(relax.op.round(x)), 0, 256))
        parts = builder.emit(relax.op.clip(x, 0, 255))
        found = [builder.emit(relax.op.matmul(each, int8(8, 4), out_dtype="int32")) for each in (wide, parts, x)]
        return relax.Tuple([*large, *found])

    before = module_of(build, (2, 8))
    assert lower_precision(before, workload_of, to_uint8) is before


def to_uint8(workload: Workload) -> Workload:
    return replace(workload, dtype="uint8") if workload.exact else workload


def convert_to_uint8(build: Any, *shapes: tuple[int, ...]) -> Any:
    return lower_precision(module_of(build, *shapes), workload_of, to_uint8)


@pytest.mark.parametrize("shape", [(), (1, 1)])
def test_zero_points_may_be_computed(shape: tuple[int, ...]) -> None:
    def build(builder: relax.BlockBuilder, x: ir.Expr, z: ir.Expr) -> ir.Expr:
        point = builder.emit(relax.op.round(builder.emit(relax.op.multiply(z, scalar(10)))))
        data = builder.emit(relax.op.clip(builder.emit(relax.op.round(x)), 0, 255))
        centered = builder.emit(relax.op.subtract(data, point))
        return relax.op.matmul(centered, int8(12, 5), out_dtype="int32")

    operands = 100 * np.abs(random_array(4, 12)), np.full(shape, 3.3, np.float32)
    shapes = [each.shape for each in operands]
    after = convert_to_uint8(build, *shapes)
    assert "uint8" in {str(call.args[0].ty.dtype) for call in calls(after) if call.op.name == "relax.matmul"}
    np.testing.assert_array_equal(run(after, *operands), run(module_of(build, *shapes), *operands))


@pytest.mark.examples(2)
@pytest.mark.parametrize("channels", [8, 3])
@pytest.mark.parametrize("low", [0, -128])
def test_data_may_be_padded_with_a_computed_zero_point(channels: int, low: int) -> None:
    def build(builder: relax.BlockBuilder, x: ir.Expr, z: ir.Expr) -> ir.Expr:
        point = builder.emit(relax.op.round(z))
        data = builder.emit(relax.op.clip(builder.emit(relax.op.round(x)), low, low + 255))
        centered = builder.emit(relax.op.subtract(data, point))
        return relax.op.nn.conv2d(centered, int8(3, 3, channels, 5), **CHANNELS_LAST, padding=(1, 2), out_dtype="int32")

    operands = 50 * random_array(1, 6, 7, channels), np.array(low + 100.4, np.float32)
    shapes = [each.shape for each in operands]
    after = convert_to_uint8(build, *shapes)
    (convolution,) = [call for call in calls(after) if getattr(call.op, "name", "") == "relax.nn.conv2d"]
    assert str(convolution.args[0].ty.dtype) == "uint8"
    np.testing.assert_array_equal(run(after, *operands), run(module_of(build, *shapes), *operands))


def test_a_value_may_be_stored_in_two_ways() -> None:
    """An integer product reads it as uint8, and a float32 product reads it in bfloat16 and in another shape."""

    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        data = builder.emit(relax.op.clip(builder.emit(relax.op.round(x)), 0, 255))
        product = builder.emit(relax.op.matmul(data, int8(8, 4), out_dtype="int32"))
        moved = builder.emit(relax.op.reshape(data, (8, 4)))
        return relax.Tuple([product, builder.emit(relax.op.matmul(moved, constant(4, 4)))])

    before, x = module_of(build, (4, 8)), 100 * np.abs(random_array(4, 8))
    after = lower_precision(before, workload_of, lambda w: to_uint8(w) if w.exact else to_bfloat16(w))
    assert {workload.dtype for call in calls(after) if (workload := workload_of(call))} == {"uint8", "bfloat16"}
    (exact, near), (expected, plain) = outputs(after, x), outputs(before, x)
    np.testing.assert_array_equal(exact, expected)
    assert 0 < np.linalg.norm(near - plain) / np.linalg.norm(plain) < 1e-2


def test_8_bit_values_are_stored_for_all_readers() -> None:
    """A sum that only other sums read is stored in 8 bits, too."""

    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        data = quantize(builder, x, 0.02, 7)
        product = builder.emit(relax.op.nn.conv2d(data, int8(1, 1, 8, 8), **CHANNELS_LAST, out_dtype="int32"))
        scaled = builder.emit(relax.op.multiply(builder.emit(relax.op.astype(product, "float32")), scalar(0.01)))
        return relax.op.add(quantize(builder, scaled, 0.5, 3), quantize(builder, data, 3, 0))

    before = drop_integer_round_trips(module_of(build, (1, 4, 4, 8)))
    after = lower_precision(before, workload_of, lambda workload: replace(workload, dtype="uint8", exact=False))
    stored = [call for call in calls(after) if call.op.name == "relax.astype" and str(call.attrs.dtype) == "uint8"]
    assert len(stored) == 3
    np.testing.assert_array_equal(run(after, random_array(1, 4, 4, 8)), run(before, random_array(1, 4, 4, 8)))


def test_integer_round_trips_are_dropped() -> None:
    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        clipped = builder.emit(relax.op.clip(builder.emit(relax.op.round(x)), 0, 255))
        number = builder.emit(relax.op.astype(builder.emit(relax.op.astype(clipped, "uint8")), "int32"))
        centered = builder.emit(relax.op.subtract(number, relax.const(np.int32(7))))
        return relax.op.multiply(builder.emit(relax.op.astype(centered, "float32")), scalar(0.5))

    before = module_of(build, X.shape)
    after = drop_integer_round_trips(before)
    assert operators(after) == ["round", "clip", "subtract", "multiply"]
    np.testing.assert_array_equal(run(after, 100 * X), run(before, 100 * X))
