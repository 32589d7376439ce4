"""Measures the processor's peak: its multiply-add rate when nothing else limits it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import s_tir, te, tirx

from anole.targets.cpu.device.builder import load
from anole.targets.cpu.device.vector_unit import VectorUnit

_STEPS = 200_000


class PeakKernel:
    """Independent multiply-adds in registers on every thread; runs in the current process.

    Args:
        description: the target's description; its threads are used.
    """

    def __init__(self, description: Mapping[str, Any]) -> None:
        unit, threads = VectorUnit.of(description), int(description["threads"])
        # Twice the product of latency and pipes, but with room left for the two factors.
        n_accumulators = min(16, unit.registers - 4)
        self.flop = 2 * threads * _STEPS * n_accumulators * unit.lanes
        self._kernel = load(_schedule(_define(threads, n_accumulators, unit.lanes)), description)
        factors = np.full((2, unit.lanes), 0.5, dtype=np.float32)
        out = np.empty((threads, n_accumulators, unit.lanes), dtype=np.float32)
        self._arguments = (tvm.runtime.tensor(factors), tvm.runtime.tensor(out))

    def __call__(self, number: int) -> float:
        """Runs the kernel `number` times back to back and returns the mean seconds of one run."""
        began_s = time.perf_counter()
        for _ in range(number):
            self._kernel(*self._arguments)
        return (time.perf_counter() - began_s) / number

    def gflops(self, seconds: float = 1.0) -> float:
        """Returns the best rate of many short bursts, in GFLOP/s."""
        self(1)
        bursts_s: list[float] = []
        ends_s = time.perf_counter() + seconds
        while not bursts_s or time.perf_counter() < ends_s:
            bursts_s.append(self(5))
        return self.flop / min(bursts_s) / 1e9


def _define(threads: int, n_accumulators: int, lanes: int) -> tirx.PrimFunc:
    factors = te.placeholder((2, lanes), "float32", name="factors")
    step = te.reduce_axis((0, _STEPS), "step")
    # The reduction's combiner is acc = acc * a + b, which no compiler can shorten.
    horner = te.comm_reducer(
        lambda acc, addend: acc * factors[0, 0] + addend, lambda _: tirx.const(1, "float32"), name="horner"
    )
    out = te.compute(
        (threads, n_accumulators, lanes), lambda t, i, lane: horner(factors[1, lane], axis=step), name="peak"
    )
    return te.create_prim_func([factors, out])


def _schedule(func: tirx.PrimFunc) -> tirx.PrimFunc:
    sch = s_tir.Schedule(func)
    block = sch.get_sblock("peak")
    accumulators = sch.cache_write(block, 0, "global")
    thread, accumulator, lane, step = sch.get_loops(block)
    sch.reorder(thread, step, accumulator, lane)
    sch.reverse_compute_at(accumulators, thread)
    sch.parallel(thread)
    sch.unroll(accumulator)
    sch.vectorize(lane)
    row, column = sch.get_loops(accumulators)[-2:]
    sch.unroll(row)
    sch.vectorize(column)
    sch.decompose_reduction(block, step)
    return sch.mod["main"]
