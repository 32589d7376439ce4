"""Where kernels keep what is local to a thread, and how loops are partitioned."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx

from anole.targets import get_device
from anole.targets.cpu.device.builder import llvm_target
from anole.targets.cpu.device.lowering import PARTITION
from anole.targets.cpu.settings import describe_cpu
from anole.targets.shared.kernel import define
from anole.task import Conv2d

DESCRIPTION = describe_cpu()
TARGET = get_device(DESCRIPTION)

ALLOCATION = "TVMBackendAllocWorkspace"


def ir_of(func: tirx.PrimFunc, pipeline: str) -> str:
    """LLVM's intermediate code of a function."""
    library = tvm.compile(tvm.IRModule({"main": func}), llvm_target(DESCRIPTION), tir_pipeline=pipeline)
    return str(library.mod.inspect_source("ll"))


def buffered(kib: int) -> tirx.PrimFunc:
    """Copies an array through a local buffer of so many KiB."""
    source = te.placeholder((kib * 256,), "float32", name="source")
    sch = s_tir.Schedule(te.create_prim_func([source, te.compute(source.shape, lambda i: source[i], name="copy")]))
    sch.cache_read(sch.get_sblock("copy"), 0, "local")
    return sch.mod["main"]


@pytest.mark.parametrize("prefetch", [0, 1])
def test_a_large_register_tile_is_not_on_the_heap(prefetch: int) -> None:
    workload = Conv2d(1, 14, 14, 512, 512, (1, 1))
    space = TARGET.space(workload)
    panel = TARGET.unit.lanes * 2
    config = dict(space.best_drawn, tile_f=[512 // panel, 1, panel], tile_y=[2, 7, 1], tile_x=[1, 14])
    config |= {"tile_rc": [1, 512], "unroll_explicit": 0, "prefetch": prefetch}
    template = TARGET.template(workload)
    func = template.schedule(define(template, workload, config), workload, config)
    made = ir_of(func, TARGET.compiler_pipeline())
    assert ALLOCATION not in made
    assert ("llvm.prefetch" in made) == bool(prefetch)


@pytest.mark.parametrize(("kib", "allocated"), [(8, False), (64, True)])
def test_only_what_is_small_goes_to_the_stack(kib: int, allocated: bool) -> None:
    assert (ALLOCATION in ir_of(buffered(kib), TARGET.compiler_pipeline())) == allocated


def test_tvm_by_itself_puts_even_a_tile_on_the_heap() -> None:
    assert ALLOCATION in ir_of(buffered(8), "default")


@pytest.mark.parametrize(("pipeline", "vectors"), [(TARGET.compiler_pipeline(), True), ("default", False)])
def test_an_incomplete_last_vector_leaves_the_others_whole(pipeline: str, vectors: bool) -> None:
    source = te.placeholder((100, 197), "float32", name="source")
    root = te.compute(source.shape, lambda *i: te.sqrt(source(*i)), name="square_root")
    sch = s_tir.Schedule(te.create_prim_func([source, root], "int64"))
    steps, vector = sch.split(sch.get_loops(sch.get_sblock("square_root"))[-1], [None, 16])
    sch.vectorize(vector)
    sch.annotate(steps, PARTITION, 1)
    assert ("@llvm.sqrt.v16f32(<16 x float>" in ir_of(sch.mod["main"], pipeline)) == vectors


@pytest.mark.parametrize(("pipeline", "vectors"), [(TARGET.compiler_pipeline(), True), ("default", False)])
def test_vectors_that_pass_the_end_of_a_row_are_contiguous(pipeline: str, vectors: bool) -> None:
    source = te.placeholder((50, 56, 72), "float32", name="source")
    root = te.compute(source.shape, lambda *i: te.sqrt(source(*i)), name="square_root")
    sch = s_tir.Schedule(te.create_prim_func([source, root], "int64"))
    steps, vector = sch.split(sch.fuse(*sch.get_loops(sch.get_sblock("square_root"))), [None, 16])
    sch.vectorize(vector)
    sch.annotate(steps, PARTITION, 1)
    assert ("load <16 x float>" in ir_of(sch.mod["main"], pipeline)) == vectors


def test_a_loop_that_tvm_cannot_partition_stays_whole() -> None:
    source = te.placeholder((77, 77), "float32", name="source")
    padded = te.compute((77, 80), lambda i, j: tirx.if_then_else(j < 77, source[i, j], 0.0), name="padded")
    sch = s_tir.Schedule(te.create_prim_func([source, padded], "int64"))
    steps, vector = sch.split(sch.fuse(*sch.get_loops(sch.get_sblock("padded"))), [None, 8])
    sch.vectorize(vector)
    sch.annotate(steps, PARTITION, 1)
    library = tvm.compile(
        tvm.IRModule({"main": sch.mod["main"]}), llvm_target(DESCRIPTION), tir_pipeline=TARGET.compiler_pipeline()
    )
    data = np.random.default_rng(0).standard_normal((77, 77)).astype("float32")
    result = tvm.runtime.tensor(np.empty((77, 80), "float32"))
    library["main"](tvm.runtime.tensor(data), result)
    np.testing.assert_array_equal(result.numpy(), np.pad(data, [(0, 0), (0, 3)]))


def test_whole_vectors_are_rounded() -> None:
    source = te.placeholder((64,), "float32", name="source")
    rounded = te.compute(source.shape, lambda i: tirx.nearbyint(source[i]), name="rounded")
    sch = s_tir.Schedule(te.create_prim_func([source, rounded], "int64"))
    (loop,) = sch.get_loops(sch.get_sblock("rounded"))
    sch.vectorize(sch.split(loop, [None, 16])[1])
    assert "<16 x float> @llvm.nearbyint" in ir_of(sch.mod["main"], TARGET.compiler_pipeline())
