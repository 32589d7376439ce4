"""The CPU lowering pipeline: local buffers on the stack, vectorized loops, and even chunks for threads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx

from anole.host.processor import features_of, processor
from anole.ir.nodes import collect, with_values
from anole.targets import get_device
from anole.targets.cpu.device.builder import llvm_target
from anole.targets.cpu.device.lowering import CHUNKS_PER_THREAD, PARTITION, passes
from anole.targets.cpu.settings import describe_cpu
from anole.targets.shared.kernel import define
from anole.task import Conv2d

DESCRIPTION = describe_cpu()
TARGET = get_device(DESCRIPTION)

ALLOCATION = "TVMBackendAllocWorkspace"

Definition = Callable[[te.Tensor], te.Tensor]


def ir_of(func: tirx.PrimFunc, pipeline: str) -> str:
    """Return the LLVM IR of a function."""
    library = tvm.compile(tvm.IRModule({"main": func}), llvm_target(DESCRIPTION), tir_pipeline=pipeline)
    return str(library.mod.inspect_source("ll"))


def buffered(kib: int) -> tirx.PrimFunc:
    """Return a function that copies an array through a local buffer of `kib` KiB."""
    source = te.placeholder((kib * 256,), "float32", name="source")
    sch = s_tir.Schedule(te.create_prim_func([source, te.compute(source.shape, lambda i: source[i], name="copy")]))
    sch.cache_read(sch.get_sblock("copy"), 0, "local")
    return sch.mod["main"]


def float16_sum() -> tirx.PrimFunc:
    """Return a function that adds in float16, for which AVX-512 FP16 has an instruction."""
    one, other = (te.placeholder((1024,), "float16", name=name) for name in ("one", "other"))
    return te.create_prim_func([one, other, te.compute(one.shape, lambda i: one[i] + other[i])])


@pytest.mark.parametrize(("features", "used"), [([], False), (["avx512_bf16", "avx512_fp16", "amx_tile"], True)])
def test_code_uses_features_that_vary_within_a_cpu_model(features: list[str], used: bool) -> None:
    target = llvm_target({"mcpu": "rocketlake", "features": [*features_of("rocketlake"), *features], "threads": 1})
    library = tvm.compile(tvm.IRModule({"main": float16_sum()}), target)
    assert ("vaddph" in library.mod.inspect_source("asm")) == used


@pytest.mark.skipif(bool(processor().missing_features("x86-64-v3")), reason="this machine runs no code for x86-64-v3")
def test_code_for_a_given_processor_has_no_features_of_this_machine() -> None:
    target = llvm_target(describe_cpu("x86-64-v3", 1))
    code = tvm.compile(tvm.IRModule({"main": float16_sum()}), target).mod.inspect_source("asm")
    assert "ymm" in code and "zmm" not in code


@pytest.mark.parametrize("prefetch", [0, 1])
def test_a_large_register_tile_is_not_on_the_heap(prefetch: int) -> None:
    workload = Conv2d(1, 14, 14, 512, 512, (1, 1))
    space = TARGET.space(workload)
    panel = TARGET.unit.lanes * 2
    config = dict(space.best_sampled, tile_f=[512 // panel, 1, panel], tile_y=[2, 7, 1], tile_x=[1, 14])
    config |= {"tile_rc": [1, 512], "unroll_explicit": 0, "prefetch": prefetch}
    template = TARGET.template(workload)
    func = template.schedule(define(template, workload, config), workload, config)
    made = ir_of(func, TARGET.compiler_pipeline())
    assert ALLOCATION not in made
    assert ("llvm.prefetch" in made) == bool(prefetch)


@pytest.mark.parametrize(
    ("kib", "pipeline", "allocated"),
    [(8, TARGET.compiler_pipeline(), False), (64, TARGET.compiler_pipeline(), True), (8, "default", True)],
)
def test_only_small_buffers_are_on_the_stack_and_none_by_default(kib: int, pipeline: str, allocated: bool) -> None:
    assert (ALLOCATION in ir_of(buffered(kib), pipeline)) == allocated


def vectorize(definition: Definition, *shape: int | tirx.Var, width: int, fuses: bool = False) -> tirx.PrimFunc:
    """Return a definition's function, vectorized along its last axis or along all axes."""
    source = te.placeholder(shape, "float32", name="source")
    sch = s_tir.Schedule(te.create_prim_func([source, definition(source)], "int64"))
    loops = sch.get_loops(sch.get_sblock("computed"))
    steps, vector = sch.split(sch.fuse(*loops) if fuses else loops[-1], [None, width])
    sch.vectorize(vector)
    sch.annotate(steps, PARTITION, 1)
    return sch.mod["main"]


def square_root(source: te.Tensor) -> te.Tensor:
    return te.compute(source.shape, lambda *i: te.sqrt(source(*i)), name="computed")


@pytest.mark.parametrize("pipeline", [TARGET.compiler_pipeline(), "default"])
def test_only_the_cpu_pipeline_keeps_vectors(pipeline: str) -> None:
    incomplete = vectorize(square_root, 100, 197, width=16)
    across_rows = vectorize(square_root, 50, 56, 72, width=16, fuses=True)
    is_own = pipeline != "default"
    assert ("@llvm.sqrt.v16f32(<16 x float>" in ir_of(incomplete, pipeline)) == is_own
    assert ("load <16 x float>" in ir_of(across_rows, pipeline)) == is_own


def test_a_loop_that_tvm_cannot_partition_is_correct() -> None:
    def padded(source: te.Tensor) -> te.Tensor:
        return te.compute((77, 80), lambda i, j: tirx.if_then_else(j < 77, source[i, j], 0.0), name="computed")

    data = np.random.default_rng(0).standard_normal((77, 77)).astype("float32")
    found = result_of(vectorize(padded, 77, 77, width=8, fuses=True), data, (77, 80))
    np.testing.assert_array_equal(found, np.pad(data, [(0, 0), (0, 3)]))


def test_rows_of_a_triangle_do_not_write_into_each_other() -> None:
    def triangle(source: te.Tensor) -> te.Tensor:
        return te.compute((12, 7), lambda i, j: tirx.Select(i <= 6 - j, source[i, j], 0.0), name="computed")

    data = np.random.default_rng(0).standard_normal((12, 7)).astype("float32")
    found = result_of(vectorize(triangle, 12, 7, width=4), data, (12, 7))
    np.testing.assert_array_equal(found, np.where(np.add.outer(np.arange(12), np.arange(7)) <= 6, data, 0))


@pytest.mark.parametrize("size", [1, 3, 8, 17, 30, 40])
def test_small_sizes_of_a_range_do_not_write_outside_of_their_buffer(size: int) -> None:
    def shortened(source: te.Tensor) -> te.Tensor:
        kept = extent - 20
        return te.compute((3, extent), lambda i, j: tirx.if_then_else(j < kept, source[i, j], 0.0), name="computed")

    extent = tirx.Var("n", "int64")
    data = np.random.default_rng(0).standard_normal((3, size)).astype("float32")
    found = result_of(vectorize(shortened, 3, extent, width=8), data, (3, size))
    np.testing.assert_array_equal(found, np.where(np.arange(size) < size - 20, data, 0))


def test_repeated_pairs_after_padding_are_read_correctly() -> None:
    def repeated(source: te.Tensor) -> te.Tensor:
        return te.compute((21,), lambda i: tirx.if_then_else(i < 1, 0.0, source[(i - 1) % 20 // 2]), name="computed")

    data = np.arange(10, dtype="float32")
    found = result_of(vectorize(repeated, 10, width=16), data, (21,))
    np.testing.assert_array_equal(found, [0, *np.repeat(data, 2)])


def result_of(func: tirx.PrimFunc, data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    library = tvm.compile(
        tvm.IRModule({"main": func}), llvm_target(DESCRIPTION), tir_pipeline=TARGET.compiler_pipeline()
    )
    result = tvm.runtime.tensor(np.empty(shape, "float32"))
    library["main"](tvm.runtime.tensor(data), result)
    return result.numpy()


def test_rounding_is_vectorized() -> None:
    def rounded(source: te.Tensor) -> te.Tensor:
        return te.compute(source.shape, lambda i: tirx.nearbyint(source[i]), name="computed")

    func = vectorize(rounded, 64, width=16)
    assert "<16 x float> @llvm.nearbyint" in ir_of(func, TARGET.compiler_pipeline())


def rows_of_chunks(rows: int, threads: int) -> list[int]:
    """Return the number of rows in each chunk of a lowered parallel loop over rows."""
    source = te.placeholder((rows, 3), "float32", name="source")
    sch = s_tir.Schedule(te.create_prim_func([source, te.compute(source.shape, lambda *i: source(*i), name="copy")]))
    sch.parallel(sch.get_loops(sch.get_sblock("copy"))[0])
    target = tvm.target.Target({"kind": "llvm", "num-cores": threads})
    module = tvm.IRModule({"main": sch.mod["main"].with_attr("global_symbol", "main")})
    lower, *_ = passes()
    with target:
        func = lower(tirx.transform.BindTarget(target.with_host(target))(module))["main"]
    (shared,) = (loop for loop in collect(func.body, tirx.For) if loop.kind == tirx.ForKind.PARALLEL)
    if int(shared.extent) == rows:
        return [1] * rows
    count = next(loop for loop in collect(shared.body, tirx.For) if not isinstance(loop.extent, tirx.IntImm)).extent
    (chunk,) = collect(count, tirx.Var)[:1]
    counted = (with_values(count, {chunk: tirx.IntImm("int32", at)}) for at in range(8))
    return [int(tvm.sym.Analyzer().simplify(each)) for each in counted]


@pytest.mark.parametrize("rows", [9, 10, 14, 20, 28, 100])
def test_two_threads_compute_the_same_number_of_rows(rows: int) -> None:
    chunks = rows_of_chunks(rows, 2)
    assert len(chunks) == 2 * CHUNKS_PER_THREAD
    first, second = sum(chunks[:CHUNKS_PER_THREAD]), sum(chunks[CHUNKS_PER_THREAD:])
    assert first + second == rows
    assert abs(first - second) <= rows % 2


@pytest.mark.parametrize("rows", [5, 8, 56])
def test_loops_with_even_chunks_are_not_split(rows: int) -> None:
    assert rows_of_chunks(rows, 2) == [1] * rows
