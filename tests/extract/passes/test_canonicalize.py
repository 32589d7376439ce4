"""Canonical indices, axes, bounds and powers preserve results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from tvm import ir, relax, te, tirx, topi

from anole.extract.passes.canonicalize import canonicalize

from .building import module_of, network, operators, run

X = np.arange(2 * 3 * 1 * 4, dtype=np.float32).reshape(2, 3, 1, 4)


def bounded(x: ir.Expr, low: float, high: float) -> ir.Expr:
    return relax.op.minimum(relax.op.maximum(x, relax.const(low)), relax.const(high))


@pytest.mark.parametrize(
    ("build", "left", "expected"),
    [
        (lambda x: relax.op.take(x, relax.const(np.array([2, 0]), "int64"), 1), "take", X[:, [2, 0]]),
        (lambda x: bounded(x, 5.0, 9.0), "clip", np.clip(X, 5, 9)),
        (lambda x: relax.op.maximum(x, relax.const(5.0)), "clip", np.maximum(X, 5)),
        (lambda x: relax.op.minimum(x, relax.const(5.0)), "clip", np.minimum(X, 5)),
        (lambda x: relax.op.minimum(bounded(x, 5.0, 9.0), relax.const(7.0)), "clip", np.clip(X, 5, 7)),
        (lambda x: relax.op.minimum(bounded(x, 5.0, 9.0), relax.const(12.0)), "clip", np.clip(X, 5, 9)),
        (lambda x: relax.op.maximum(x, relax.const(np.float32([3, 5, 2, 1]))), "maximum", np.maximum(X, [3, 5, 2, 1])),
    ],
)
def test_constant_bounds_become_clip(build: Any, left: str, expected: np.ndarray) -> None:
    module = canonicalize(network(build, X.shape))
    assert operators(module) == [left]
    np.testing.assert_array_equal(run(module, X), expected)


def test_the_last_of_crossing_bounds_wins() -> None:
    module = canonicalize(network(lambda x: bounded(x, 9.0, 5.0), X.shape))
    np.testing.assert_array_equal(run(module, X), np.minimum(np.maximum(X, 9), 5))


@pytest.mark.parametrize(("axis", "index"), [(0, 1), (1, -1), (-1, 2), (-3, -3)])
def test_take_of_one_index_becomes_a_slice(axis: int, index: int) -> None:
    module = canonicalize(network(lambda x: relax.op.take(x, relax.const(index, "int64"), axis, "wrap"), X.shape))
    assert operators(module) == ["strided_slice", "squeeze"]
    np.testing.assert_array_equal(run(module, X), np.take(X, index, axis))


@pytest.mark.parametrize("axis", [0, 2, -1])
def test_stack_becomes_concat(axis: int) -> None:
    module = canonicalize(network(lambda x: relax.op.stack([x, relax.op.exp(x)], axis), X.shape))
    assert "stack" not in operators(module)
    np.testing.assert_allclose(run(module, X), np.stack([X, np.exp(X)], axis), rtol=1e-6)


@pytest.mark.parametrize(
    ("exponent", "expected"),
    [(1.0, []), (2.0, ["multiply"]), (3.0, ["multiply"] * 2), (0.5, ["sqrt"]), (-0.5, ["rsqrt"]), (2.5, ["power"])],
)
def test_powers_become_products_and_roots(exponent: float, expected: list[str]) -> None:
    module = canonicalize(network(lambda x: relax.op.power(x, relax.const(exponent)), X.shape))
    assert operators(module) == expected
    np.testing.assert_allclose(run(module, X + 1), (X + 1) ** exponent, rtol=1e-6)


def test_indices_out_of_bounds_are_clamped() -> None:
    def build(x: ir.Expr, indices: ir.Expr) -> ir.Expr:
        return relax.op.take(x, relax.op.astype(indices, "int64"), 1, "fast")

    found = run(canonicalize(network(build, X.shape, (3,))), X, np.array([-1, 1, 1 << 40], np.float32))
    np.testing.assert_array_equal(found, X[:, [0, 1, 2]])


@pytest.mark.parametrize("axes", [[-2], [2], None])
def test_squeezed_axes_are_counted_from_the_front(axes: list[int] | None) -> None:
    module = canonicalize(network(lambda x: relax.op.squeeze(x, axes), X.shape))
    (binding,) = module["main"].body.blocks[0].bindings[:1]
    assert binding.value.attrs.axis is None or [int(axis) for axis in binding.value.attrs.axis] == [2]
    np.testing.assert_array_equal(run(module, X), X[:, :, 0])


@pytest.mark.parametrize("name", ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"])
def test_boolean_comparisons_become_logic(name: str) -> None:
    def build(x: ir.Expr) -> ir.Expr:
        one, other = (relax.op.greater(x, relax.const(np.float32(bound))) for bound in (5, [3, 6, 9, 20]))
        return getattr(relax.op, name)(one, other)

    module = canonicalize(network(build, X.shape))
    assert name not in operators(module)[2:]
    np.testing.assert_array_equal(run(module, X), getattr(np, name)(X > 5, X > [3, 6, 9, 20]))


@pytest.mark.parametrize(("n_axes", "n_reshapes"), [(3, 4), (2, 4), (1, 0)])
def test_layer_norm_over_several_axes_is_flattened(n_axes: int, n_reshapes: int) -> None:
    scale, shift = (np.random.default_rng(seed).random(X.shape[-n_axes:], np.float32) for seed in range(2))
    axes = [*range(-n_axes, 0)]
    module = canonicalize(
        network(lambda x: relax.op.nn.layer_norm(x, relax.const(scale), relax.const(shift), axes), X.shape)
    )
    assert operators(module).count("reshape") == n_reshapes
    expected = F.layer_norm(torch.from_numpy(X), scale.shape, torch.from_numpy(scale), torch.from_numpy(shift))
    np.testing.assert_allclose(run(module, X), expected, rtol=1e-4, atol=1e-5)


def repeated_maximum(data: te.Tensor, bound: te.Tensor) -> te.Tensor:
    return te.compute((2, *data.shape), lambda _, *index: tirx.max(data(*index), bound()))


@pytest.mark.parametrize(
    ("function", "left", "expected"),
    [
        (topi.maximum, "clip", np.maximum(X, 5)),
        (topi.minimum, "clip", np.minimum(X, 5)),
        (topi.add, "call_tir", X + 5),
        (repeated_maximum, "call_tir", np.stack([np.maximum(X, 5)] * 2)),
    ],
)
def test_functions_for_scalar_bounds_become_operators(
    function: Callable[..., Any], left: str, expected: np.ndarray
) -> None:
    module = canonicalize(module_of(lambda builder, x: builder.call_te(function, x, relax.const(5.0)), X.shape))
    assert operators(module) == [left]
    np.testing.assert_array_equal(run(module, X), expected)
