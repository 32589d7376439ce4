"""Permutations and slices become fewer, and the data stays the same."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from math import prod

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import ir, relax

from anole.compile.passes.views import keeps_order, simplify_views

Emit = Callable[[ir.Expr], ir.Expr]
Build = Callable[[Emit, ir.Expr], ir.Expr]
SHAPE = (2, 4, 6, 3)


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[int], list[int], list[int], list[int]]:
    """A shape, a permutation, a shape of as many elements, made of the same factors, and another permutation."""
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4))
    first = draw(st.sampled_from(list(permutations(range(len(shape))))))
    pieces = [piece for axis in first for piece in {4: [2, 2], 6: [2, 3]}.get(shape[axis], [shape[axis]])]
    cuts = sorted(draw(st.sets(st.integers(1, len(pieces) - 1)))) if len(pieces) > 1 else []
    between = [prod(pieces[low:high]) for low, high in zip([0, *cuts], [*cuts, len(pieces)], strict=True)][:5]
    between.append(prod(shape) // prod(between))
    return shape, list(first), between, draw(st.permutations(range(len(between))))


@given(chains())
def test_an_order_is_kept_where_the_elements_say_so(chain: tuple[list[int], list[int], list[int], list[int]]) -> None:
    shape, first, between, second = chain
    data = np.arange(prod(shape)).reshape(shape)
    moved = data.transpose(first).reshape(between).transpose(second).ravel()
    assert keeps_order(shape, first, between, second) == bool((moved == data.ravel()).all())


def tokens(emit: Emit, x: ir.Expr) -> ir.Expr:
    flat = emit(relax.op.reshape(emit(relax.op.permute_dims(x, [0, 3, 1, 2])), (2, 3, 24)))
    return relax.op.permute_dims(flat, [0, 2, 1])


def windows(emit: Emit, x: ir.Expr) -> ir.Expr:
    cut = emit(relax.op.reshape(emit(relax.op.permute_dims(x, [0, 3, 1, 2])), (2, 3, 2, 2, 6)))
    return relax.op.permute_dims(cut, [0, 3, 2, 4, 1])


def last_of_permuted(emit: Emit, x: ir.Expr) -> ir.Expr:
    return relax.op.strided_slice(emit(relax.op.permute_dims(x, [3, 0, 2, 1])), [-2], [2], [6], [3])


@pytest.mark.parametrize(
    ("build", "operators"),
    [
        (tokens, ["reshape"]),
        (windows, ["permute_dims", "reshape", "permute_dims"]),
        (last_of_permuted, ["strided_slice", "permute_dims"]),
    ],
)
def test_copies_vanish(build: Build, operators: list[str]) -> None:
    data, builder = relax.Var("x", relax.TensorType(SHAPE, "float32")), relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            result = builder.emit_output(build(builder.emit, data))
        builder.emit_func_output(result)
    before = builder.get()
    after = simplify_views(before)
    (block,) = after["main"].body.blocks
    assert [binding.value.op.name.removeprefix("relax.") for binding in block.bindings] == operators
    values = np.random.default_rng(0).standard_normal(SHAPE, dtype=np.float32)
    np.testing.assert_array_equal(run(after, values), run(before, values))


def run(module: tvm.IRModule, data: np.ndarray) -> np.ndarray:
    executable = tvm.compile(module, tvm.target.Target("llvm"))
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(data)).numpy()
