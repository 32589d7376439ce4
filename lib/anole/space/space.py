"""The search space of a task: knobs, constraints, features and analytical scores, with sampling and enumeration."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anole.errors import ConfigError
from anole.record import Config
from anole.space.encoding import Columns as Columns
from anole.space.encoding import Encoding, select_rows
from anole.space.encoding import Vectors as Vectors
from anole.space.knob import ALGORITHM, Knob

_MAX_ENUMERABLE = 1 << 20

_ENUMERATION_BATCH = 1 << 17
"""Number of configs in each batch of an enumeration, which limits memory."""

_N_CONSIDERED = 1 << 12
"""Number of configs that are sampled to find those with the highest merit."""

_SAMPLE_BATCH, _BALANCED_SAMPLE_BATCH = 1 << 10, 1 << 14
"""Number of indices per sampled batch: few may be valid, and fewer still may have a balanced knob's rarest value."""


@dataclass(frozen=True)
class Constraint:
    """A condition that every valid config satisfies.

    Attributes:
        reason: why a config that violates it is rejected.
        holds: maps the columns of n configs to bool, shape (n,).
        algorithm: the algorithm whose configs it applies to; None for all.
        hard: whether a config that violates it cannot run; otherwise it is only expected to be slow.
    """

    reason: str
    holds: Callable[[Columns], NDArray[np.bool_]]
    algorithm: str | None = None
    hard: bool = False

    def holds_for(self, columns: Columns) -> NDArray[np.bool_]:
        """Return the mask of the configs that satisfy it or that it does not apply to, shape (n,)."""
        if self.algorithm is None:
            return self.holds(columns)
        applies = columns[ALGORITHM] == self.algorithm
        mask = ~applies
        mask[applies] = self.holds(select_rows(columns, applies))
        return np.asarray(mask)


class Description(Protocol):
    """A description of n configs for the surrogate, such as their loop nests."""

    @property
    def feature_names(self) -> Sequence[str]:
        """The names of the columns; equal names mean the same in the spaces of other tasks."""

    def features(self) -> NDArray[np.float32]:
        """Return one row for each config."""


Figures = Callable[[Columns], NDArray[np.float64]]
"""Maps the columns of n configs to one value per config, shape (n,)."""

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""Multiplier for Fibonacci hashing, 2^64 over the golden ratio (Knuth, volume 3, section 6.4)."""


@dataclass(eq=False, repr=False)
class Space(Encoding):
    """The knobs of a task, with constraints, features and analytical scores of their configs.

    Attributes:
        constraints: a config that violates one of them is rejected before it is built.
        describe: optional; maps the columns of n configs to features in addition to the knobs' own.
        discount: optional; a factor on the speed of each config, at most 1, for its cost other than time.
        merit: optional; an analytical estimate of the speed of each config. Any scale is valid, and each algorithm may
            use its own.
        core: optional; for some knobs, the values that are most likely to satisfy the constraints. `best_sampled` finds
            valid configs among these if they are rare elsewhere.
        toll: optional; subtracted from the speed of each config for its cost, in executions per second (`worths`).
        merit_is_speed: whether the merit is proportional to speed * worth, with the same factor for all algorithms,
            which lets a surrogate start from it.
        programs: optional; maps the columns of n configs that can run to rows, shape (n, n_figures), that are equal
            for equal programs. A search tries only one config of each program.
        shared: the names of the knobs whose values all layers of a network have in common, such as an accelerator's.
        is_enumerated: whether to sample from all valid configs even if the space is large.
    """

    constraints: Sequence[Constraint] = ()
    describe: Callable[[Columns], Description] | None = None
    discount: Figures | None = None
    merit: Figures | None = None
    core: Mapping[str, Sequence[Any]] | None = None
    toll: Figures | None = None
    merit_is_speed: bool = False
    programs: Callable[[Columns], NDArray[np.int64]] | None = None
    shared: Sequence[str] = ()
    is_enumerated: bool = False
    _all_valid: NDArray[np.bool_] | None = field(default=None, init=False)
    """The mask of valid indices, shape (size,), once `all_valid_indices` has enumerated the space."""
    _all_identities: NDArray[np.int64] | None = field(default=None, init=False)
    """The identities of valid indices, shape (size,), once `all_identities` has enumerated them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.constraints = tuple(self.constraints)
        self.merit_is_speed = self.merit_is_speed and self.merit is not None

    def restrict(self, values: Mapping[str, Sequence[Any]]) -> Space:
        """Return the subspace in which some knobs are limited to the given values, without a core.

        Raises:
            ConfigError: the space has no such knob, or the knob has no such value.
        """
        names = {knob.name for knob in self.knobs}
        if unknown := sorted(set(values) - names):
            raise ConfigError(f"the space has no knobs {unknown}; it has {sorted(names)}")
        knobs = [knob.restrict(values[knob.name]) if knob.name in values else knob for knob in self.knobs]
        return replace(self, knobs=knobs, core=None)

    def to_open(self, wider: Sequence[Knob] = (), describe: Callable[[Columns], Description] | None = None) -> Space:
        """Return the space without its prior knowledge: without constraints, merit, core and programs.

        Discount and toll stay, since they are part of the objective. Knobs in `wider` replace the knobs with the same
        names; `describe` then computes the same features for their configs.
        """
        replacing = {knob.name: knob for knob in wider}
        knobs = [replacing.get(knob.name, knob) for knob in self.knobs]
        description = describe or self.describe
        return replace(self, knobs=knobs, constraints=(), describe=description, merit=None, core=None, programs=None)

    def identities(self, vectors: Vectors) -> NDArray[np.int64]:
        """Return an integer for each valid index vector, equal for equal programs, shape (n,)."""
        if self.programs is None:
            return self.indices(vectors)
        if self._all_identities is not None:
            return self._all_identities[self.indices(vectors)]
        code = np.zeros(len(vectors), dtype=np.uint64)
        for figures in self.programs(self.columns(vectors)).T:
            code = (code ^ figures.astype(np.uint64)) * _MULTIPLIER
            code ^= code >> np.uint64(32)
        return code.view(np.int64)

    def valid(self, vectors: Vectors) -> NDArray[np.bool_]:
        """Return the mask of the index vectors that satisfy every constraint, shape (n,)."""
        if self._all_valid is not None:
            return self._all_valid[self.indices(vectors)]
        return self._check(vectors)

    def rejection(self, config: Config) -> str | None:
        """Return the reason a config is invalid, or None if it is valid."""
        return self._first_violation(config, self.constraints)

    def refusal(self, config: Config) -> str | None:
        """Return the reason a config cannot run, or None if it may run, valid or not."""
        return self._first_violation(config, [constraint for constraint in self.constraints if constraint.hard])

    def _first_violation(self, config: Config, constraints: Sequence[Constraint]) -> str | None:
        columns = self.columns(self.vectors_of([config]))
        return next((constraint.reason for constraint in constraints if not constraint.holds_for(columns)[0]), None)

    def rejections(self, vectors: Vectors) -> dict[str, int]:
        """Return, by reason, the number of index vectors that each constraint is the first to reject."""
        columns, accepted = self.columns(vectors), np.ones(len(vectors), dtype=bool)
        counts: dict[str, int] = {}
        for constraint in self.constraints:
            violated = accepted & ~constraint.holds_for(columns)
            counts[constraint.reason] = counts.get(constraint.reason, 0) + int(violated.sum())
            accepted &= ~violated
        return {reason: count for reason, count in counts.items() if count}

    def discounts(self, vectors: Vectors) -> NDArray[np.float64]:
        """Return the discount of each config, shape (n,): 1 if the space has none."""
        return np.ones(len(vectors)) if self.discount is None else self.discount(self.columns(vectors))

    def worths(self, vectors: Vectors, latencies_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the factor on the speed of each config, given its latency, shape (n,); clamped at 0.

        This is discount - toll * latency. A failure's latency is NaN.
        """
        if self.toll is None:
            return self.discounts(vectors)
        return np.maximum(0.0, self.discounts(vectors) - self.toll(self.columns(vectors)) * latencies_s)

    def worth(self, config: Config, latency_s: float = 0.0) -> float:
        """Return the factor on the speed of one config, given its latency, as `worths` does for several."""
        if self.discount is None and self.toll is None:
            return 1.0
        return float(self.worths(self.vectors_of([config]), np.array([latency_s]))[0])

    def merit_of(self, config: Config) -> float:
        """Return the merit of one config; requires a merit."""
        assert self.merit is not None
        return float(self.merit(self.columns(self.vectors_of([config])))[0])

    def features(self, vectors: Vectors) -> NDArray[np.float32]:
        """Return the surrogate's features, shape (n, n_features): the description, then the knobs' features."""
        plain = self.canonical(vectors)
        parts = [knob.features[plain[:, position]] for position, knob in enumerate(self.knobs)]
        if self.describe is not None:
            parts.insert(0, self.describe(self.columns(vectors)).features())
        return np.concatenate(parts, axis=1, dtype=np.float32)

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The name of every column of `features`."""
        return (*self.described_names, *(name for knob in self.knobs for name in knob.feature_names))

    @cached_property
    def described_names(self) -> tuple[str, ...]:
        """The names of the features that come from the description."""
        return () if self.describe is None else tuple(self.describe(self.columns(self.vectors([0]))).feature_names)

    @property
    def valid_indices(self) -> NDArray[np.int64] | None:
        """All valid indices in order; None if the space is too large, even if `all_valid_indices` has found them.

        Otherwise, the proposals of a search would depend on earlier calls of other code.
        """
        return self.all_valid_indices if self.size <= _MAX_ENUMERABLE or self.is_enumerated else None

    @cached_property
    def all_valid_indices(self) -> NDArray[np.int64]:
        """All valid indices in order, regardless of the space's size; from then on, `valid` looks them up."""
        parts = (
            np.arange(at, min(at + _ENUMERATION_BATCH, self.size)) for at in range(0, self.size, _ENUMERATION_BATCH)
        )
        self._all_valid = np.concatenate([self._check(self.vectors(part)) for part in parts])
        return np.flatnonzero(self._all_valid)

    @property
    def n_programs(self) -> float:
        """The number of distinct programs; infinity until they are enumerated."""
        return math.inf if self._all_valid is None else len(self._distinct[0])

    def outcomes(self, vectors: Vectors) -> NDArray[np.int64]:
        """Return rows of non-negative integers that identify the programs of index vectors, shape (n, n_figures)."""
        return self.canonical(vectors) if self.programs is None else self.programs(self.columns(vectors))

    @cached_property
    def all_identities(self) -> NDArray[np.int64]:
        """The identities of all valid indices in order; from then on, `identities` looks them up."""
        if self.programs is None:
            return self.all_valid_indices
        valid = self.all_valid_indices
        parts = np.array_split(valid, -(-len(valid) // _ENUMERATION_BATCH) or 1)
        identities = np.concatenate([self.identities(self.vectors(part)) for part in parts])
        self._all_identities = np.zeros(self.size, dtype=np.int64)
        self._all_identities[valid] = identities
        return identities

    @cached_property
    def _distinct(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first valid index of each program, in order, and its identity."""
        if self.programs is None:
            return self.all_valid_indices, self.all_valid_indices
        first_rows = np.sort(np.unique(self.all_identities, return_index=True)[1])
        return self.all_valid_indices[first_rows], self.all_identities[first_rows]

    def first_equivalents(self, vectors: Vectors) -> Vectors:
        """Replace each index vector by the first one with the same program, if the space can be enumerated."""
        if self.programs is None or self.valid_indices is None:
            return vectors
        indices, identities = self._distinct
        order = np.argsort(identities)
        rows = np.searchsorted(identities, self.identities(vectors), sorter=order)
        return self.vectors(indices[order[rows]])

    def _check(self, vectors: Vectors) -> NDArray[np.bool_]:
        mask = np.ones(len(vectors), dtype=bool)
        for algorithm, rows in self._group_by_algorithm(vectors):
            columns = self.columns(vectors[rows])
            for constraint in self.constraints:
                if constraint.algorithm in (None, algorithm):
                    mask[rows] &= constraint.holds(columns)
        return mask

    def _group_by_algorithm(self, vectors: Vectors) -> list[tuple[str, Any]]:
        """Return the algorithms that occur in the index vectors, each with the selector of its rows."""
        if self._algorithm_at is None:
            return [("", slice(None))]
        chosen = vectors[:, self._algorithm_at]
        return [
            (name, rows) for at, name in enumerate(self.algorithms) if len(rows := np.flatnonzero(chosen == at)) > 0
        ]

    def sample(
        self, n: int, rng: np.random.Generator, exclude: NDArray[np.int64] | Sequence[int] = (), from_all: bool = False
    ) -> Vectors:
        """Sample n valid index vectors of distinct programs: uniformly, but evenly over the values of balanced knobs.

        Fewer are returned if the space has fewer programs whose identities are not in `exclude`. `from_all` enumerates
        the space even if it is large, which finds all programs.
        """
        excluded = np.asarray(exclude, dtype=np.int64)
        if from_all or self.valid_indices is not None:
            indices, identities = self._distinct
            free = indices[~np.isin(identities, excluded)]
            sampled = rng.choice(free, size=len(free) if self._balanced_at else min(n, len(free)), replace=False)
            return self.vectors(self._interleave(sampled)[:n])
        sampled = np.empty(0, dtype=np.int64)
        for _ in range(1000):
            indices = self.draw(max(_BALANCED_SAMPLE_BATCH if self._balanced_at else _SAMPLE_BATCH, 4 * n), rng)
            candidates = np.concatenate([sampled, indices[self.valid(self.vectors(indices))]])
            identities = self.identities(self.vectors(candidates))
            first_rows = np.sort(np.unique(identities, return_index=True)[1])
            sampled = candidates[first_rows[~np.isin(identities[first_rows], excluded)]]
            if len(sampled) >= n:
                break
        return self.vectors(self._interleave(sampled)[:n])

    def promising(self, n: int, rng: np.random.Generator, exclude: NDArray[np.int64] | Sequence[int] = ()) -> Vectors:
        """Sample many configs and return at most n with the highest merit, best first, alternating between the kinds.

        Of several configs with the same kind and merit only one is returned, since nothing distinguishes them. If the
        space has no merit, no config is returned.
        """
        if self.merit is None:
            return np.empty((0, len(self.knobs)), dtype=np.int64)
        vectors = self.sample(_N_CONSIDERED, rng, exclude)
        merits = self.merit(self.columns(vectors))
        order = np.argsort(-merits, kind="stable")
        kinds_and_merits = np.column_stack([self.canonical(vectors)[order][:, self._balanced_at], merits[order]])
        first_rows = np.sort(np.unique(kinds_and_merits, axis=0, return_index=True)[1])
        return self.vectors(self._interleave(self.indices(vectors[order[first_rows]]))[:n])

    def top_by_merit(
        self, n: int, rng: np.random.Generator, exclude: NDArray[np.int64] | Sequence[int] = (), from_all: bool = False
    ) -> Vectors:
        """Return at most n index vectors of distinct programs with the highest merit, best first.

        If the space is too large to enumerate, they are the best of a random sample, unless `from_all`. If it has no
        merit, no index vector is returned.
        """
        if self.merit is None:
            return np.empty((0, len(self.knobs)), dtype=np.int64)
        n_sampled = self.size if from_all or self.valid_indices is not None else _N_CONSIDERED
        vectors = self.sample(n_sampled, rng, exclude, from_all)
        return vectors[np.argsort(-self.merit(self.columns(vectors)), kind="stable")[:n]]

    def leaders(self, n_each: int, rng: np.random.Generator) -> Vectors:
        """Return sampled configs: the n with the highest merit of each combination of shared knobs, in rounds.

        The combination that is best for a network need not be the best for any of its layers.
        """
        if not self.shared or self.merit is None:
            return np.empty((0, len(self.knobs)), dtype=np.int64)
        vectors = self.sample(_N_CONSIDERED, rng)
        vectors = vectors[np.argsort(-self.merit(self.columns(vectors)), kind="stable")]
        positions = [at for at, knob in enumerate(self.knobs) if knob.name in self.shared]
        turns = _turns(np.unique(vectors[:, positions], axis=0, return_inverse=True)[1])
        return vectors[np.argsort(turns, kind="stable")[: np.count_nonzero(turns < n_each)]]

    @cached_property
    def best_sampled(self) -> dict[str, Any]:
        """The config with the highest merit in a random sample with a fixed seed; requires one algorithm and a merit.

        If the space has a core, half of the configs are sampled from it.

        Raises:
            ConfigError: no config satisfies the constraints.
        """
        assert self.merit is not None and len(self.algorithms) == 1
        n = _N_CONSIDERED if self.core is None else _N_CONSIDERED // 2
        vectors = np.concatenate([self.sample(n, np.random.default_rng(0)), self._sample_core(n)])
        if not len(vectors):
            raise ConfigError("no config of this workload satisfies the constraints")
        return self.config(vectors[int(np.argmax(self.merit(self.columns(vectors))))])

    def _sample_core(self, n: int) -> Vectors:
        """Sample distinct valid index vectors of the core with a fixed seed, shape (at most n, n_knobs)."""
        if self.core is None:
            return np.empty((0, len(self.knobs)), dtype=np.int64)
        core = self.restrict(self.core)
        sampled = core.sample(n, np.random.default_rng(0))
        pairs = zip(self.knobs, core.knobs, strict=True)
        indices = [np.array([full.index(value) for value in part.values]) for full, part in pairs]
        return np.stack([index[sampled[:, at]] for at, index in enumerate(indices)], axis=1)

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Sample n indices with replacement, valid or not: first an algorithm, then one of its configs."""
        if len(self._starts) == 1:
            return rng.integers(0, self.size, size=n)
        rows = rng.integers(0, len(self._starts), size=n)
        return rng.integers(self._starts[rows], np.append(self._starts[1:], self.size)[rows])

    def _interleave(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Reorder indices to alternate between the values of balanced knobs."""
        if not self._balanced_at:
            return indices
        values = self.vectors(indices)[:, self._balanced_at]
        kinds = np.ravel_multi_index(tuple(values.T), tuple(self.cardinalities[self._balanced_at]))
        return indices[np.argsort(_turns(kinds), kind="stable")]


def _turns(kinds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each row how many earlier rows are of the same kind, shape (n,)."""
    turns = np.zeros(len(kinds), dtype=np.int64)
    for kind in np.unique(kinds):
        turns[kinds == kind] = np.arange(np.count_nonzero(kinds == kind))
    return turns
