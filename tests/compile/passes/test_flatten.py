"""Products and their epilogues with as many axes as templates have compute what they did."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tvm
from tvm import ir, relax

from anole.compile.passes.flatten import flatten_products
from anole.extract.passes.normalize_products import transposed_product

RNG = np.random.default_rng(0)
Emit = Callable[[ir.Expr], ir.Expr]
Build = Callable[[Emit, ir.Expr], ir.Expr]


def const(*shape: int) -> ir.Expr:
    return relax.const(RNG.standard_normal(shape, dtype=np.float32))


def dense_with_epilogue(emit: Emit, x: ir.Expr) -> ir.Expr:
    product = emit(relax.op.matmul(x, const(8, 8)))
    biased = emit(relax.op.nn.gelu(emit(relax.op.add(const(1, 1, 1, 8), product))))
    return relax.op.clip(emit(relax.op.add(biased, x)), -1, 1)


def exact_gelu(emit: Emit, x: ir.Expr) -> ir.Expr:
    product = emit(relax.op.matmul(x, const(8, 8)))
    error = emit(relax.op.erf(emit(relax.op.divide(product, relax.const(2**0.5, "float32")))))
    positive = emit(relax.op.greater(product, relax.const(0.0, "float32")))
    return relax.op.where(positive, emit(relax.op.multiply(product, error)), emit(relax.op.nn.leakyrelu(product)))


def two_layers(emit: Emit, x: ir.Expr) -> ir.Expr:
    hidden = emit(relax.op.nn.relu(emit(relax.op.matmul(x, const(8, 5)))))
    return relax.op.matmul(hidden, const(5, 6))


def scaled_attention(emit: Emit, x: ir.Expr) -> ir.Expr:
    scores = emit(relax.op.multiply(emit(transposed_product(x, x)), relax.const(0.5, "float32")))
    return relax.op.add(scores, const(4, 4))


def masks_of_heads(emit: Emit, x: ir.Expr) -> ir.Expr:
    return relax.op.add(emit(relax.op.matmul(x, const(2, 3, 8, 4))), const(3, 4, 4))


def rows_of_others(emit: Emit, x: ir.Expr) -> ir.Expr:
    return relax.op.multiply(emit(relax.op.matmul(x, const(8, 7))), const(4, 7))


def vector(emit: Emit, x: ir.Expr) -> ir.Expr:
    return relax.op.nn.relu(emit(relax.op.matmul(x, const(8, 5))))


def module_of(build: Build, shape: Sequence[int]) -> tvm.IRModule:
    data, builder = relax.Var("x", relax.TensorType(shape, "float32")), relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            result = builder.emit_output(build(builder.emit, data))
        builder.emit_func_output(result)
    return builder.get()


def run(module: tvm.IRModule, data: np.ndarray) -> np.ndarray:
    executable = tvm.compile(module, tvm.target.Target("llvm"))
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(data)).numpy()


@pytest.mark.parametrize(
    ("build", "operators"),
    [
        (vector, "reshape matmul nn.relu reshape"),
        (dense_with_epilogue, "reshape matmul reshape add nn.gelu reshape add clip reshape"),
        (exact_gelu, "reshape matmul divide erf greater multiply nn.leakyrelu where reshape"),
        (two_layers, "reshape matmul nn.relu matmul reshape"),
        (scaled_attention, "reshape reshape einsum multiply add reshape"),
        # What no template's epilogue can read stays behind the product.
        (masks_of_heads, "reshape reshape matmul reshape add"),
        (rows_of_others, "reshape matmul reshape multiply"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.examples(2)
def test_products_are_flat_and_compute_the_same(build: Build, operators: str) -> None:
    shape = (8,) if build is vector else (2, 3, 4, 8)
    module = module_of(build, shape)
    flat = flatten_products(module)
    bindings = [binding.value for block in flat["main"].body.blocks for binding in block.bindings]
    names = [value.op.name.removeprefix("relax.") for value in bindings if isinstance(value, ir.Call)]
    assert sorted(names) == sorted(operators.split())
    assert names[-1] == operators.split()[-1]
    data = RNG.standard_normal(shape, dtype=np.float32)
    np.testing.assert_allclose(run(flat, data), run(module, data), rtol=1e-5, atol=1e-5)
