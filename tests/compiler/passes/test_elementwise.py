"""Polynomials differ little from the library functions that they replace; short biases are padded with zeros."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
import tvm
from tvm import relax

from anole.compiler.passes.elementwise import fast_math_map, legalize_add

from ...extract.passes.building import calls, module_of, random_array, run

FUNCTIONS: dict[str, tuple[Callable[..., relax.Expr], Callable[[torch.Tensor], torch.Tensor]]] = {
    "exp": (relax.op.exp, torch.exp),
    "tanh": (relax.op.tanh, torch.tanh),
    "erf": (relax.op.erf, torch.erf),
    "sigmoid": (relax.op.sigmoid, torch.sigmoid),
    "silu": (relax.op.nn.silu, torch.nn.functional.silu),
    "gelu": (relax.op.nn.gelu, torch.nn.functional.gelu),
    "gelu_tanh": (relax.op.nn.gelu_tanh, partial(torch.nn.functional.gelu, approximate="tanh")),
    "log": (relax.op.log, torch.log),
    "softmax": (relax.op.nn.softmax, lambda x: torch.softmax(x, -1)),
}


def polynomial(function: Callable[..., relax.Expr], dtype: str = "float32") -> tvm.IRModule:
    def build(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return function(x if dtype == "float32" else builder.emit(relax.op.astype(x, dtype)))

    return relax.transform.LegalizeOps(fast_math_map())(module_of(build, (4, 501)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_are_a_few_ulps(name: str) -> None:
    function, reference = FUNCTIONS[name]
    x = np.linspace(-30, 30, 4 * 501, dtype=np.float32).reshape(4, 501)
    found = run(polynomial(function), x)
    expected = reference(torch.from_numpy(x).double()).numpy()
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6 if "gelu" in name else 2e-7)


def test_logarithms_of_all_magnitudes() -> None:
    x = np.logspace(-45, 38, 4 * 501, dtype=np.float32).reshape(4, 501)
    x[0, :4] = 0.0, -1.0, np.inf, np.nan
    found = run(polynomial(relax.op.log), x)
    np.testing.assert_allclose(found, torch.log(torch.from_numpy(x).double()).numpy(), rtol=2e-7, atol=1e-7)


@pytest.mark.parametrize("name", ["exp", "sigmoid", "silu"])
def test_nan_and_infinity_are_preserved(name: str) -> None:
    x = np.full((4, 501), np.nan, np.float32)
    x[0] = np.inf
    function, reference = FUNCTIONS[name]
    np.testing.assert_array_equal(run(polynomial(function), x), reference(torch.from_numpy(x)).numpy())


def test_other_dtypes_keep_their_definition() -> None:
    assert "reinterpret" in polynomial(relax.op.exp).script()
    assert "reinterpret" not in polynomial(relax.op.exp, "float64").script()


def sum_with(bias: np.ndarray, *shape: int) -> tvm.IRModule:
    module = module_of(lambda _, x: relax.op.add(x, relax.const(bias)), shape)
    return relax.transform.LegalizeOps({"relax.add": legalize_add})(module)


def added_constant(module: tvm.IRModule) -> np.ndarray:
    """Return the constant that the only kernel is called with."""
    (call,) = calls(module)
    return call.args[1].fields[1].value.numpy()


@pytest.mark.parametrize("shape", [(6,), (1, 1, 1, 6)])
def test_a_short_bias_is_padded_with_zeros(shape: tuple[int, ...]) -> None:
    bias = np.arange(1, 7, dtype="float32").reshape(shape)
    data = np.ones((1, 5, 4, 6), dtype="float32")
    module = sum_with(bias, *data.shape)
    np.testing.assert_array_equal(added_constant(module), [1, 2, 3, 4, 5, 6, *10 * [0]])
    np.testing.assert_array_equal(run(module, data), data + bias)


@pytest.mark.parametrize(
    ("bias_shape", "shape"),
    [
        pytest.param((16,), (1, 5, 4, 16), id="fills a register"),
        pytest.param((5, 4, 6), (1, 5, 4, 6), id="one for each pixel"),
        pytest.param((1,), (1, 5, 4, 6), id="one for all"),
        pytest.param((6,), (1, 5, 4, 1), id="data is broadcast"),
    ],
)
def test_other_operands_are_not_padded(bias_shape: tuple[int, ...], shape: tuple[int, ...]) -> None:
    bias, data = random_array(*bias_shape), np.ones(shape, dtype="float32")
    module = sum_with(bias, *shape)
    assert added_constant(module).shape == bias_shape
    np.testing.assert_array_equal(run(module, data), data + bias)
