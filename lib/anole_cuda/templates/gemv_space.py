"""The space of a dense layer with few rows on CUDA: knobs, loop nest and speed model; needs no compiler.

Reading the weights limits the speed of such a layer. The nest, outermost first: blocks; threads along features and
along the reduction; the outer reduction, where in each step a thread reads adjacent weights of a few features and
multiplies them with its rows. Finally, the threads along the reduction add their partial sums.
"""

from __future__ import annotations

from functools import cache
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from anole.space import Constraint, Space, split_knob
from anole.space.loops import Annotation, Buffer, Loop, LoopNest
from anole.space.space import Columns
from anole.task import Dense, Workload
from anole_cuda.device.architecture import BlockLimits
from anole_cuda.device.gpu_specs import GpuSpecs
from anole_cuda.templates import tiling
from anole_cuda.templates.roofline import Kernel, sectors, speed, widths
from anole_cuda.templates.usage import FLOAT_BYTES, Counts, Usage, limited_space, shared_bytes

_MAX_ROWS = 31
"""With more rows, staging the weights pays off; AutoTVM has the same limit."""

_STEP_INSTRUCTIONS, _MAX_STEPS_IN_FLIGHT = 4, 4
"""Instructions per step of the outer reduction, and maximum number of its steps in flight."""


def has_few_rows(w: Workload) -> TypeGuard[Dense]:
    """Whether a workload is a dense layer with few rows."""
    return isinstance(w, Dense) and w.batch <= _MAX_ROWS


@cache
def gemv_space(limits: BlockLimits, gpu: GpuSpecs, w: Dense) -> Space:
    """Return the space of a dense layer with few rows.

    Knobs: ``tile_y`` splits the rows into (block, inner), ``tile_x`` the features into (block, thread, inner),
    ``tile_k`` the reduction into (outer, thread, inner); ``auto_unroll_max_step`` and ``unroll_explicit`` as for
    convolutions.
    """
    knobs = [
        split_knob("tile_y", w.batch, 2, agent="spatial"),
        split_knob("tile_x", w.out_features, 3, agent="spatial"),
        split_knob("tile_k", w.in_features, 3, agent="reduction"),
        *tiling.unroll_knobs(),
    ]
    synchronized = Constraint(
        "the last warp adds up partial sums without waiting for its lanes",
        lambda columns: _waits(columns, limits.warp_size),
        hard=True,
    )
    return limited_space(
        limits,
        knobs,
        _usage,
        lambda columns: _nest(w, columns),
        lambda columns: speed(gpu, gemv_kernel(gpu, w, columns)),
        [synchronized],
    )


def _waits(columns: Columns, warp: int) -> NDArray[np.bool_]:
    """Whether threads that share a reduction synchronize in all of its steps, shape (n,).

    TVM lowers a reduction across entire warps, or within a single one, to warp shuffles, and others to a tree in shared
    memory. If a block has only one tree, its last steps rely on the lanes of a warp running in lockstep, which no GPU
    since Volta guarantees.
    """
    features, k = columns["tile_x"][:, 1], columns["tile_k"][:, 1]
    return np.asarray((features > 1) | (k <= warp) | (k % warp == 0))


def gemv_kernel(gpu: GpuSpecs, w: Dense, columns: Columns) -> Kernel:
    """Return the modeled kernels of n configs."""
    y, x, k = columns["tile_y"], columns["tile_x"], columns["tile_k"]
    usage, rows, features = _usage(columns), y[:, 1], x[:, 2]
    sums, body = rows * features, rows * features * k[:, 2]
    loads, run = (rows + features) / widths(k[:, 2]) * k[:, 2], k[:, 1] * k[:, 2]
    # Threads add their partial sums, half of them in each step.
    additions = sums * np.ceil(np.log2(k[:, 1]))
    in_flight = np.clip(columns["auto_unroll_max_step"] // body, 1, _MAX_STEPS_IN_FLIGHT)
    n_sectors = sectors((features * x[:, 1] + rows) * w.in_features, run) + sectors(rows * features * x[:, 1], features)
    fresh = FLOAT_BYTES * (w.batch * (w.in_features + w.out_features) + w.in_features * w.out_features)
    # Fitted to the assembler's register counts, like `estimate_registers` of staged kernels.
    needed = 30 + sums + np.minimum((rows + features) * k[:, 2], 64) // 4
    available = np.minimum(needed, gpu.max_registers(usage.threads))
    return Kernel(
        blocks=usage.blocks,
        threads=usage.threads,
        registers=available,
        shared_bytes=usage.shared_bytes,
        multiply_adds=np.asarray(k[:, 0] * body, dtype=np.float64),
        independent=sums,
        instructions=k[:, 0] * (loads + _STEP_INSTRUCTIONS) + 2.0 * additions,
        shared_cycles=additions,
        shared_waits=additions,
        sectors=n_sectors,
        stages=np.ceil(k[:, 0] / in_flight) + 1.0,
        fresh_bytes=fresh * np.ones(len(run)),
        reused_bytes=FLOAT_BYTES * w.batch * w.in_features * np.ones(len(run)),
    )


def _usage(columns: Columns) -> Usage:
    y, x, k = columns["tile_y"], columns["tile_x"], columns["tile_k"]
    threads, ones = x[:, 1] * k[:, 1], np.ones_like(y[:, 0])
    return Usage(
        threads=threads,
        threads_z=ones,
        virtual_threads=ones,
        shared_bytes=np.where(k[:, 1] > 1, shared_bytes(threads), 0),
        registers=_values(columns) + tiling.ADDRESSING,
        grid_x=y[:, 0],
        grid_y=x[:, 0],
    )


def _values(columns: Columns) -> Counts:
    """Return the number of values in a thread's registers: its accumulators, and the operands of one step."""
    rows, features = columns["tile_y"][:, 1], columns["tile_x"][:, 2]
    return np.asarray(rows * features + (rows + features) * columns["tile_k"][:, 2])


def _nest(w: Dense, columns: Columns) -> LoopNest:
    y, x, k = columns["tile_y"], columns["tile_x"], columns["tile_k"]
    body = [("k_inner", "k", k[:, 2]), ("y_inner", "y", y[:, 1]), ("x_inner", "x", x[:, 2])]
    loops = [
        ("y_block", "y", y[:, 0], Annotation.BLOCK_X),
        ("x_block", "x", x[:, 0], Annotation.BLOCK_Y),
        ("x_thread", "x", x[:, 1], Annotation.THREAD_Y),
        ("k_outer", "k", k[:, 0], Annotation.SERIAL),
        ("k_thread", "k", k[:, 1], Annotation.THREAD_X),
        *tiling.unroll_body(body, columns["auto_unroll_max_step"]),
    ]
    data = Buffer("data", (w.batch, w.in_features), ({"y": 1}, {"k": 1}))
    weight = Buffer("weight", (w.out_features, w.in_features), ({"x": 1}, {"k": 1}))
    out = Buffer("out", (w.batch, w.out_features), ({"y": 1}, {"x": 1}))
    return LoopNest(tuple(Loop(*loop[:3], level, loop[3]) for level, loop in enumerate(loops)), (data, weight, out))
