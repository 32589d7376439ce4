"""Buffers between kernels become tensors of the network; functions that launch no kernels are unchanged."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import ir, relax, s_tir, te, tirx

from anole.compiler.passes.workspace import lift_workspaces
from anole_cuda.settings import describe_cuda
from kit.emulated_gpu.programs import run_network
from kit.emulated_gpu.worker import EmulatedGpu

from ...extract.passes.building import module_of

SIZE = 8
DATA = np.arange(SIZE, dtype=np.float32)


def double_add(*more: float, bound: bool = True) -> tirx.PrimFunc:
    """Return a function that doubles its input and adds each number: every step is a kernel, or a loop on the host."""
    data = te.placeholder((SIZE,), name="data")
    double = te.compute((SIZE,), lambda i: data[i] * 2.0, name="double")

    def added(number: int) -> te.Tensor:
        return te.compute((SIZE,), lambda i: double[i] + more[number], name=f"more_{number}")

    results = [added(number) for number in range(len(more))]
    sch = s_tir.Schedule(te.create_prim_func([data, *results]))
    for name in ("double", *(result.op.name for result in results)) if bound else ():
        (loop,) = sch.get_loops(sch.get_sblock(name))
        sch.bind(loop, "threadIdx.x")
    return sch.mod["main"].without_attr("global_symbol")


def network(func: tirx.PrimFunc, build: Callable[..., ir.Expr]) -> tvm.IRModule:
    return module_of(lambda builder, x: build(builder, builder.add_func(func, "steps"), x), (SIZE,))


def twice(builder: relax.BlockBuilder, steps: ir.GlobalVar, x: ir.Expr) -> ir.Expr:
    return relax.call_tir(steps, [builder.emit(relax.call_tir(steps, [x], x.ty))], x.ty)


def exchanged(builder: relax.BlockBuilder, steps: ir.GlobalVar, x: ir.Expr) -> ir.Expr:
    both = builder.emit(relax.call_tir(steps, [x], [x.ty, x.ty]))
    return relax.Tuple([relax.TupleGetItem(both, 1), relax.TupleGetItem(both, 0)])


def results_of(module: tvm.IRModule, gpu: EmulatedGpu) -> list[np.ndarray]:
    return gpu.call(run_network, tvm.ir.save_json(module), describe_cuda("sm_90"), [DATA])


@pytest.mark.guard
def test_buffers_between_kernels_become_unread_results(emulated_gpu: EmulatedGpu) -> None:
    module = lift_workspaces(network(double_add(1.0), twice))
    (func,) = (func for _, func in module.functions_items() if isinstance(func, tirx.PrimFunc))
    assert len(func.params) == 3 and not func.body.block.alloc_buffers
    np.testing.assert_array_equal(results_of(module, emulated_gpu), [4 * DATA + 3])


def test_a_function_with_two_results_keeps_both(emulated_gpu: EmulatedGpu) -> None:
    module = lift_workspaces(network(double_add(1.0, 2.0), exchanged))
    np.testing.assert_array_equal(results_of(module, emulated_gpu), [2 * DATA + 2, 2 * DATA + 1])


def test_host_functions_and_lifted_functions_are_unchanged() -> None:
    for module in (network(double_add(1.0, bound=False), twice), lift_workspaces(network(double_add(1.0), twice))):
        assert tvm_ffi.structural_equal(lift_workspaces(module), module)
