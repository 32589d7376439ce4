"""Measurement of a CPU's limits: the peak multiply-add rate on registers or tiles, and the copy bandwidth."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from anole.targets.cpu.device import tiles
from anole.targets.cpu.device.builder import load
from anole.targets.cpu.device.runner import mean_s
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.shared.packed_words import DOTS, product

_N_STEPS = 200_000

_SIZE = 16
"""Rows and columns, of 32 bits each, of an AMX tile."""

_PACKED_ONES = 0x3F803F80
"""Two bfloat16 ones; as 8-bit integers, arbitrary values."""

_N_TILE_STEPS = 1 << 14
"""Number of tile steps along the reduction in one run."""

_TILE_STEPS_PER_CALL = (16, 256)
"""Tile steps per call: 16 fit into the first-level cache but make calls short; 256 fit only into the second level."""

_N_COPIED_FLOATS = 1 << 24
"""Approximate length of a copied array: 64 MiB, more than a CPU's share of the last-level cache."""

_N_STREAMS = 4
"""Number of vectors copied in one step."""


def peak_gflops(description: Mapping[str, Any], dtype: str = "float32", seconds: float = 1.0) -> float:
    """Measure independent multiply-adds in registers or tiles on all threads: the best of many short bursts.

    `dtype` is the type of the operands; a dot product of packed words counts as one multiply-add per element.
    """
    calls = _TILE_STEPS_PER_CALL if dtype in VectorUnit.of(description).tile_types else ()
    tile_gflops = [_tiles_gflops(description, dtype, groups, seconds) for groups in calls]
    return max([_vectors_gflops(description, dtype, seconds), *tile_gflops])


def _vectors_gflops(description: Mapping[str, Any], dtype: str, seconds: float) -> float:
    unit, threads = VectorUnit.of(description), int(description["threads"])
    # Twice the product of latency and pipes, but leave registers for the two factors.
    n_accumulators = min(16, unit.registers - 4)
    kernel = load(_schedule(_define(threads, n_accumulators, unit.lanes, dtype)), description)
    factors = np.full((2, unit.lanes), 0.5, dtype=_accumulator_dtype(dtype))
    out = np.empty((threads, n_accumulators, unit.lanes), dtype=_accumulator_dtype(dtype))
    flop = 2 * threads * _N_STEPS * n_accumulators * unit.lanes * int(tvm.DataType(dtype).lanes)
    return flop / _min_s(kernel, (factors, out), 5, seconds) / 1e9


def _tiles_gflops(description: Mapping[str, Any], dtype: str, groups: int, seconds: float) -> float:
    threads = int(description["threads"])
    kernel = load(_multiply_tiles(threads, groups, dtype), description)
    data, weights = (
        np.full(shape, _PACKED_ONES, np.int32) for shape in ((2, _SIZE, _SIZE), (groups, _SIZE, 2 * _SIZE))
    )
    out = np.empty((threads, 2 * _SIZE, 2 * _SIZE), dtype=_accumulator_dtype(dtype))
    flop = 2 * threads * _N_TILE_STEPS * 4 * _SIZE**3 * int(tvm.DataType(dtype).lanes)
    return flop / _min_s(kernel, (data, weights, out), 5, seconds) / 1e9


def copy_bytes_per_s(description: Mapping[str, Any], seconds: float = 0.5) -> float:
    """Measure copies of an array by all threads: the best of many runs, counting both reads and writes."""
    threads, step = int(description["threads"]), _N_STREAMS * VectorUnit.of(description).lanes
    floats = _N_COPIED_FLOATS // (threads * step) * (threads * step)
    kernel = load(_copy(floats, threads, step), description)
    source, copy = np.ones(floats, dtype=np.float32), np.empty(floats, dtype=np.float32)
    return (source.nbytes + copy.nbytes) / _min_s(kernel, (source, copy), 1, seconds)


def _min_s(kernel: Any, arrays: Sequence[NDArray[Any]], number: int, seconds: float) -> float:
    """Return the minimum over bursts of `number` runs of the mean time of a run."""
    arguments = repeat(tuple(map(tvm.runtime.tensor, arrays)))
    # In the first run the system maps the arrays' pages, which may take longer than all other runs combined.
    mean_s(kernel, arguments, 1)
    end_s, min_s = time.perf_counter() + seconds, mean_s(kernel, arguments, number)
    while time.perf_counter() < end_s:
        min_s = min(min_s, mean_s(kernel, arguments, number))
    return min_s


def _accumulator_dtype(dtype: str) -> str:
    return DOTS[dtype][1] if dtype in DOTS else dtype


def _define(threads: int, n_accumulators: int, lanes: int, dtype: str) -> tirx.PrimFunc:
    factors = te.placeholder((2, lanes), _accumulator_dtype(dtype), name="factors")
    step = te.reduce_axis((0, _N_STEPS), "step")

    def as_operand(value: Any) -> Any:
        return tirx.reinterpret("int32", value) if dtype in DOTS else value

    # The reduction's combiner is acc = b + acc * a, which no compiler can simplify.
    horner = te.comm_reducer(
        lambda acc, addend: addend + product(dtype, as_operand(acc), as_operand(factors[0, 0])),
        lambda _: tirx.const(1, _accumulator_dtype(dtype)),
        name="horner",
    )
    out = te.compute(
        (threads, n_accumulators, lanes), lambda t, i, lane: horner(factors[1, lane], axis=step), name="peak"
    )
    return te.create_prim_func([factors, out])


def _multiply_tiles(threads: int, groups: int, dtype: str) -> tirx.PrimFunc:
    """Return a function in which every thread repeatedly multiplies two tiles of data with tiles of weights."""
    data = te.placeholder((2, _SIZE, _SIZE), "int32", name="data")
    weights = te.placeholder((groups, _SIZE, 2 * _SIZE), "int32", name="weights")

    def body(inputs: Sequence[Any], outputs: Sequence[Any]) -> tirx.Stmt:
        (left, right), (products,) = inputs, outputs
        thread, call, end = tirx.Var("thread", "int32"), tirx.Var("call", "int32"), 2 * _SIZE - 1
        # All steps multiply the same data, as if they were taps at distance 0.
        sizes = [_SIZE, 2 * _SIZE, _SIZE, _SIZE, _SIZE**2, groups, 0, 1, 0, 1, _SIZE, 2 * _SIZE]
        first = [(products, [thread, 0, 0]), (left, [0, 0, 0]), (right, [0, 0, 0])]
        last = [(products, [thread, end, end]), (left, [1, _SIZE - 1, _SIZE - 1])]
        calls = tirx.For(call, 0, _N_TILE_STEPS // groups, tirx.ForKind.SERIAL, tiles.multiply(first, last, sizes))
        return tirx.For(thread, 0, threads, tirx.ForKind.PARALLEL, tirx.SeqStmt([calls, tiles.release()]))

    shape = (threads, 2 * _SIZE, 2 * _SIZE)
    out = te.extern([shape], [data, weights], body, name="tiles", dtype=_accumulator_dtype(dtype))
    return te.create_prim_func([data, weights, out])


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
