"""The common base of the CPU's spaces: tiles whose accumulators stay in vector registers, and chunks for threads.

All threads share a layer, unless waking another thread takes longer than the layer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from anole.space import Constraint
from anole.space.loops import Annotation, Ints
from anole.space.space import Columns
from anole.targets.cpu.device.vector_unit import FLOAT_BYTES, VectorUnit
from anole.targets.shared.reference import weight_shape
from anole.task import Workload

CACHE_BYTES = 1 << 20
"""Approximate size of one core's share of the second-level cache."""

CACHE_LINE_BYTES = 64

FMA_LATENCY_HIDDEN = 8
"""Independent multiply-adds in flight that keep two pipes of latency four busy."""

_ONE_VECTOR_COST, _SPILLED_COST, _MANY_VECTORS_COST = 0.12, 0.7, 0.05
"""Additional cost of a multiply-add, in multiply-adds, with scalars broadcast to registers: for one vector; for one
vector whose broadcasts and accumulators do not fit the registers; for more than two vectors. Fitted to 1,700 configs
of 22 convolutions on AVX2."""

_MIN_ROWS, _MAX_ROWS = 6, 16
"""Rows in registers: fewer need more loads than multiply-adds, and more do not fit together with a panel of weights."""

_MIN_FLOP, _MAX_WEIGHT_BYTES = 1 << 18, 1 << 17
"""Above either limit, all threads are used (they read large weights faster); below, the thread count is tuned."""

_CHUNKS_PER_THREAD = 4
_WAKING_COST = 8.0

Count = Callable[[Columns], "NDArray[np.int64] | int"]
"""Maps the columns of n configs to n integers, shape (n,), or to one common integer."""


Measure = Callable[[Columns], "NDArray[Any]"]
"""Maps the columns of n configs to n numbers or booleans, shape (n,)."""


@dataclass(frozen=True)
class RegisterTiles(ABC):
    """The register tiles of a workload; every method computes one value for each of n configs.

    Each vector of a panel, such as adjacent filters, is multiplied with several scalars, such as pixels. The last part
    of the knob named `panel` is a panel's width; `unfit` describes configs that do not `fit`.
    """

    unit: VectorUnit
    threads: int
    w: Any
    panel: ClassVar[str] = "tile_f"
    unfit: ClassVar[str] = "the accumulators do not fit the vector registers"

    def vectors(self, columns: Columns) -> NDArray[np.int64]:
        """Return the number of vector registers of a panel's row, shape (n,)."""
        return np.asarray(-(-columns[self.panel][:, 2] // self.unit.lanes))

    @abstractmethod
    def multipliers(self, columns: Columns) -> NDArray[np.int64]:
        """Return the number of scalars with which each vector of a panel is multiplied, shape (n,)."""

    def accumulators(self, columns: Columns) -> NDArray[np.int64]:
        """Return the number of vector registers that hold accumulators, shape (n,)."""
        return np.asarray(self.multipliers(columns) * self.vectors(columns))

    def broadcasting(self, columns: Columns) -> NDArray[np.float64]:
        """Return the additional cost of a multiply-add whose scalar needs a broadcast to a register, shape (n,).

        LLVM lets a product overwrite its broadcast scalar, so the accumulators of one vector move between registers.
        """
        vectors, scalars = self.vectors(columns), self.multipliers(columns)
        if self.unit.multiplies_scalars:
            return np.zeros(len(vectors))
        is_spilled = self.accumulators(columns) + scalars > self.unit.registers
        single_vector_cost = (vectors == 1) * (_ONE_VECTOR_COST + _SPILLED_COST * is_spilled)
        return np.asarray(single_vector_cost + _MANY_VECTORS_COST * (vectors > 2))

    @abstractmethod
    def chunks(self, columns: Columns) -> NDArray[np.int64]:
        """Return the number of parallel chunks, shape (n,)."""

    def fit(self, columns: Columns) -> NDArray[np.bool_]:
        """Whether accumulators, a row of a panel and one multiplier fit the vector registers, shape (n,)."""
        return np.asarray(self.accumulators(columns) + self.vectors(columns) + 1 <= self.unit.registers)

    def attainable(
        self, columns: Columns, valid: NDArray[np.bool_], more: Mapping[str, tuple[Measure, int]] | None = None
    ) -> dict[str, int]:
        """Return the numbers of chunks, accumulators and `more` that one valid config can attain, in order of priority.

        Each is capped at the required number; `more` maps names to a measure and the required number.
        """
        wanted = {"chunks": (self.chunks, self.threads), "accumulators": (self.accumulators, FMA_LATENCY_HIDDEN)}
        limits = {}
        for name, (measure, required) in {**wanted, **(more or {})}.items():
            values = measure(columns)
            limits[name] = min(required, int(values[valid].max()))
            valid = valid & (values >= limits[name])
        return limits

    def constraints(self, chunks: Count, accumulators: Count | None = None) -> list[Constraint]:
        """Return the constraints of all spaces: enough registers, and work for all pipes and threads.

        Args:
            chunks: the minimum number of chunks: enough for all threads, or as many as possible.
            accumulators: the minimum number of independent multiply-adds that hides their latency; None for no minimum.
        """
        fit = Constraint(self.unfit, self.fit)
        enough_chunks = Constraint(
            "fewer parallel chunks than threads", lambda columns: np.asarray(self.chunks(columns) >= chunks(columns))
        )
        if accumulators is None:
            return [fit, enough_chunks]
        enough_accumulators = Constraint(
            "too few accumulators to hide the latency of a multiply-add",
            lambda columns: np.asarray(self.accumulators(columns) >= accumulators(columns)),
        )
        return [fit, enough_accumulators, enough_chunks]


def unroll(columns: Columns, steps: Ints, extents: Mapping[str, Ints]) -> dict[str, NDArray[np.int64]]:
    """Return the annotations of reduction loops: unrolled while the body stays within ``auto_unroll_max_step``.

    `steps` are the vector operations of the register tile; `extents` has the innermost loop first. With
    ``unroll_explicit`` 0, unrolling is left to LLVM.
    """
    max_steps = columns["auto_unroll_max_step"] * columns.get("unroll_explicit", 1)
    annotations = {}
    for name, extent in extents.items():
        steps = steps * extent
        annotations[name] = np.where(steps <= max_steps, Annotation.UNROLLED, Annotation.SERIAL)
    return annotations


def covering(extent: int) -> int:
    """Round an extent, such as a number of rows, up to a multiple of a good register tile.

    The results of surplus rows are discarded: 197, a prime, is computed as 198, in tiles of 6, 9 or 11.
    """
    if extent <= _MAX_ROWS:
        return extent
    tile_sizes = range(_MIN_ROWS, _MAX_ROWS + 1)
    return next(n for n in range(extent, extent + _MIN_ROWS) if any(n % tile == 0 for tile in tile_sizes))


def is_small(w: Workload) -> bool:
    """Whether one thread may compute the entire layer."""
    weight_bytes = FLOAT_BYTES * prod(weight_shape(w)) if w.constant_weight else 0
    return w.flop < _MIN_FLOP and weight_bytes <= _MAX_WEIGHT_BYTES


def evenness(chunks: NDArray[np.int64], threads: int) -> NDArray[np.float64]:
    """Return the merit of numbers of chunks, shape (n,): threads finish together if each has a few chunks."""
    n_best = _CHUNKS_PER_THREAD * threads if threads > 1 else 1
    return np.asarray(1.0 * (chunks % threads == 0) - 0.25 * np.abs(np.log2(chunks / n_best)))


def waking(w: Workload, threads: int, chunks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the cost, in merit, of waking other threads, for numbers of chunks, shape (n,).

    One thread that does not share a large layer has no others to wake; see `is_small`.
    """
    return np.asarray(_WAKING_COST * ((chunks > 1) & (threads > 1 or is_small(w))))
