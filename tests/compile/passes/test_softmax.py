"""Softmax is right for rows of any length, and computed row by row in vectors."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from anole.compile.lower import lower
from anole.targets import get_target
from anole.targets.base import Device
from anole.targets.cpu.settings import describe_cpu

TARGET: Device = get_target({**describe_cpu(), "threads": 2})


def scheduled(shape: tuple[int, ...], axis: int) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.softmax(x, axis))
        builder.emit_func_output(out)
    return lower(builder.get(), {}, TARGET.schedule_default, TARGET.row_lanes)[0]


def check(module: tvm.IRModule, data: np.ndarray, axis: int) -> None:
    executable = tvm.compile(module, TARGET.compiler_target(), tir_pipeline=TARGET.compiler_pipeline())
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(data)).numpy()
    powers = np.exp(data.astype(np.float64) - data.max(axis, keepdims=True))
    np.testing.assert_allclose(found, powers / powers.sum(axis, keepdims=True), rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("columns", [17, 49, 60, 196, 197])
def test_rows_that_vectors_do_not_fill(columns: int) -> None:
    module = scheduled((8, 49, columns), -1)
    (script,) = [func.script() for _, func in module.functions_items() if isinstance(func, tirx.PrimFunc)]
    assert script.count("T.parallel(") == 1
    assert "T.where(" not in script
    data = 5 * np.random.default_rng(columns).standard_normal((8, 49, columns), dtype=np.float32)
    data[0, 0, -3:], data[0, 1, :-3] = -np.inf, -np.inf
    check(module, data, -1)


@pytest.mark.parametrize(("shape", "axis"), [((3, 5), -1), ((2, 49, 6), 1), ((40, 64), 1), ((1, 1000), -1), ((19,), 0)])
def test_other_rows(shape: tuple[int, ...], axis: int) -> None:
    check(scheduled(shape, axis), np.random.default_rng(0).standard_normal(shape, dtype=np.float32), axis)
