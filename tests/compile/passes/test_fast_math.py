"""Polynomials in the place of library functions differ from them by little."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
import tvm
from tvm import relax

from anole.compile.passes.fast_math import fast_math_map

from ...extract.passes.building import run

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


def module_of(function: Callable[..., relax.Expr], dtype: str) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 501), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(function(x))
        builder.emit_func_output(out)
    return relax.transform.LegalizeOps(fast_math_map())(builder.get())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_are_a_few_units_of_the_last_place(name: str) -> None:
    function, reference = FUNCTIONS[name]
    x = np.linspace(-30, 30, 4 * 501, dtype=np.float32).reshape(4, 501)
    found = run(module_of(function, "float32"), x)
    expected = reference(torch.from_numpy(x).double()).numpy()
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6 if "gelu" in name else 2e-7)


def test_logarithms_of_all_magnitudes() -> None:
    x = np.logspace(-45, 38, 4 * 501, dtype=np.float32).reshape(4, 501)
    x[0, :4] = 0.0, -1.0, np.inf, np.nan
    found = run(module_of(relax.op.log, "float32"), x)
    np.testing.assert_allclose(found, torch.log(torch.from_numpy(x).double()).numpy(), rtol=2e-7, atol=1e-7)


@pytest.mark.parametrize("name", ["exp", "sigmoid", "silu"])
def test_what_is_no_number_stays_none(name: str) -> None:
    x = np.full((4, 501), np.nan, np.float32)
    x[0] = np.inf
    function, reference = FUNCTIONS[name]
    np.testing.assert_array_equal(run(module_of(function, "float32"), x), reference(torch.from_numpy(x)).numpy())


def test_other_types_keep_their_definition() -> None:
    assert "reinterpret" in module_of(relax.op.exp, "float32").script()
    assert "reinterpret" not in module_of(relax.op.exp, "float64").script()
