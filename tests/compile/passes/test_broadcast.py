"""What spreads a small tensor over a large one is not computed in the small one's loops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax

from anole.compile.passes.broadcast import keep_apart

LARGE, SMALL = (1, 6, 5, 8), (1, 1, 1, 8)


def network(build: Callable[[relax.BlockBuilder, relax.Var, relax.Var], relax.Expr]) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(LARGE, "float32"))
    gate = relax.Var("gate", relax.TensorType(SMALL, "float32"))
    with builder.function("main", [x, gate]):
        with builder.dataflow():
            out = builder.emit_output(build(builder, x, gate))
        builder.emit_func_output(out)
    transform = relax.transform
    module = transform.AnnotateTIROpPattern()(transform.LegalizeOps()(builder.get()))
    return transform.DeadCodeElimination()(keep_apart(module))


def patterns(module: tvm.IRModule) -> list[int]:
    """How the functions may fuse, in the order of their calls."""
    (block,) = module["main"].body.blocks
    functions = [module[binding.value.args[0]] for binding in block.bindings if hasattr(binding.value, "args")]
    return [int(func.attrs["op_pattern"]) for func in functions]


WEIGHT = np.random.default_rng(1).standard_normal((8, 8), dtype=np.float32)


def opening(builder: relax.BlockBuilder, gate: relax.Var) -> relax.Expr:
    """What an anchor computes, and an element-wise operator behind it."""
    return builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(gate, relax.const(WEIGHT)))))


def gated(builder: relax.BlockBuilder, x: relax.Var, gate: relax.Var) -> relax.Expr:
    return relax.op.multiply(x, opening(builder, gate))


def biased(builder: relax.BlockBuilder, x: relax.Var, gate: relax.Var) -> relax.Expr:
    """The same function as `gated` on what is computed, and on a constant."""
    scaled = builder.emit(relax.op.multiply(x, relax.const(np.full(SMALL, 2, np.float32))))
    return relax.op.multiply(scaled, opening(builder, gate))


def scaled(builder: relax.BlockBuilder, x: relax.Var, gate: relax.Var) -> relax.Expr:
    """No anchor computes the small tensor, and that takes little."""
    return relax.op.multiply(x, builder.emit(relax.op.nn.relu(gate)))


def masked(builder: relax.BlockBuilder, x: relax.Var, gate: relax.Var) -> relax.Expr:
    """What is given may be spread by the epilogue of whatever computes the large tensor."""
    return relax.op.multiply(builder.emit(relax.op.nn.relu(x)), gate)


@pytest.mark.parametrize(
    ("build", "expected"), [(gated, [4, 0, 2]), (biased, [0, 4, 0, 2]), (scaled, [0, 0]), (masked, [0, 0])]
)
def test_only_what_spreads_a_computed_tensor_is_kept_apart(
    build: Callable[..., relax.Expr], expected: list[int]
) -> None:
    assert patterns(network(build)) == expected


def test_much_that_computes_a_small_tensor_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anole.compile.passes.broadcast._LEAST_SAVED", 6 * 5 * 8)
    assert patterns(network(scaled)) == [3, 0]


@pytest.mark.parametrize("build", [gated, biased, scaled, masked])
def test_the_result_is_the_same(build: Callable[..., relax.Expr]) -> None:
    rng = np.random.default_rng(0)
    x, gate = rng.standard_normal(LARGE, dtype=np.float32), rng.standard_normal(SMALL, dtype=np.float32)
    executable = tvm.compile(network(build), tvm.target.Target({"kind": "llvm"}))
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(gate))
    spread = np.maximum(gate @ WEIGHT, 0)
    known = {scaled: x * np.maximum(gate, 0), masked: np.maximum(x, 0) * gate}
    expected = {gated: x * spread, biased: x * 2 * spread, **known}[build]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)
