"""Operators on constants are evaluated, and only these."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tvm import ir, relax

from anole.extract.passes.fold_constants import fold_constants
from anole.extract.passes.mutators import value_of

from .building import drawn, module_of, operators, run

X = drawn(2, 3)


def test_a_power_whose_exponent_is_converted_is_evaluated() -> None:
    """As ONNX files have it: the exponent is an integer."""

    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        exponent = builder.emit(relax.op.astype(relax.const(2, "int64"), "float32"))
        return relax.op.multiply(x, builder.emit(relax.op.power(relax.const(drawn(3)), exponent)))

    before = module_of(build, X.shape)
    after = fold_constants(before)
    assert operators(after) == ["multiply"]
    np.testing.assert_allclose(run(after, X), X * drawn(3) ** 2, rtol=1e-6)


def test_a_fraction_becomes_the_integer_towards_zero() -> None:
    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        number = builder.emit(relax.op.astype(relax.const(np.array([-1.5, 0.5, 2.5], "float32")), "int32"))
        return relax.op.add(x, builder.emit(relax.op.astype(number, "float32")))

    after = fold_constants(module_of(build, X.shape))
    assert operators(after) == ["add"]
    np.testing.assert_array_equal(run(after, X), X + np.array([-1, 0, 2], "float32"))


def test_a_quotient_that_is_no_number_is_evaluated_silently() -> None:
    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        zero = relax.const(np.zeros(3, "float32"))
        return relax.op.add(x, builder.emit(relax.op.divide(zero, zero)))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert operators(fold_constants(module_of(build, X.shape))) == ["add"]


def test_what_depends_on_an_input_is_left() -> None:
    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        return relax.op.power(x, relax.const(2.0, "float32"))

    assert operators(fold_constants(module_of(build, X.shape))) == ["power"]


def test_products_of_constants_are_evaluated_without_compiling() -> None:
    """As a network makes positions that it does not learn: TVM would compute such a product in plain loops."""
    left, right = drawn(2, 4, 5), drawn(5, 3)

    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        product = builder.emit(relax.op.matmul(relax.const(left), relax.const(right)))
        wide = builder.emit(relax.op.broadcast_to(relax.const(drawn(1, 3)), (4, 3)))
        return relax.op.add(relax.op.add(x, product), wide)

    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(relax.transform, "FoldConstant")
        after = fold_constants(module_of(build, (2, 4, 3)))
    x = drawn(2, 4, 3)
    assert set(operators(after)) == {"add"}
    np.testing.assert_allclose(run(after, x), x + left @ right + drawn(1, 3), rtol=1e-5)


def test_a_constant_is_not_copied_and_cannot_be_written_to() -> None:
    constant = relax.const(drawn(3, 4))
    value = value_of(constant)
    assert value is not None and np.shares_memory(value, value_of(constant))
    with pytest.raises(ValueError, match="read-only"):
        value[0] = 0
