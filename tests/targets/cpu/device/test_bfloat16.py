"""Rounding to bfloat16: to nearest even, by the processor's instruction if it has one."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import te, tirx

from anole.host.processor import processor
from anole.ir.polynomials import gelu
from anole.targets.cpu.device.builder import llvm_target
from anole.targets.cpu.device.lowering import pipeline

from .test_dot_products import description

N = 67
X = np.random.default_rng(0).standard_normal(N).astype(np.float32)
X[:8] = [np.nan, np.inf, -np.inf, 0, -0.0, 3.4e38, 1 + 2**-8, 1 + 3 * 2**-8]


def round_values(value: Any, mcpu: str) -> tuple[np.ndarray, str]:
    """Return the bits of values rounded in vectors, with a scalar remainder, and the assembly code."""
    x = te.placeholder((N,), "float32", "x")
    y = te.compute((N,), lambda i: tirx.reinterpret("uint16", value(x[i]).astype("bfloat16")), "y")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, y]))
    _, vector = schedule.split(schedule.get_loops("y")[0], [None, 16])
    schedule.vectorize(vector)
    library = tvm.compile(schedule.mod, llvm_target(description(mcpu)), tir_pipeline=pipeline())
    given, found = tvm.runtime.tensor(X), tvm.runtime.tensor(np.zeros(N, np.uint16))
    library["main"](given, found)
    return found.numpy(), library.mod.inspect_source("asm")


@pytest.mark.parametrize("mcpu", ["x86-64", "x86-64-v3", "x86-64-v4", "znver4"])
def test_values_are_rounded_to_nearest_even(mcpu: str) -> None:
    if processor().missing_features(mcpu):
        pytest.skip(f"this machine runs no code for {mcpu}")
    found, code = round_values(lambda x: x, mcpu)
    expected = X.astype(ml_dtypes.bfloat16)
    same = found.view(ml_dtypes.bfloat16)
    assert np.isnan(same[0].astype(np.float32)) and (found[1:] == expected.view(np.uint16)[1:]).all()
    assert ("vcvtneps2bf16" in code) is (mcpu == "znver4")


def test_rounded_expressions_may_define_variables() -> None:
    found, _ = round_values(gelu, "x86-64-v3")
    x = X[8:].astype(np.float64)
    expected = x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    np.testing.assert_allclose(found.view(ml_dtypes.bfloat16).astype(np.float32)[8:], expected, 1e-2, 1e-3)
