"""A mean over transposed data is one over the data itself, and an image is transposed before it is enlarged."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from anole.compile.passes.permute import mean_before_permuting, permute_before_enlarging


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


def enlarged(size: tuple[int, int], reads_twice: bool = False) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 5, 7, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            resized = builder.emit(relax.op.image.resize2d(x, size, None, "NHWC", "linear"))
            first = builder.emit_output(relax.op.permute_dims(resized, [0, 3, 1, 2]))
            outs = [first, builder.emit_output(relax.op.nn.relu(resized))] if reads_twice else first
        builder.emit_func_output(outs)
    return builder.get()


def test_an_image_is_permuted_while_it_is_small() -> None:
    before = enlarged((10, 9))
    after = permute_before_enlarging(before)
    assert operators(after) == ["relax.permute_dims", "relax.image.resize2d"]
    data = np.random.default_rng(0).standard_normal((2, 5, 7, 3), dtype=np.float32)
    np.testing.assert_allclose(run(after, data), run(before, data), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("size", "reads_twice"), [((4, 7), False), ((10, 9), True)])
def test_an_image_that_shrinks_or_is_read_as_it_lies_is_permuted_afterwards(
    size: tuple[int, int], reads_twice: bool
) -> None:
    names = operators(permute_before_enlarging(enlarged(size, reads_twice)))
    assert names[:2] == ["relax.image.resize2d", "relax.permute_dims"]
