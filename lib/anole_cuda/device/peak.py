"""Measurement of a GPU's peak: its multiply-add rate when nothing else limits it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tvm
from tvm import rpc, s_tir, te, tirx

from anole.targets.shared.kernel import link
from anole_cuda.device.builder import compile_kernel
from anole_cuda.device.runner import find_gpu

_N_STEPS = 4096
_N_THREADS = 256
_N_ACCUMULATORS = 16
_BLOCKS_PER_MULTIPROCESSOR = 32
_N_BURSTS = 20


def peak_kernel(n_blocks: int) -> tirx.PrimFunc:
    """Return a scheduled kernel of independent multiply-adds in registers, whose blocks fill the multiprocessors."""
    sch = s_tir.Schedule(_define(n_blocks))
    block = sch.get_sblock("peak")
    accumulators = sch.cache_write(block, 0, "local")
    group, thread, accumulator, step = sch.get_loops(block)
    sch.bind(group, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    sch.reorder(step, accumulator)
    sch.reverse_compute_at(accumulators, thread)
    sch.unroll(accumulator)
    sch.unroll(sch.get_loops(accumulators)[-1])
    sch.decompose_reduction(block, step)
    return sch.mod["main"]


def peak_gflops(description: Mapping[str, Any]) -> float:
    """Measure the first visible GPU: the best of many short bursts.

    Raises:
        TargetError: there is no such GPU.
    """
    session = rpc.LocalSession()
    device = find_gpu(description["arch"], session)
    n_blocks = _BLOCKS_PER_MULTIPROCESSOR * int(device.multi_processor_count)
    with TemporaryDirectory(prefix="anole-") as folder:
        artifact = Path(folder) / "peak.so"
        compile_kernel(peak_kernel(n_blocks), description).export_library(str(artifact), fcompile=link)
        session.upload(str(artifact))
    library = session.load_module(artifact.name)
    factors = tvm.runtime.tensor(np.full((1 + _N_ACCUMULATORS, _N_THREADS), 0.5, dtype=np.float32), device)
    out = tvm.runtime.tensor(np.zeros((n_blocks, _N_THREADS, _N_ACCUMULATORS), dtype=np.float32), device)
    bursts = library.time_evaluator("main", device, number=5, repeat=_N_BURSTS)(factors, out)
    return flop(n_blocks) / float(bursts.min) / 1e9


def flop(n_blocks: int) -> int:
    """Return the floating-point operations of one execution of the kernel."""
    return 2 * n_blocks * _N_THREADS * _N_ACCUMULATORS * _N_STEPS


def _define(n_blocks: int) -> tirx.PrimFunc:
    factors = te.placeholder((1 + _N_ACCUMULATORS, _N_THREADS), "float32", name="factors")
    step = te.reduce_axis((0, _N_STEPS), "step")
    # The reduction's combiner is acc = acc * a + b with a different b in each step, which no compiler can simplify.
    horner = te.comm_reducer(
        lambda acc, addend: acc * factors[0, 0] + addend, lambda _: tirx.const(1, "float32"), name="horner"
    )
    out = te.compute(
        (n_blocks, _N_THREADS, _N_ACCUMULATORS),
        lambda group, thread, i: horner(factors[1 + i, thread], axis=step),
        name="peak",
    )
    return te.create_prim_func([factors, out])
