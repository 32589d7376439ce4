"""What spreads a small tensor over a large one is not computed in the small one's loops."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from anole.compile.passes.broadcast import keep_apart

from ...extract.passes.building import Build, calls, drawn, module_of, run

LARGE, SMALL = (1, 6, 5, 8), (1, 1, 1, 8)


WEIGHT = drawn(8, 8, seed=1)


def network(build: Build) -> tvm.IRModule:
    transform = relax.transform
    module = transform.AnnotateTIROpPattern()(transform.LegalizeOps()(module_of(build, LARGE, SMALL)))
    return transform.DeadCodeElimination()(keep_apart(module))


def patterns(module: tvm.IRModule) -> list[int]:
    """How the functions may fuse, in the order of their calls."""
    return [int(module[call.args[0]].attrs["op_pattern"]) for call in calls(module)]


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


def results(x: np.ndarray, gate: np.ndarray) -> dict[Build, np.ndarray]:
    spread = np.maximum(gate @ WEIGHT, 0)
    return {gated: x * spread, biased: x * 2 * spread, scaled: x * np.maximum(gate, 0), masked: np.maximum(x, 0) * gate}


@pytest.mark.parametrize(
    ("build", "expected"), [(gated, [4, 0, 2]), (biased, [0, 4, 0, 2]), (scaled, [0, 0]), (masked, [0, 0])]
)
def test_only_what_spreads_a_computed_tensor_is_kept_apart(build: Build, expected: list[int]) -> None:
    module, x, gate = network(build), drawn(*LARGE), drawn(*SMALL, seed=2)
    assert patterns(module) == expected
    np.testing.assert_allclose(run(module, x, gate), results(x, gate)[build], rtol=1e-5, atol=1e-6)


def test_much_that_computes_a_small_tensor_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anole.compile.passes.broadcast._MIN_SAVED_BYTES", 6 * 5 * 8)
    assert patterns(network(scaled)) == [3, 0]
