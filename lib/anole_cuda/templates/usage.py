"""The resource usage of configs on a GPU, and constraints from the GPU's limits; needs no compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anole.space import Constraint, Knob, Space
from anole.space.space import Columns, Description
from anole_cuda.device.architecture import BlockLimits

FLOAT_BYTES = 4

VECTOR = 4
"""Maximum number of float32 values that one memory instruction moves."""

_ALIGNMENT_BYTES = 64
"""Alignment of every buffer that TVM allocates in shared memory."""

Counts = NDArray[np.int64]
"""One integer per config, shape (n,)."""


def shared_bytes(*buffers: Counts) -> Counts:
    """Return the bytes of shared memory of buffers, each aligned, with these numbers of float32 values."""
    aligned = [-(-FLOAT_BYTES * values // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES for values in buffers]
    return np.asarray(sum(aligned[:-1], FLOAT_BYTES * buffers[-1]))


@dataclass(frozen=True, eq=False)
class Usage:
    """The resources that n configs use.

    Attributes:
        threads: threads of one block.
        threads_z: threads of one block along ``threadIdx.z``.
        virtual_threads: virtual threads of one thread, the maximum over the axes.
        shared_bytes: shared memory of one block.
        registers: lower bound of one thread's registers: live accumulators and operands.
        grid_x: blocks along ``blockIdx.x``.
        grid_y: blocks along ``blockIdx.y``.
    """

    threads: Counts
    threads_z: Counts
    virtual_threads: Counts
    shared_bytes: Counts
    registers: Counts
    grid_x: Counts
    grid_y: Counts

    @property
    def blocks(self) -> Counts:
        """Blocks of the grid."""
        return self.grid_x * self.grid_y

    @property
    def block_registers(self) -> Counts:
        """Lower bound of the registers of a block."""
        return self.registers * self.threads


UsageOf = Callable[[Columns], Usage]
"""Maps the columns of n configs to their usage."""


def limited_space(
    limits: BlockLimits,
    knobs: Sequence[Knob],
    measure: UsageOf,
    describe: Callable[[Columns], Description],
    speed: Callable[[Columns], NDArray[np.float64]],
    extra: Sequence[Constraint] = (),
) -> Space:
    """Return the space of all configs within a device's limits whose warps have no unnecessarily idle lanes."""
    hard = [*limit_constraints(limits, measure), *extra]
    min_threads = min(limits.warp_size, _max_threads(knobs, hard, measure))
    lanes = Constraint(
        f"a block has fewer than {min_threads} threads, and a warp's lanes idle",
        lambda columns: np.asarray(measure(columns).threads >= min_threads),
    )
    core = {knob.name: knob.values for knob in _restrict_to_minimal(knobs)}
    return Space(knobs, [*hard, lanes], describe, merit=speed, core=core, merit_is_speed=True)


def limit_constraints(limits: BlockLimits, measure: UsageOf) -> list[Constraint]:
    """Return a constraint for each limit; its reason states the limit."""
    # Without enough registers, a kernel still runs: values are spilled to memory.
    hard, soft = True, False
    rows: list[tuple[str, int, bool, Callable[[Usage], Counts]]] = [
        ("a block has too many threads", limits.threads_per_block, hard, lambda usage: usage.threads),
        ("a block has too many threads along z", limits.threads_z, hard, lambda usage: usage.threads_z),
        ("too many bytes of shared memory", limits.shared_bytes_per_block, hard, lambda usage: usage.shared_bytes),
        ("too many registers of a thread", limits.registers_per_thread, soft, lambda usage: usage.registers),
        ("too many registers of a block", limits.registers_per_block, soft, lambda usage: usage.block_registers),
        ("too many virtual threads along an axis", limits.virtual_threads, soft, lambda usage: usage.virtual_threads),
        ("too many blocks along x", limits.grid_x, hard, lambda usage: usage.grid_x),
        ("too many blocks along y", limits.grid_y, hard, lambda usage: usage.grid_y),
    ]

    def max_constraint(violation: str, limit: int, is_hard: bool, count: Callable[[Usage], Counts]) -> Constraint:
        reason = f"{violation}; the limit is {limit}"
        return Constraint(reason, lambda columns: np.asarray(count(measure(columns)) <= limit), hard=is_hard)

    return [max_constraint(*row) for row in rows]


def _max_threads(knobs: Sequence[Knob], hard: Sequence[Constraint], measure: UsageOf) -> int:
    """Return the maximum number of threads of a block; a layer with small or prime extents may not fill a warp."""
    minimal = Space(_restrict_to_minimal(knobs), hard)
    if minimal.valid_indices is None or not len(minimal.valid_indices):
        return 1
    return int(measure(minimal.columns(minimal.vectors(minimal.valid_indices))).threads.max())


def _restrict_to_minimal(knobs: Sequence[Knob]) -> list[Knob]:
    """Restrict knobs to the splits with minimal usage: no virtual threads, one value per thread."""
    return [knob.restrict([value for value in knob.values if _is_minimal(knob, value)]) for knob in knobs]


def _is_minimal(knob: Knob, value: object) -> bool:
    if not isinstance(value, tuple):
        return bool(value == knob.values[0])
    if len(value) == 2:
        return bool(value[1] == 1)
    return bool(value[-1] == 1 and (len(value) < 4 or value[1] == 1))
