"""Transposed right operands are folded into matrix products with equal results."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import ir, relax

from anole.extract.graph import workload_of
from anole.ir.normalize_products import normalize_products
from anole.task import BatchMatmul

from ..extract.passes.building import assert_rewritten, calls, random_array


def transposed_matrix(value: ir.Expr) -> ir.Expr:
    rank = len(value.ty.shape)
    return relax.op.permute_dims(value, [*range(rank - 2), rank - 1, rank - 2])


def plain(left: ir.Expr, right: ir.Expr) -> ir.Expr:
    return relax.op.matmul(left, transposed_matrix(right))


def scale_products(left: ir.Expr, right: ir.Expr) -> ir.Expr:
    return relax.op.matmul(left, relax.op.multiply(transposed_matrix(right), relax.const(0.5, "float32")))


def split(left: ir.Expr, right: ir.Expr) -> ir.Expr:
    return relax.op.matmul(left, relax.op.reshape(transposed_matrix(right), (2, 3, 5, 6)))


def attention_heads(left: ir.Expr, right: ir.Expr) -> ir.Expr:
    return relax.op.matmul(left, relax.op.permute_dims(right, [0, 2, 3, 1]))


def read_by_others(left: ir.Expr, right: ir.Expr) -> ir.Expr:
    transposed = transposed_matrix(right)
    return relax.op.add(relax.op.matmul(left, transposed), transposed)


@pytest.mark.examples(3)
@pytest.mark.parametrize(
    ("left", "right", "build", "operators", "workload"),
    [
        ((4, 5), (6, 5), plain, ["einsum"], BatchMatmul(1, 4, 5, 6, True)),
        ((2, 4, 5), (6, 5), plain, ["einsum"], BatchMatmul(1, 8, 5, 6, True)),
        ((2, 3, 4, 5), (2, 3, 6, 5), plain, ["einsum"], BatchMatmul(6, 4, 5, 6, True)),
        ((3, 4, 5), (3, 6, 5), scale_products, ["multiply", "einsum"], BatchMatmul(3, 4, 5, 6, True)),
        ((2, 3, 4, 5), (6, 6, 5), split, ["reshape", "einsum"], BatchMatmul(6, 4, 5, 6, True)),
        ((2, 3, 4, 5), (2, 6, 3, 5), attention_heads, ["permute_dims", "einsum"], BatchMatmul(6, 4, 5, 6, True)),
        # A batch of one is broadcast, which no template supports.
        ((3, 4, 5), (1, 6, 5), plain, ["permute_dims", "matmul"], BatchMatmul(1, 12, 5, 6)),
        ((1, 4, 5), (3, 6, 5), plain, ["permute_dims", "matmul"], None),
        ((5,), (6, 5), plain, ["permute_dims", "matmul"], None),
        ((5, 5), (6, 5), read_by_others, ["permute_dims", "einsum", "add"], None),
    ],
    ids=[
        "flat",
        "one for all",
        "batches",
        "scaled",
        "batch split",
        "heads",
        "one of a batch",
        "repeated",
        "vector",
        "read",
    ],
)
def test_transpositions_are_folded(
    left: tuple[int, ...], right: tuple[int, ...], build: Any, operators: list[str], workload: BatchMatmul | None
) -> None:
    after = assert_rewritten(
        normalize_products, build, random_array(*left), random_array(*right, seed=1), left=operators
    )
    assert workload_of(calls(after)[-1]) == workload
