"""Operators that broadcast a small tensor over a large one are not fused into the loops of the small one."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from anole.compiler.passes.broadcast import keep_unfused

from ...extract.passes.building import Build, calls, module_of, random_array, run

LARGE, SMALL = (1, 6, 5, 8), (1, 1, 1, 8)


WEIGHT = random_array(8, 8, seed=1)


def network(build: Build) -> tvm.IRModule:
    transform = relax.transform
    module = transform.AnnotateTIROpPattern()(transform.LegalizeOps()(module_of(build, LARGE, SMALL)))
    return transform.DeadCodeElimination()(keep_unfused(module))


def patterns(module: tvm.IRModule) -> list[int]:
    """Return the fusion pattern of each function, in the order of their calls."""
    return [int(module[call.args[0]].attrs["op_pattern"]) for call in calls(module)]


def open_gate(builder: relax.BlockBuilder, gate: relax.Var) -> relax.Expr:
    """Emit an anchor and an element-wise operator after it."""
    return builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(gate, relax.const(WEIGHT)))))


def use_gate(builder: relax.BlockBuilder, x: relax.Var, gate: relax.Var) -> relax.Expr:
    return relax.op.multiply(x, open_gate(builder, gate))


def add_bias(builder: relax.BlockBuilder, x: relax.Var, gate: relax.Var) -> relax.Expr:
    """Call one function on a computed tensor, as in `use_gate`, and on a constant."""
    scaled = builder.emit(relax.op.multiply(x, relax.const(np.full(SMALL, 2, np.float32))))
    return relax.op.multiply(scaled, open_gate(builder, gate))


def scale(builder: relax.BlockBuilder, x: relax.Var, gate: relax.Var) -> relax.Expr:
    """Compute the small tensor without an anchor, and at little cost."""
    return relax.op.multiply(x, builder.emit(relax.op.nn.relu(gate)))


def mask(builder: relax.BlockBuilder, x: relax.Var, gate: relax.Var) -> relax.Expr:
    """Broadcast an input, which may happen in the epilogue of the operator that computes the large tensor."""
    return relax.op.multiply(builder.emit(relax.op.nn.relu(x)), gate)


def results(x: np.ndarray, gate: np.ndarray) -> dict[Build, np.ndarray]:
    opens = np.maximum(gate @ WEIGHT, 0)
    return {use_gate: x * opens, add_bias: x * 2 * opens, scale: x * np.maximum(gate, 0), mask: np.maximum(x, 0) * gate}


@pytest.mark.parametrize(
    ("build", "expected"), [(use_gate, [4, 0, 2]), (add_bias, [0, 4, 0, 2]), (scale, [0, 0]), (mask, [0, 0])]
)
def test_only_broadcasts_of_computed_tensors_stay_unfused(build: Build, expected: list[int]) -> None:
    module, x, gate = network(build), random_array(*LARGE), random_array(*SMALL, seed=2)
    assert patterns(module) == expected
    np.testing.assert_allclose(run(module, x, gate), results(x, gate)[build], rtol=1e-5, atol=1e-6)


def test_an_expensive_small_tensor_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anole.compiler.passes.broadcast._MIN_SAVED_OPERATIONS", 6 * 5 * 8)
    assert patterns(network(scale)) == [3, 0]
