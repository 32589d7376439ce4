"""Measures what no kernel exceeds: the multiply-add rates on registers, and how fast all threads copy memory."""

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
from anole.targets.shared.words import DOTS, product

_STEPS = 200_000

_FLOATS = 1 << 24
"""Approximate length of a copied array: 64 MiB, more than a processor's share of the last-level cache."""

_STREAMS = 4
"""Number of vectors that one step copies."""


def peak_gflops(description: Mapping[str, Any], dtype: str = "float32", seconds: float = 1.0) -> float:
    """Measures independent multiply-adds in registers on every thread: the best of many short bursts.

    Args:
        description: the processor's, as a target.
        dtype: what is multiplied, numbers or words; a dot product of words is a multiply-add for each number of them.
        seconds: how long to measure.
    """
    unit, threads = VectorUnit.of(description), int(description["threads"])
    # Twice the product of latency and pipes, but with room left for the two factors.
    n_accumulators = min(16, unit.registers - 4)
    kernel = load(_schedule(_define(threads, n_accumulators, unit.lanes, dtype)), description)
    factors = np.full((2, unit.lanes), 0.5, dtype=_sum_dtype(dtype))
    out = np.empty((threads, n_accumulators, unit.lanes), dtype=_sum_dtype(dtype))
    flop = 2 * threads * _STEPS * n_accumulators * unit.lanes * int(tvm.DataType(dtype).lanes)
    return flop / _least_s(kernel, (factors, out), 5, seconds) / 1e9


def copy_bytes_per_s(description: Mapping[str, Any], seconds: float = 0.5) -> float:
    """Measures copies of an array by every thread: the best of many runs, each of which reads it and writes it once."""
    threads, step = int(description["threads"]), _STREAMS * VectorUnit.of(description).lanes
    floats = _FLOATS // (threads * step) * (threads * step)
    kernel = load(_copy(floats, threads, step), description)
    source, copy = np.ones(floats, dtype=np.float32), np.empty(floats, dtype=np.float32)
    return (source.nbytes + copy.nbytes) / _least_s(kernel, (source, copy), 1, seconds)


def _least_s(kernel: Any, arrays: Sequence[NDArray[Any]], number: int, seconds: float) -> float:
    """Returns the least mean time of a run in bursts of `number` runs, of which there is at least one."""
    arguments = repeat(tuple(map(tvm.runtime.tensor, arrays)))
    # In the first run the system maps the arrays' pages, which may take longer than all other runs together.
    mean_s(kernel, arguments, 1)
    ends_s, least_s = time.perf_counter() + seconds, mean_s(kernel, arguments, number)
    while time.perf_counter() < ends_s:
        least_s = min(least_s, mean_s(kernel, arguments, number))
    return least_s


def _sum_dtype(dtype: str) -> str:
    return DOTS[dtype][1] if dtype in DOTS else dtype


def _define(threads: int, n_accumulators: int, lanes: int, dtype: str) -> tirx.PrimFunc:
    factors = te.placeholder((2, lanes), _sum_dtype(dtype), name="factors")
    step = te.reduce_axis((0, _STEPS), "step")

    def multiplied(value: Any) -> Any:
        return tirx.reinterpret("int32", value) if dtype in DOTS else value

    # The reduction's combiner is acc = b + acc * a, which no compiler can shorten.
    horner = te.comm_reducer(
        lambda acc, addend: addend + product(dtype, multiplied(acc), multiplied(factors[0, 0])),
        lambda _: tirx.const(1, _sum_dtype(dtype)),
        name="horner",
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
