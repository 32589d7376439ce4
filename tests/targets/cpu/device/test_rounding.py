"""Rounding to bytes takes one instruction, and round trips from float32 through bytes are removed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from anole.ir.nodes import collect
from anole.targets.cpu.device.lowering import pipeline

N = 64
X = np.concatenate(
    [
        np.arange(-2, 2, 0.25),
        [-1e30, 1e30, 2.0**31, -(2.0**31), 254.5, 255.5, 256.5, -0.5, -1.5, 127.5, -128.5, 126.5],
        np.random.default_rng(0).uniform(-300, 300, N - 28),
    ]
).astype(np.float32)


def kernel(value: Any, dtype: str) -> tirx.PrimFunc:
    x = te.placeholder((N,), "float32", "x")
    return te.create_prim_func([x, te.compute((N,), lambda i: value(x[i]).astype(dtype), "y")])


def run(func: tirx.PrimFunc, dtype: str) -> tuple[np.ndarray, str]:
    schedule = tvm.s_tir.Schedule(func)
    _, vector = schedule.split(schedule.get_loops("y")[0], [None, 16])
    schedule.vectorize(vector)
    library = tvm.compile(
        schedule.mod, tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"}), tir_pipeline=pipeline()
    )
    given, found = tvm.runtime.tensor(X), tvm.runtime.tensor(np.zeros(N, dtype))
    library["main"](given, found)
    return found.numpy(), library.mod.inspect_source("ll")


@pytest.mark.parametrize("zero", [0, 3, 130, -7])
@pytest.mark.parametrize(("dtype", "low", "high"), [("uint8", 0, 255), ("int8", -128, 127), ("uint8", 10, 200)])
def test_values_are_clipped_and_rounded_to_even(zero: int, dtype: str, low: int, high: int) -> None:
    def quantized(x: Any) -> Any:
        rounded = tirx.nearbyint(x) + tirx.const(zero, "float32") if zero else tirx.nearbyint(x)
        return tirx.max(tirx.min(rounded, tirx.const(high, "float32")), tirx.const(low, "float32"))

    found, code = run(kernel(quantized, dtype), dtype)
    np.testing.assert_array_equal(found, np.clip(np.round(X.astype(np.float64)) + zero, low, high).astype(dtype))
    assert "llvm.lrint" in code and "nearbyint" not in code


def test_rounded_values_with_float_consumers_do_not_become_bytes() -> None:
    def used(x: Any) -> Any:
        clipped = tirx.max(tirx.min(tirx.nearbyint(x), tirx.const(255.0, "float32")), tirx.const(0.0, "float32"))
        return clipped.astype("uint8").astype("int32").astype("float32") * tirx.const(0.1, "float32")

    found, code = run(kernel(used, "float32"), "float32")
    np.testing.assert_array_equal(found, np.clip(np.round(X), 0, 255) * np.float32(0.1))
    assert "x i8>" not in code


@pytest.mark.parametrize(
    "value",
    [
        lambda x: tirx.nearbyint(x),
        lambda x: tirx.min(tirx.nearbyint(x), tirx.const(255.0, "float32")),
        lambda x: tirx.max(tirx.min(tirx.nearbyint(x), tirx.const(256.0, "float32")), tirx.const(0.0, "float32")),
        lambda x: tirx.max(tirx.min(x, tirx.const(255.0, "float32")), tirx.const(0.0, "float32")),
    ],
)
def test_values_that_may_exceed_bytes_are_cast_without_rewriting(value: Any) -> None:
    from anole.targets.cpu.device.rounding import simplify_rounding

    func = kernel(value, "uint8")
    assert not [call for call in collect(simplify_rounding(func).body, tvm.ir.Call) if "pure_intrin" in str(call.op)]
