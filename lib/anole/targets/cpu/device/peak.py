"""Measures what no kernel exceeds: the multiply-add rate on registers, and how fast all threads copy memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm
from tvm import s_tir, te, tirx

from anole.targets.cpu.device.builder import load
from anole.targets.cpu.device.vector_unit import VectorUnit

_STEPS = 200_000

_FLOATS = 1 << 24
"""Approximate length of a copied array: 64 MiB, more than a processor's share of the last-level cache."""

_STREAMS = 4
"""Number of vectors that one step copies."""


class PeakKernel:
    """Independent multiply-adds in registers on every thread; runs in the current process."""

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
        return self.flop / _least_s(lambda: self(5), seconds) / 1e9


class CopyKernel:
    """Copies an array on every thread; runs in the current process."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        threads, step = int(description["threads"]), _STREAMS * VectorUnit.of(description).lanes
        floats = _FLOATS // (threads * step) * (threads * step)
        self.size_bytes = 2 * 4 * floats
        self._kernel = load(_copy(floats, threads, step), description)
        arrays = (np.ones(floats, dtype=np.float32), np.empty(floats, dtype=np.float32))
        self._arguments = tuple(map(tvm.runtime.tensor, arrays))

    def bytes_per_s(self, seconds: float = 0.5) -> float:
        """Returns the best rate of many runs; each counts the array once as read and once as written."""
        # In the first run the system maps the arrays' pages, which may take longer than all other runs together.
        self._kernel(*self._arguments)
        return self.size_bytes / _least_s(self._run_s, seconds)

    def _run_s(self) -> float:
        began_s = time.perf_counter()
        self._kernel(*self._arguments)
        return time.perf_counter() - began_s


def _least_s(measure_s: Callable[[], float], seconds: float) -> float:
    """Returns the least of what is measured for so many seconds, at least once."""
    ends_s, least_s = time.perf_counter() + seconds, measure_s()
    while time.perf_counter() < ends_s:
        least_s = min(least_s, measure_s())
    return least_s


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


def _copy(floats: int, threads: int, step: int) -> tirx.PrimFunc:
    source = te.placeholder((floats,), "float32", name="source")
    sch = s_tir.Schedule(te.create_prim_func([source, te.compute((floats,), lambda i: source[i], name="copy")]))
    (loop,) = sch.get_loops(sch.get_sblock("copy"))
    thread, _, vector = sch.split(loop, [threads, None, step])
    sch.parallel(thread)
    sch.vectorize(vector)
    return sch.mod["main"]
