"""Products that read their right operand transposed compute what they did, without the transposition."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import ir, relax

from anole.extract.graph import workload_of
from anole.extract.passes.normalize_products import normalize_products
from anole.task import BatchMatmul

from .building import Build, calls, module_of, run


def exchanged(builder: relax.BlockBuilder, value: ir.Expr) -> ir.Expr:
    rank = len(value.ty.shape)
    return builder.emit(relax.op.permute_dims(value, [*range(rank - 2), rank - 1, rank - 2]))


def plain(builder: relax.BlockBuilder, left: ir.Expr, right: ir.Expr) -> ir.Expr:
    return relax.op.matmul(left, exchanged(builder, right))


def scaled(builder: relax.BlockBuilder, left: ir.Expr, right: ir.Expr) -> ir.Expr:
    keys = builder.emit(relax.op.multiply(exchanged(builder, right), relax.const(0.5, "float32")))
    return relax.op.matmul(left, keys)


def split(builder: relax.BlockBuilder, left: ir.Expr, right: ir.Expr) -> ir.Expr:
    return relax.op.matmul(left, builder.emit(relax.op.reshape(exchanged(builder, right), (2, 3, 5, 6))))


def of_heads(builder: relax.BlockBuilder, left: ir.Expr, right: ir.Expr) -> ir.Expr:
    return relax.op.matmul(left, builder.emit(relax.op.permute_dims(right, [0, 2, 3, 1])))


@pytest.mark.examples(3)
@pytest.mark.parametrize(
    ("left", "right", "build", "operators", "workload"),
    [
        ((4, 5), (6, 5), plain, ["einsum"], BatchMatmul(1, 4, 5, 6, True)),
        ((2, 4, 5), (6, 5), plain, ["einsum"], BatchMatmul(1, 8, 5, 6, True)),
        ((2, 3, 4, 5), (2, 3, 6, 5), plain, ["einsum"], BatchMatmul(6, 4, 5, 6, True)),
        ((3, 4, 5), (3, 6, 5), scaled, ["multiply", "einsum"], BatchMatmul(3, 4, 5, 6, True)),
        ((2, 3, 4, 5), (6, 6, 5), split, ["reshape", "einsum"], BatchMatmul(6, 4, 5, 6, True)),
        ((2, 3, 4, 5), (2, 6, 3, 5), of_heads, ["permute_dims", "einsum"], BatchMatmul(6, 4, 5, 6, True)),
        # The batch of one is repeated, which no template does.
        ((3, 4, 5), (1, 6, 5), plain, ["permute_dims", "matmul"], BatchMatmul(1, 12, 5, 6)),
        ((1, 4, 5), (3, 6, 5), plain, ["permute_dims", "matmul"], None),
        ((5,), (6, 5), plain, ["permute_dims", "matmul"], None),
    ],
    ids=["flat", "one for all", "batches", "scaled", "batch split", "heads", "one of a batch", "repeated", "vector"],
)
def test_transpositions_are_absorbed(
    left: tuple[int, ...],
    right: tuple[int, ...],
    build: Build,
    operators: list[str],
    workload: BatchMatmul | None,
) -> None:
    before = module_of(build, left, right)
    after = normalize_products(before)
    assert [call.op.name.removeprefix("relax.") for call in calls(after)] == operators
    assert workload_of(calls(after)[-1]) == workload
    rng = np.random.default_rng(0)
    operands = [rng.standard_normal(shape, dtype=np.float32) for shape in (left, right)]
    np.testing.assert_allclose(run(after, *operands), run(before, *operands), rtol=1e-5, atol=1e-5)


def test_what_others_read_transposed_stays_for_them() -> None:
    def build(builder: relax.BlockBuilder, left: ir.Expr, right: ir.Expr) -> ir.Expr:
        transposed = exchanged(builder, right)
        return relax.op.add(builder.emit(relax.op.matmul(left, transposed)), transposed)

    before = module_of(build, (5, 5), (6, 5))
    names = [call.op.name for call in calls(normalize_products(before))]
    assert names == ["relax.permute_dims", "relax.einsum", "relax.add"]
