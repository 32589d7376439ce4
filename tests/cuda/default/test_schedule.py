"""TVM's rules for untuned functions: no block is left to the host, which cannot access a GPU's memory."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from anole_cuda.settings import describe_cuda
from anole_cuda.target import CudaTarget
from kit.emulated_gpu.programs import run_function
from kit.emulated_gpu.worker import EmulatedGpu, EmulationError

TARGET = CudaTarget(describe_cuda("sm_90"))


def transposed_and_flattened() -> tirx.PrimFunc:
    """Return a function with two results, one computed from the other, as before a Transformer's attention."""
    data = te.placeholder((1, 16, 64), name="data")
    turned = te.compute((16, 1, 64), lambda i, j, k: data[j, i, k], name="T_transpose")
    flat = te.compute((16, 64), lambda i, k: turned[i, 0, k], name="T_reshape")
    return te.create_prim_func([data, flat, turned]).with_attr("op_pattern", 8)


def json_of(func: tirx.PrimFunc) -> str:
    return str(tvm.ir.save_json(func.with_attr("global_symbol", "main")))


def test_all_results_are_computed_on_the_gpu(emulated_gpu: EmulatedGpu) -> None:
    scheduled = TARGET.schedule_default(transposed_and_flattened())
    data = np.random.default_rng(0).standard_normal((1, 16, 64)).astype(np.float32)
    results = [np.full(shape, np.nan, np.float32) for shape in ((16, 64), (16, 1, 64))]
    _, flat, turned = emulated_gpu.call(run_function, json_of(scheduled), TARGET.description, [data, *results])
    np.testing.assert_array_equal(flat, data[0])
    np.testing.assert_array_equal(turned, data.transpose(1, 0, 2))


@pytest.mark.guard
def test_a_host_loop_on_gpu_memory_also_fails_on_an_emulated_gpu(emulated_gpu: EmulatedGpu) -> None:
    data = te.placeholder((8,), name="data")
    func = te.create_prim_func([data, te.compute((8,), lambda i: data[i] + 1.0, name="more")])
    sch = tvm.s_tir.Schedule(te.create_prim_func([data, te.compute((8,), lambda i: data[i] * 2.0, name="bound")]))
    (loop,) = sch.get_loops(sch.get_sblock("bound"))
    sch.bind(loop, "threadIdx.x")
    arrays = [np.ones(8, np.float32), np.zeros(8, np.float32)]
    assert emulated_gpu.call(run_function, json_of(sch.mod["main"]), TARGET.description, arrays)[1][0] == 2
    with EmulatedGpu() as gpu, pytest.raises(EmulationError, match="the process of the emulated GPU ended"):
        gpu.call(run_function, json_of(func), TARGET.description, arrays)
