"""Statements and expressions that TVM would otherwise simplify wrongly."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx

from anole.ir.nodes import with_ascending_dividends
from anole.targets.cpu.device.builder import llvm_target
from anole.targets.cpu.device.lowering import PARTITION, pipeline
from anole.targets.cpu.settings import describe_cpu


@pytest.mark.parametrize("passes", ["default", pipeline()])
@pytest.mark.parametrize("lanes", [2, 4])
@pytest.mark.parametrize(("last", "step"), [(1, -1), (6, -2), (15, -1), (14, -3)])
def test_a_flattened_array_is_read_backwards(last: int, step: int, lanes: int, passes: str) -> None:
    def element(i: tirx.Var) -> tirx.Expr:
        at = last + step * i
        return source[at % 16 // 8, at % 8]

    data = np.arange(16, dtype="float32").reshape(2, 8)
    expected = data.ravel()[last::step]
    source = te.placeholder((2, 8), "float32", name="source")
    sch = s_tir.Schedule(te.create_prim_func([source, te.compute(expected.shape, element, name="read")], "int64"))
    steps, vector = sch.split(*sch.get_loops(sch.get_sblock("read")), [None, lanes])
    sch.vectorize(vector)
    sch.annotate(steps, PARTITION, 1)
    func = with_ascending_dividends(sch.mod["main"])
    found = tvm.runtime.tensor(np.empty_like(expected))
    module = tvm.compile(tvm.IRModule({"main": func}), llvm_target(describe_cpu()), tir_pipeline=passes)
    module["main"](tvm.runtime.tensor(data), found)
    np.testing.assert_array_equal(found.numpy(), expected)
