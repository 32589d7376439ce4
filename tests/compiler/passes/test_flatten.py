"""Products and epilogues that are flattened to the rank of templates compute the same results."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import ir, relax

from anole.compiler.passes.flatten import flatten_products
from anole.ir.normalize_products import transposed_product

from ...extract.passes.building import Build, calls, constant, module_of, random_array, run


def dense_with_epilogue(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    emit = builder.emit
    product = emit(relax.op.matmul(x, constant(8, 8)))
    biased = emit(relax.op.nn.gelu(emit(relax.op.add(constant(1, 1, 1, 8), product))))
    return relax.op.clip(emit(relax.op.add(biased, x)), -1, 1)


def exact_gelu(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    emit = builder.emit
    product = emit(relax.op.matmul(x, constant(8, 8)))
    error = emit(relax.op.erf(emit(relax.op.divide(product, relax.const(2**0.5, "float32")))))
    positive = emit(relax.op.greater(product, relax.const(0.0, "float32")))
    return relax.op.where(positive, emit(relax.op.multiply(product, error)), emit(relax.op.nn.leakyrelu(product)))


def two_layers(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    hidden = builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(x, constant(8, 5)))))
    return relax.op.matmul(hidden, constant(5, 6))


def scaled_attention(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    scores = builder.emit(relax.op.multiply(builder.emit(transposed_product(x, x)), relax.const(0.5, "float32")))
    return relax.op.add(scores, constant(4, 4))


def masks_of_heads(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    return relax.op.add(builder.emit(relax.op.matmul(x, constant(2, 3, 8, 4))), constant(3, 4, 4))


def rows_of_others(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    return relax.op.multiply(builder.emit(relax.op.matmul(x, constant(8, 7))), constant(4, 7))


def flat_from_the_start(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    product = builder.emit(relax.op.matmul(builder.emit(relax.op.reshape(x, (24, 8))), constant(8, 5)))
    return relax.op.nn.relu(builder.emit(relax.op.reshape(product, (2, 3, 4, 5))))


def vector(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    return relax.op.nn.relu(builder.emit(relax.op.matmul(x, constant(8, 5))))


@pytest.mark.parametrize(
    ("build", "operators"),
    [
        (vector, "reshape matmul nn.relu reshape"),
        (dense_with_epilogue, "reshape matmul reshape add nn.gelu reshape add clip reshape"),
        (exact_gelu, "reshape matmul divide erf greater multiply nn.leakyrelu where reshape"),
        (two_layers, "reshape matmul nn.relu matmul reshape"),
        (flat_from_the_start, "reshape matmul nn.relu reshape"),
        (scaled_attention, "reshape reshape einsum multiply add reshape"),
        # Operands that no template's epilogue can read are not flattened.
        (masks_of_heads, "reshape reshape matmul reshape add"),
        (rows_of_others, "reshape matmul reshape multiply"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.examples(2)
def test_products_are_flat_and_compute_the_same(build: Build, operators: str) -> None:
    shape = (8,) if build is vector else (2, 3, 4, 8)
    module, data = module_of(build, shape), random_array(*shape)
    flat = flatten_products(module)
    names = [call.op.name.removeprefix("relax.") for call in calls(flat)]
    assert sorted(names) == sorted(operators.split())
    assert names[-1] == operators.split()[-1]
    np.testing.assert_allclose(run(flat, data), run(module, data), rtol=1e-5, atol=1e-5)
