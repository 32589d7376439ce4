"""What passes between kernels becomes a tensor of the network; what does not launch kernels stays as it is."""

from __future__ import annotations

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, s_tir, te, tirx

from anole.compile.passes.workspace import lift_workspaces
from anole.targets.cuda.settings import describe_cuda
from tests.kit.emulated_gpu.programs import network_results
from tests.kit.emulated_gpu.worker import EmulatedGpu

SIZE = 8


def two_steps(*, bound: bool) -> tirx.PrimFunc:
    """Twice its input, and then one more: each step a kernel, or a loop on the host."""
    data = te.placeholder((SIZE,), name="data")
    double = te.compute((SIZE,), lambda i: data[i] * 2.0, name="double")
    sch = s_tir.Schedule(te.create_prim_func([data, te.compute((SIZE,), lambda i: double[i] + 1.0, name="more")]))
    for name in ("double", "more") if bound else ():
        (loop,) = sch.get_loops(sch.get_sblock(name))
        sch.bind(loop, "threadIdx.x")
    return sch.mod["main"].without_attr("global_symbol")


def network(func: tirx.PrimFunc) -> tvm.IRModule:
    """Both steps, done twice."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([SIZE], "float32"))
    with builder.function("main", [x]):
        variable = builder.add_func(func, "two_steps")
        with builder.dataflow():
            once = builder.emit(relax.call_tir(variable, [x], x.ty))
            twice = builder.emit_output(relax.call_tir(variable, [once], x.ty))
        builder.emit_func_output(twice)
    return builder.get()


def functions(module: tvm.IRModule) -> dict[tvm.ir.GlobalVar, tirx.PrimFunc]:
    return {variable: func for variable, func in module.functions_items() if isinstance(func, tirx.PrimFunc)}


def test_what_is_between_kernels_is_a_result_that_none_reads(emulated_gpu: EmulatedGpu) -> None:
    module = lift_workspaces(network(two_steps(bound=True)))
    (func,) = functions(module).values()
    assert len(func.params) == 3 and not func.body.block.alloc_buffers
    data = np.arange(SIZE, dtype=np.float32)
    (found,) = emulated_gpu.call(network_results, tvm.ir.save_json(module), describe_cuda("sm_90"), [data])
    np.testing.assert_array_equal(found, 4 * data + 3)


def test_a_function_of_two_results_keeps_both(emulated_gpu: EmulatedGpu) -> None:
    data = te.placeholder((SIZE,), name="data")
    double = te.compute((SIZE,), lambda i: data[i] * 2.0, name="double")
    one = te.compute((SIZE,), lambda i: double[i] + 1.0, name="one_more")
    two = te.compute((SIZE,), lambda i: double[i] + 2.0, name="two_more")
    sch = s_tir.Schedule(te.create_prim_func([data, one, two]))
    for name in ("double", "one_more", "two_more"):
        (loop,) = sch.get_loops(sch.get_sblock(name))
        sch.bind(loop, "threadIdx.x")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([SIZE], "float32"))
    with builder.function("main", [x]):
        variable = builder.add_func(sch.mod["main"].without_attr("global_symbol"), "two_results")
        with builder.dataflow():
            both = builder.emit(relax.call_tir(variable, [x], [x.ty, x.ty]))
            out = builder.emit_output(relax.Tuple([relax.TupleGetItem(both, 1), relax.TupleGetItem(both, 0)]))
        builder.emit_func_output(out)
    module = lift_workspaces(builder.get())
    values = np.arange(SIZE, dtype=np.float32)
    found = emulated_gpu.call(network_results, tvm.ir.save_json(module), describe_cuda("sm_90"), [values])
    np.testing.assert_array_equal(found, [2 * values + 2, 2 * values + 1])


def test_functions_of_the_host_stay_as_they_are() -> None:
    module = network(two_steps(bound=False))
    assert tvm_ffi.structural_equal(lift_workspaces(module), module)


def test_nothing_is_left_to_lift() -> None:
    module = lift_workspaces(network(two_steps(bound=True)))
    assert tvm_ffi.structural_equal(lift_workspaces(module), module)
