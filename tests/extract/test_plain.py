"""Places and axes said plainly mean what they meant."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import ir, relax

from anole.extract.plain import speak_plainly

X = np.arange(2 * 3 * 1 * 4, dtype=np.float32).reshape(2, 3, 1, 4)


def module_of(build: Callable[[ir.Expr], ir.Expr]) -> tvm.IRModule:
    data, builder = relax.Var("x", relax.TensorType(X.shape, "float32")), relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            result = builder.emit_output(build(data))
        builder.emit_func_output(result)
    return builder.get()


def calls(module: tvm.IRModule) -> list[str]:
    bindings = [binding for block in module["main"].body.blocks for binding in block.bindings]
    return [binding.value.op.name for binding in bindings if isinstance(binding.value, ir.Call)]


def run(module: tvm.IRModule) -> np.ndarray:
    executable = tvm.compile(module, tvm.target.Target("llvm"))
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(X)).numpy()


@pytest.mark.parametrize(("axis", "place"), [(0, 1), (1, -1), (-1, 2), (-3, -3)])
def test_what_is_taken_at_one_place_is_a_slice(axis: int, place: int) -> None:
    module = speak_plainly(module_of(lambda x: relax.op.take(x, relax.const(place, "int64"), axis, "wrap")))
    assert calls(module) == ["relax.strided_slice", "relax.squeeze"]
    np.testing.assert_array_equal(run(module), np.take(X, place, axis))


def test_what_is_taken_at_several_places_stays() -> None:
    places = relax.const(np.array([2, 0]), "int64")
    module = speak_plainly(module_of(lambda x: relax.op.take(x, places, 1)))
    assert calls(module) == ["relax.take"]
    np.testing.assert_array_equal(run(module), X[:, [2, 0]])


@pytest.mark.parametrize("axes", [[-2], [2], None])
def test_squeezed_axes_are_counted_from_the_front(axes: list[int] | None) -> None:
    module = speak_plainly(module_of(lambda x: relax.op.squeeze(x, axes)))
    (binding,) = module["main"].body.blocks[0].bindings[:1]
    assert binding.value.attrs.axis is None or [int(axis) for axis in binding.value.attrs.axis] == [2]
    np.testing.assert_array_equal(run(module), X[:, :, 0])
