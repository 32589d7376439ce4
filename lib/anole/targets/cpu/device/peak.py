"""Measures what no kernel exceeds: the multiply-add rate on registers, and how fast all threads copy memory."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from anole.targets.cpu.device.builder import load
from anole.targets.cpu.device.runner import mean_s
from anole.targets.cpu.device.vector_unit import VectorUnit

_STEPS = 200_000

_FLOATS = 1 << 24
"""Approximate length of a copied array: 64 MiB, more than a processor's share of the last-level cache."""

_STREAMS = 4
"""Number of vectors that one step copies."""


def peak_gflops(description: Mapping[str, Any], seconds: float = 1.0) -> float:
    """Measures independent multiply-adds in registers on every thread: the best of many short bursts."""
    unit, threads = VectorUnit.of(description), int(description["threads"])
    # Twice the product of latency and pipes, but with room left for the two factors.
    n_accumulators = min(16, unit.registers - 4)
    kernel = load(_schedule(_define(threads, n_accumulators, unit.lanes)), description)
    factors = np.full((2, unit.lanes), 0.5, dtype=np.float32)
    out = np.empty((threads, n_accumulators, unit.lanes), dtype=np.float32)
    flop = 2 * threads * _STEPS * n_accumulators * unit.lanes
    return flop / _least_s(kernel, (factors, out), 5, seconds) / 1e9


def copy_bytes_per_s(description: Mapping[str, Any], seconds: float = 0.5) -> float:
    """Measures copies of an array by every thread: the best of many runs, each of which reads it and writes it once."""
    threads, step = int(description["threads"]), _STREAMS * VectorUnit.of(description).lanes
    floats = _FLOATS // (threads * step) * (threads * step)
    kernel = load(_copy(floats, threads, step), description)
    source, copy = np.ones(floats, dtype=np.float32), np.empty(floats, dtype=np.float32)
    return (source.nbytes + copy.nbytes) / _least_s(kernel, (source, copy), 1, seconds)


def _least_s(kernel: Any, arrays: Sequence[NDArray[np.float32]], number: int, seconds: float) -> float:
    """Returns the least mean time of a run in bursts of `number` runs, of which there is at least one."""
    arguments = repeat(tuple(map(tvm.runtime.tensor, arrays)))
    # In the first run the system maps the arrays' pages, which may take longer than all other runs together.
    mean_s(kernel, arguments, 1)
    ends_s, least_s = time.perf_counter() + seconds, mean_s(kernel, arguments, number)
    while time.perf_counter() < ends_s:
        least_s = min(least_s, mean_s(kernel, arguments, number))
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
