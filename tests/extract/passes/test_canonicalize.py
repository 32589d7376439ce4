"""Places and axes said plainly mean what they meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import ir, relax, te, tirx, topi

from anole.extract.passes.canonicalize import canonicalize

from .building import module_of, operators, run

X = np.arange(2 * 3 * 1 * 4, dtype=np.float32).reshape(2, 3, 1, 4)


@pytest.mark.parametrize(("axis", "place"), [(0, 1), (1, -1), (-1, 2), (-3, -3)])
def test_what_is_taken_at_one_place_is_a_slice(axis: int, place: int) -> None:
    module = canonicalize(module_of(lambda _, x: relax.op.take(x, relax.const(place, "int64"), axis, "wrap"), X.shape))
    assert operators(module) == ["strided_slice", "squeeze"]
    np.testing.assert_array_equal(run(module, X), np.take(X, place, axis))


def test_what_is_taken_at_several_places_stays() -> None:
    places = relax.const(np.array([2, 0]), "int64")
    module = canonicalize(module_of(lambda _, x: relax.op.take(x, places, 1), X.shape))
    assert operators(module) == ["take"]
    np.testing.assert_array_equal(run(module, X), X[:, [2, 0]])


@pytest.mark.parametrize("axis", [0, 2, -1])
def test_a_stack_is_a_concatenation(axis: int) -> None:
    module = canonicalize(
        module_of(lambda builder, x: relax.op.stack([x, builder.emit(relax.op.exp(x))], axis), X.shape)
    )
    assert "stack" not in operators(module)
    np.testing.assert_allclose(run(module, X), np.stack([X, np.exp(X)], axis), rtol=1e-6)


def test_places_that_there_are_not_are_the_nearest() -> None:
    def build(builder: relax.BlockBuilder, x: ir.Expr, places: ir.Expr) -> ir.Expr:
        return relax.op.take(x, builder.emit(relax.op.astype(places, "int64")), 1, "fast")

    module = canonicalize(module_of(build, X.shape, (3,)))
    found = run(module, X, np.array([-1, 1, 1 << 40], np.float32))
    np.testing.assert_array_equal(found, X[:, [0, 1, 2]])


@pytest.mark.parametrize("axes", [[-2], [2], None])
def test_squeezed_axes_are_counted_from_the_front(axes: list[int] | None) -> None:
    module = canonicalize(module_of(lambda _, x: relax.op.squeeze(x, axes), X.shape))
    (binding,) = module["main"].body.blocks[0].bindings[:1]
    assert binding.value.attrs.axis is None or [int(axis) for axis in binding.value.attrs.axis] == [2]
    np.testing.assert_array_equal(run(module, X), X[:, :, 0])


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
    module = canonicalize(module_of(lambda _, x: build(x), X.shape))
    assert operators(module) == ["clip"]
    np.testing.assert_array_equal(run(module, X), expected)


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
    module = canonicalize(module_of(lambda builder, x: builder.call_te(function, x, relax.const(5.0)), X.shape))
    assert operators(module) == ["clip" if function in (topi.maximum, topi.minimum) else "call_tir"]
    np.testing.assert_array_equal(run(module, X), expected)


@pytest.mark.parametrize(
    ("exponent", "expected"),
    [(1.0, []), (2.0, ["multiply"]), (3.0, ["multiply"] * 2), (0.5, ["sqrt"]), (-0.5, ["rsqrt"]), (2.5, ["power"])],
)
def test_powers_are_products_and_roots(exponent: float, expected: list[str]) -> None:
    module = canonicalize(module_of(lambda _, x: relax.op.power(x, relax.const(exponent)), X.shape))
    assert operators(module) == expected
    np.testing.assert_allclose(run(module, X + 1), (X + 1) ** exponent, rtol=1e-6)


def test_of_bounds_that_cross_the_last_counts() -> None:
    module = canonicalize(module_of(lambda _, x: bounded(x, 9.0, 5.0), X.shape))
    np.testing.assert_array_equal(run(module, X), np.minimum(np.maximum(X, 9), 5))


def test_bounds_that_differ_by_place_stay() -> None:
    bounds = relax.const(np.array([3, 5, 2, 1], dtype=np.float32))
    module = canonicalize(module_of(lambda _, x: relax.op.maximum(x, bounds), X.shape))
    assert operators(module) == ["maximum"]
    np.testing.assert_array_equal(run(module, X), np.maximum(X, [3, 5, 2, 1]))
