"""Constant folding evaluates all operators on constants, and no others."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from tvm import ir, relax

from anole.extract.passes.fold_constants import fold_constants
from anole.ir.mutators import value_of

from .building import assert_rewritten, constant, network, random_array

X = random_array(2, 3)


def power_of_a_converted_exponent(x: ir.Expr) -> ir.Expr:
    """Return a power with a cast integer exponent, as in ONNX files."""
    return relax.op.multiply(x, relax.op.power(constant(3), relax.op.astype(relax.const(2, "int64"), "float32")))


def truncated_fraction(x: ir.Expr) -> ir.Expr:
    """Return a cast that truncates toward zero."""
    number = relax.op.astype(relax.const(np.array([-1.5, 0.5, 2.5], "float32")), "int32")
    return relax.op.add(x, relax.op.astype(number, "float32"))


def not_a_number(x: ir.Expr) -> ir.Expr:
    zero = relax.const(np.zeros(3, "float32"))
    return relax.op.add(x, relax.op.divide(zero, zero))


@pytest.mark.parametrize(
    ("build", "left"),
    [
        (power_of_a_converted_exponent, ["multiply"]),
        (truncated_fraction, ["add"]),
        (not_a_number, ["add"]),
        (lambda x: relax.op.power(x, relax.const(2.0, "float32")), ["power"]),
    ],
)
def test_constants_are_evaluated_without_warnings(build: Any, left: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        folded = fold_constants(network(build, X.shape))
    assert_rewritten(lambda _: folded, build, X, left=left, rtol=1e-6, atol=0)


def test_products_of_constants_are_evaluated_without_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixed position embeddings are such products, which TVM would compute in plain loops."""

    def build(x: ir.Expr) -> ir.Expr:
        wide = relax.op.broadcast_to(constant(1, 3), (4, 3))
        return relax.op.add(relax.op.add(x, relax.op.matmul(constant(2, 4, 5), constant(5, 3))), wide)

    with monkeypatch.context() as patch:
        patch.delattr(relax.transform, "FoldConstant")
        folded = fold_constants(network(build, (2, 4, 3)))
    assert_rewritten(lambda _: folded, build, random_array(2, 4, 3), left=["add", "add"], atol=0)


def test_constants_are_read_only_views() -> None:
    found = constant(3, 4)
    value = value_of(found)
    assert value is not None and np.shares_memory(value, value_of(found))
    with pytest.raises(ValueError, match="read-only"):
        value[0] = 0
