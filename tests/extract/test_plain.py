"""Places and axes said plainly mean what they meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import ir, relax, te, tirx, topi

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


def bounded(x: ir.Expr, low: float, high: float) -> ir.Expr:
    return relax.op.minimum(relax.op.maximum(x, relax.const(low)), relax.const(high))


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda x: bounded(x, 5.0, 9.0), np.clip(X, 5, 9)),
        (lambda x: relax.op.maximum(x, relax.const(5.0)), np.maximum(X, 5)),
        (lambda x: relax.op.minimum(x, relax.const(5.0)), np.minimum(X, 5)),
        (lambda x: relax.op.minimum(bounded(x, 5.0, 9.0), relax.const(7.0)), np.clip(X, 5, 7)),
        (lambda x: relax.op.minimum(bounded(x, 5.0, 9.0), relax.const(12.0)), np.clip(X, 5, 9)),
    ],
)
def test_constant_bounds_are_a_clip(build: Callable[[ir.Expr], ir.Expr], expected: np.ndarray) -> None:
    module = speak_plainly(relax.transform.Normalize()(module_of(build)))
    assert calls(module) == ["relax.clip"]
    np.testing.assert_array_equal(run(module), expected)


def repeated_maximum(data: te.Tensor, bound: te.Tensor) -> te.Tensor:
    return te.compute((2, *data.shape), lambda _, *place: tirx.max(data(*place), bound()))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (topi.maximum, np.maximum(X, 5)),
        (topi.minimum, np.minimum(X, 5)),
        (topi.add, X + 5),
        (repeated_maximum, np.stack([np.maximum(X, 5)] * 2)),
    ],
)
def test_functions_of_one_number_are_the_operators_that_they_compute(
    function: Callable[..., Any], expected: np.ndarray
) -> None:
    data, builder = relax.Var("x", relax.TensorType(X.shape, "float32")), relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            result = builder.emit_output(builder.call_te(function, data, relax.const(5.0)))
        builder.emit_func_output(result)
    module = speak_plainly(builder.get())
    assert calls(module) == ["relax.clip" if function in (topi.maximum, topi.minimum) else "relax.call_tir"]
    np.testing.assert_array_equal(run(module), expected)


def test_of_bounds_that_cross_the_last_counts() -> None:
    module = speak_plainly(relax.transform.Normalize()(module_of(lambda x: bounded(x, 9.0, 5.0))))
    np.testing.assert_array_equal(run(module), np.minimum(np.maximum(X, 9), 5))


def test_bounds_that_differ_by_place_stay() -> None:
    bounds = relax.const(np.array([3, 5, 2, 1], dtype=np.float32))
    module = speak_plainly(module_of(lambda x: relax.op.maximum(x, bounds)))
    assert calls(module) == ["relax.maximum"]
    np.testing.assert_array_equal(run(module), np.maximum(X, [3, 5, 2, 1]))
