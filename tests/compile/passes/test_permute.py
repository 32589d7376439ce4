"""A mean over transposed data is one over the data itself."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from anole.compile.passes.permute import mean_before_permuting


def network(order: list[int] | None, axes: list[int] | None, keepdims: bool) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 5, 7, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            permuted = builder.emit(relax.op.permute_dims(x, order))
            out = builder.emit_output(relax.op.mean(permuted, axes, keepdims))
        builder.emit_func_output(out)
    return builder.get()


def operators(module: tvm.IRModule) -> list[str]:
    (block,) = relax.transform.DeadCodeElimination()(module)["main"].body.blocks
    return [binding.value.op.name for binding in block.bindings if hasattr(binding.value, "op")]


def run(module: tvm.IRModule, data: np.ndarray) -> np.ndarray:
    executable = tvm.compile(module, tvm.target.Target({"kind": "llvm"}))
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(data)).numpy()


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(
    ("order", "axes"),
    [([0, 3, 1, 2], [2, 3]), ([0, 3, 1, 2], [-1, -2]), ([0, 3, 1, 2], [1]), (None, None), ([0, 2, 1, 3], [1])],
)
def test_the_transposition_vanishes(order: list[int] | None, axes: list[int] | None, keepdims: bool) -> None:
    before = network(order, axes, keepdims)
    after = mean_before_permuting(before)
    assert operators(after) == ["relax.mean", "relax.reshape"]
    data = np.random.default_rng(0).standard_normal((2, 5, 7, 3), dtype=np.float32)
    found = run(after, data)
    permuted = data.transpose(order)
    np.testing.assert_allclose(found, permuted.mean(axes and tuple(axes), keepdims=keepdims), rtol=1e-5, atol=1e-6)


def test_axes_that_change_places_are_still_transposed() -> None:
    assert operators(mean_before_permuting(network([0, 3, 1, 2], [0], False))) == ["relax.permute_dims", "relax.mean"]


def test_every_function_of_a_module_is_read() -> None:
    whole = network([0, 3, 1, 2], [2, 3], True)
    parts = tvm.IRModule({"host0": whole["main"].with_attr("global_symbol", "host0")})
    assert "R.permute_dims" not in relax.transform.DeadCodeElimination(["host0"])(mean_before_permuting(parts)).script()
