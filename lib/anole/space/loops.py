"""Features of loop nests in closed form: AutoTVM's "itervar" features without lowering.

Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018), section 3.1. A template describes the nests
of n configs as arrays, so a few array operations compute the features of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = int | NDArray[np.int64]
"""One integer for all n configs, or an array with one integer for each, shape (n,)."""


class Annotation(IntEnum):
    """The kinds of loops, in the order of AutoTVM's one-hot encoding."""

    BLOCK_X = 0
    BLOCK_Y = 1
    BLOCK_Z = 2
    THREAD_X = 3
    THREAD_Y = 4
    THREAD_Z = 5
    UNROLLED = 6
    VECTORIZED = 7
    PARALLEL = 8
    SERIAL = 9
    VIRTUAL_THREAD = 10


@dataclass(frozen=True, eq=False)
class Loop:
    """A loop over an axis or over a part of one.

    Attributes:
        name: its name within the nest; it determines the loop's columns, independently of the loop's level.
        axis: the axis that it iterates over; the parts of a split axis are listed, and nested, outermost first.
        extent: number of iterations.
        level: position in the nest; a loop with a lower level is further out. Any distinct integers are valid.
        annotation: an `Annotation`, or its number for each config. A fused loop is described by the original loops,
            each with its annotation.
    """

    name: str
    axis: str
    extent: Ints
    level: Ints
    annotation: Ints = Annotation.SERIAL


@dataclass(frozen=True, eq=False)
class Buffer:
    """A buffer that the innermost body accesses once.

    Attributes:
        shape: extents of its dimensions, outermost first.
        index: for every dimension, the axes whose sum is its index, with their coefficients:
            ``{"y": stride, "ry": dilation}``. An axis occurs in one dimension only.
    """

    name: str
    shape: tuple[Ints, ...]
    index: tuple[Mapping[str, Ints], ...]


@dataclass(frozen=True, eq=False)
class LoopNest:
    """A perfect loop nest and the buffers it accesses, for n configs.

    The length of the arrays in its loops is n; at least one loop must hold an array.
    """

    loops: tuple[Loop, ...]
    buffers: tuple[Buffer, ...]

    @property
    def feature_names(self) -> list[str]:
        """The name of every column of `features`."""
        per_loop = ["length", "nest_level", "topdown", "bottomup"]
        per_loop += [f"{buffer.name}.{feature}" for buffer in self.buffers for feature in ("stride", "count", "reuse")]
        per_loop += [annotation.name.lower() for annotation in Annotation]
        return [f"{loop.name}.{feature}" for loop in self.loops for feature in per_loop]

    def features(self) -> NDArray[np.float32]:
        """Return the loop features, shape (n, n_features), in the order of `feature_names`.

        The features of each loop are: its length; its nest level, 1 for the outermost; the iterations of all
        loops down to it (topdown) and from it to the innermost (bottomup); for every buffer, the stride in elements,
        the distinct elements accessed from the loop inwards (count) and how often each of them is accessed (reuse);
        and its annotation, one-hot. All except the nest level and the annotation are given as log2(x + 1).

        AutoTVM multiplies the lengths of all loops that move a buffer's index, which counts the overlap of
        neighboring windows of a convolution several times; here an element counts once. AutoTVM's columns that do not
        depend on the schedule (numbers of additions, multiplications, divisions) and redundant columns are omitted.
        """
        extents, levels = self._extents, self._levels
        inside = levels[None] >= levels[:, None]
        bottomup = _products(extents, inside)
        topdown = extents.prod(axis=0) // bottomup * extents
        columns: list[NDArray[Any]] = [extents, inside.sum(axis=0), topdown, bottomup]
        for buffer, count in zip(self.buffers, self._counts(inside), strict=True):
            columns += [self._strides(buffer, extents), count, bottomup / count]
        numeric = np.stack(np.broadcast_arrays(*columns)).astype(np.float32)
        nest_level = numeric[1].copy()
        np.log2(numeric + 1, out=numeric)
        numeric[1] = nest_level
        one_hot = np.eye(len(Annotation), dtype=np.float32)
        annotations = one_hot[_stack([loop.annotation for loop in self.loops])]
        n_configs = max(numeric.shape[2], annotations.shape[1])
        features = np.empty((n_configs, len(self.loops), len(columns) + len(Annotation)), dtype=np.float32)
        features[:, :, : len(columns)] = numeric.transpose(2, 1, 0)
        features[:, :, len(columns) :] = annotations.transpose(1, 0, 2)
        return features.reshape(n_configs, -1)

    def loads(self, capacity: int) -> dict[str, NDArray[np.int64]]:
        """Return the total number of elements that a cache loads, by buffer name, shape (n,) or (1,).

        If all elements that one iteration of a loop accesses fit into the cache, they are still cached in the next one.
        The outermost such loop therefore loads every element that it accesses once each time it begins. The capacity
        must suffice for one element of each buffer.
        """
        extents, levels = self._extents, self._levels
        inside, within = levels[None] >= levels[:, None], levels[None] > levels[:, None]
        begin_counts = extents.prod(axis=0) // _products(extents, inside)
        fits = sum(self._counts(within)) <= capacity
        outermost = np.where(fits, levels, levels.max(axis=0) + 1).argmin(axis=0)
        return {
            buffer.name: np.choose(outermost, begin_counts * count)
            for buffer, count in zip(self.buffers, self._counts(inside), strict=True)
        }

    @cached_property
    def _extents(self) -> NDArray[np.int64]:
        """Extents of all loops, shape (n_loops, n) or (n_loops, 1)."""
        return _stack([loop.extent for loop in self.loops])

    @cached_property
    def _levels(self) -> NDArray[np.int64]:
        """Levels of all loops, shape (n_loops, n) or (n_loops, 1)."""
        return _stack([loop.level for loop in self.loops])

    def _counts(self, inside: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
        """Return for every buffer the number of distinct elements accessed inside each loop, shape (n_loops, n).

        `inside` is the mask of the loops (second axis) that count as inside another (first axis).
        """
        extents, steps = self._extents, _products(self._extents, inside)
        ranges = {axis: _products(extents[parts], inside[:, parts]) for axis, parts in self._parts.items()}
        return [np.minimum(_distinct(buffer, ranges), steps) for buffer in self.buffers]

    @cached_property
    def _parts(self) -> dict[str, list[int]]:
        """The indices of each axis's parts in `loops`, outermost first."""
        axes = {loop.axis: None for loop in self.loops}
        return {axis: [index for index, loop in enumerate(self.loops) if loop.axis == axis] for axis in axes}

    def _strides(self, buffer: Buffer, extents: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the stride of each loop in elements of a buffer, shape (n_loops, n)."""
        strides: list[Ints] = [0] * len(self.loops)
        row: Ints = 1
        for length, terms in zip(reversed(buffer.shape), reversed(buffer.index), strict=True):
            for axis, coefficient in terms.items():
                step = coefficient * row
                for position in reversed(self._parts[axis]):
                    strides[position] = step
                    step = step * extents[position]
            row = row * length
        return _stack(strides)


def _stack(rows: Sequence[Ints]) -> NDArray[np.int64]:
    """Stack one row for each loop, shape (n_loops, n), or (n_loops, 1) if no row is an array."""
    n_configs = max((row.size for row in rows if isinstance(row, np.ndarray)), default=1)
    stacked = np.empty((len(rows), n_configs), dtype=np.int64)
    for position, row in enumerate(rows):
        stacked[position] = row
    return stacked


def _products(extents: NDArray[np.int64], inside: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the product of the extents of the loops inside each loop, shape (n_loops, n)."""
    return np.asarray(np.where(inside, extents, 1).prod(axis=1), dtype=np.int64)


def _distinct(buffer: Buffer, ranges: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the number of distinct elements accessed from each loop inwards, shape (n_loops, n)."""
    dimensions = [
        _distinct_sums([(coefficient, ranges[axis]) for axis, coefficient in terms.items()]) for terms in buffer.index
    ]
    return np.asarray(reduce(np.multiply, dimensions))


def _distinct_sums(terms: list[tuple[Ints, NDArray[np.int64]]]) -> NDArray[np.int64]:
    """Return the number of distinct values of a sum of coefficient * i, where each i runs over its own range.

    The count is exact for up to two terms: with coprime coefficients p and q, only the pairs (i, j) and
    (i + q, j - p) have the same sum, so there are as many sums as pairs without such a predecessor. For more
    terms it is an upper bound: the smaller of the number of combinations and the span.
    """
    if len(terms) == 2:
        (p, i_range), (q, j_range) = terms
        shared = np.gcd(p, q)
        i_repeats, j_repeats = i_range - q // shared, j_range - p // shared
        return np.asarray(i_range * j_range - np.maximum(i_repeats, 0) * np.maximum(j_repeats, 0))
    combinations: NDArray[np.int64] = np.ones(1, dtype=np.int64)
    span: Ints = 1
    for coefficient, extent in terms:
        combinations = combinations * extent
        span = span + coefficient * (extent - 1)
    return combinations if len(terms) < 2 else np.minimum(combinations, span)
