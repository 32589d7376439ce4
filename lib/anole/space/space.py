"""A space: the knobs of a task, and what is known of their configs before any is measured."""

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
from anole.space.encoding import Encoding, rows_of
from anole.space.encoding import Vectors as Vectors
from anole.space.knob import ALGORITHM, Knob

_ENUMERABLE = 1 << 20

_ENUMERATED = 1 << 17
"""Number of configs that are enumerated at once, which limits the memory for it."""

_CONSIDERED = 1 << 12
"""Number of configs that are drawn to find those with the highest merit."""

_DRAWN, _DRAWN_BALANCED = 1 << 10, 1 << 14
"""Number of indices drawn at once: few may be valid, and even fewer may have a balanced knob's rarest value."""


@dataclass(frozen=True)
class Constraint:
    """A condition that every valid config fulfils.

    Attributes:
        reason: why a config that violates it is rejected.
        holds: maps the columns of n configs to bool, shape (n,).
        algorithm: the algorithm whose configs it applies to; None for all.
        hard: whether a config that violates it cannot run, and is not only expected to be slow.
    """

    reason: str
    holds: Callable[[Columns], NDArray[np.bool_]]
    algorithm: str | None = None
    hard: bool = False

    def holds_for(self, columns: Columns) -> NDArray[np.bool_]:
        """Return which configs fulfil it or are exempt from it, shape (n,)."""
        if self.algorithm is None:
            return self.holds(columns)
        own = columns[ALGORITHM] == self.algorithm
        held = ~own
        held[own] = self.holds(rows_of(columns, own))
        return np.asarray(held)


class Description(Protocol):
    """A description of n configs for the surrogate, such as their loop nests."""

    @property
    def feature_names(self) -> Sequence[str]:
        """The names of the columns; equal names mean the same in the spaces of other tasks."""

    def features(self) -> NDArray[np.float32]:
        """Return one row for each config."""


Figures = Callable[[Columns], NDArray[np.float64]]
"""Maps the columns of n configs to a number for each, shape (n,)."""

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""Odd, with bits in all places: numbers times it are spread over 64 bits (Knuth, volume 3, section 6.4)."""


@dataclass(eq=False, repr=False)
class Space(Encoding):
    """The knobs of a task, with what is known of their configs.

    Attributes:
        constraints: a config that violates one of them is rejected before it is built.
        describe: optional; maps the columns of n configs to features beside the knobs' own.
        discount: optional; the share of its speed that each config is worth.
        merit: optional; the speed of each config that is expected without measuring. Any scale is valid, and each
            algorithm may use its own.
        core: optional; for some knobs, the values that are most likely to fulfil the constraints. `best_sampled` finds
            valid configs among these if they are rare elsewhere.
        toll: optional; the speed that each config's cost takes away from its own, in runs per second; see `worths`.
        merit_is_speed: whether the merit is proportional to what configs are worth, from 0 on and over all algorithms,
            so that a surrogate can begin from it.
        programs: optional; what determines the program of each config that can run, shape (n, n_figures). Of configs
            with equal rows, which run the same, a search tries only one.
    """

    constraints: Sequence[Constraint] = ()
    describe: Callable[[Columns], Description] | None = None
    discount: Figures | None = None
    merit: Figures | None = None
    core: Mapping[str, Sequence[Any]] | None = None
    toll: Figures | None = None
    merit_is_speed: bool = False
    programs: Callable[[Columns], NDArray[np.int64]] | None = None
    _all_obeying: NDArray[np.bool_] | None = field(default=None, init=False)
    """Which indices are valid, shape (size,), once `every_valid_index` has enumerated the space."""
    _all_identities: NDArray[np.int64] | None = field(default=None, init=False)
    """The identities of valid indices, shape (size,), once `every_identity` has."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.constraints = tuple(self.constraints)
        self.merit_is_speed = self.merit_is_speed and self.merit is not None

    def restricted(self, values: Mapping[str, Sequence[Any]]) -> Space:
        """Return the part of this space in which some knobs are limited to the given values, without a core.

        Raises:
            ConfigError: the space has no such knob, or the knob has no such value.
        """
        names = {knob.name for knob in self.knobs}
        if unknown := sorted(set(values) - names):
            raise ConfigError(f"there are no knobs {unknown}; the space has {sorted(names)}")
        knobs = [knob.restricted(values[knob.name]) if knob.name in values else knob for knob in self.knobs]
        return replace(self, knobs=knobs, core=None)

    def opened(self, wider: Sequence[Knob] = (), describe: Callable[[Columns], Description] | None = None) -> Space:
        """Return the space of the same knobs without what is known beforehand: constraints, merit, core and programs.

        What configs are worth stays, since it is what a search is for. Wider knobs replace those of their names; then
        configs of these are described, with the same features.
        """
        replacing = {knob.name: knob for knob in wider}
        knobs = [replacing.get(knob.name, knob) for knob in self.knobs]
        described = describe or self.describe
        return replace(self, knobs=knobs, constraints=(), describe=described, merit=None, core=None, programs=None)

    def identities(self, vectors: Vectors) -> NDArray[np.int64]:
        """Return a number for each valid index vector, equal for those that run the same program, shape (n,)."""
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
        """Return which of the index vectors fulfil every constraint, shape (n,)."""
        if self._all_obeying is not None:
            return self._all_obeying[self.indices(vectors)]
        return self._obeying(vectors)

    def rejection(self, config: Config) -> str | None:
        """Return why a config is invalid, or None if it is valid."""
        return self._broken(config, self.constraints)

    def refusal(self, config: Config) -> str | None:
        """Return why a config cannot run, or None if it may, valid or not."""
        return self._broken(config, [constraint for constraint in self.constraints if constraint.hard])

    def _broken(self, config: Config, constraints: Sequence[Constraint]) -> str | None:
        columns = self.columns(self.vectors_of([config]))
        return next((each.reason for each in constraints if not each.holds_for(columns)[0]), None)

    def rejections(self, vectors: Vectors) -> dict[str, int]:
        """Return, by reason, how many of n index vectors each constraint is the first to reject."""
        columns, left = self.columns(vectors), np.ones(len(vectors), dtype=bool)
        counts: dict[str, int] = {}
        for constraint in self.constraints:
            broken = left & ~constraint.holds_for(columns)
            counts[constraint.reason] = counts.get(constraint.reason, 0) + int(broken.sum())
            left &= ~broken
        return {reason: count for reason, count in counts.items() if count}

    def discounts(self, vectors: Vectors) -> NDArray[np.float64]:
        """Return the share of its speed that each config is worth without a toll, shape (n,): 1 without a cost."""
        return np.ones(len(vectors)) if self.discount is None else self.discount(self.columns(vectors))

    def worths(self, vectors: Vectors, latencies_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the share of its speed that each config is worth with its latency, shape (n,): never below 0.

        This is its discount, less the share of its toll. A failure's latency is NaN.
        """
        if self.toll is None:
            return self.discounts(vectors)
        return np.maximum(0.0, self.discounts(vectors) - self.toll(self.columns(vectors)) * latencies_s)

    def worth(self, config: Config, latency_s: float = 0.0) -> float:
        """Return the share of its speed that a config is worth with this latency; see `worths`."""
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
        """All valid indices in order; None if the space is too large to enumerate in every search, and was not yet."""
        return self.every_valid_index if self.size <= _ENUMERABLE or self._all_obeying is not None else None

    @cached_property
    def every_valid_index(self) -> NDArray[np.int64]:
        """All valid indices in order, whatever the size of the space; from then on, `valid` looks them up."""
        parts = (np.arange(at, min(at + _ENUMERATED, self.size)) for at in range(0, self.size, _ENUMERATED))
        self._all_obeying = np.concatenate([self._obeying(self.vectors(part)) for part in parts])
        return np.flatnonzero(self._all_obeying)

    def enumerate(self) -> None:
        """Find all valid indices, so that from then on the space counts as one that can be enumerated."""
        _ = self.every_valid_index

    @property
    def n_programs(self) -> float:
        """How many programs it has; infinity as long as they are not enumerated."""
        return math.inf if self._all_obeying is None else len(self._distinct[0])

    def outcomes(self, vectors: Vectors) -> NDArray[np.int64]:
        """Return what tells the programs of index vectors apart, none below 0, shape (n, n_figures)."""
        return self.canonical(vectors) if self.programs is None else self.programs(self.columns(vectors))

    @cached_property
    def every_identity(self) -> NDArray[np.int64]:
        """The identities of all valid indices in order, whatever the size of the space; then they are looked up."""
        if self.programs is None:
            return self.every_valid_index
        valid = self.every_valid_index
        parts = np.array_split(valid, -(-len(valid) // _ENUMERATED) or 1)
        found = np.concatenate([self.identities(self.vectors(part)) for part in parts])
        self._all_identities = np.zeros(self.size, dtype=np.int64)
        self._all_identities[valid] = found
        return found

    @cached_property
    def _distinct(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first of all valid indices with each identity, in order, and these identities."""
        if self.programs is None:
            return self.every_valid_index, self.every_valid_index
        first = np.sort(np.unique(self.every_identity, return_index=True)[1])
        return self.every_valid_index[first], self.every_identity[first]

    def plainest(self, vectors: Vectors) -> Vectors:
        """Return for each index vector the first one that runs the same program, if the space can be enumerated."""
        if self.programs is None or self.valid_indices is None:
            return vectors
        indices, identities = self._distinct
        order = np.argsort(identities)
        found = np.searchsorted(identities, self.identities(vectors), sorter=order)
        return self.vectors(indices[order[found]])

    def _obeying(self, vectors: Vectors) -> NDArray[np.bool_]:
        held = np.ones(len(vectors), dtype=bool)
        for algorithm, rows in self._of_each_algorithm(vectors):
            columns = self.columns(vectors[rows])
            for constraint in self.constraints:
                if constraint.algorithm in (None, algorithm):
                    held[rows] &= constraint.holds(columns)
        return held

    def _of_each_algorithm(self, vectors: Vectors) -> list[tuple[str, Any]]:
        """Return the algorithms that occur in the index vectors, each with a selector of its vectors."""
        if self._algorithm_at is None:
            return [("", slice(None))]
        chosen = vectors[:, self._algorithm_at]
        return [
            (name, rows) for at, name in enumerate(self.algorithms) if len(rows := np.flatnonzero(chosen == at)) > 0
        ]

    def sample(self, n: int, rng: np.random.Generator, exclude: NDArray[np.int64] | Sequence[int] = ()) -> Vectors:
        """Draw valid index vectors of distinct programs, evenly for each value of balanced knobs, else uniformly.

        They are n, or as many as the space has beside the identities that must not be drawn.
        """
        excluded = np.asarray(exclude, dtype=np.int64)
        if self.valid_indices is not None:
            indices, identities = self._distinct
            free = indices[~np.isin(identities, excluded)]
            drawn = rng.choice(free, size=len(free) if self._balanced_at else min(n, len(free)), replace=False)
            return self.vectors(self._by_turns(drawn)[:n])
        drawn = np.empty(0, dtype=np.int64)
        for _ in range(1000):
            indices = self.draw(max(_DRAWN_BALANCED if self._balanced_at else _DRAWN, 4 * n), rng)
            joined = np.concatenate([drawn, indices[self.valid(self.vectors(indices))]])
            identities = self.identities(self.vectors(joined))
            first = np.sort(np.unique(identities, return_index=True)[1])
            drawn = joined[first[~np.isin(identities[first], excluded)]]
            if len(drawn) >= n:
                break
        return self.vectors(self._by_turns(drawn)[:n])

    def promising(self, n: int, rng: np.random.Generator, exclude: NDArray[np.int64] | Sequence[int] = ()) -> Vectors:
        """Draw many configs and return at most n with the highest merit, best first, alternating between the kinds.

        Of configs with the same kind and merit only one is returned: nothing is known about their differences. Without
        a merit nothing is.
        """
        if self.merit is None:
            return np.empty((0, len(self.knobs)), dtype=np.int64)
        vectors = self.sample(_CONSIDERED, rng, exclude)
        merits = self.merit(self.columns(vectors))
        order = np.argsort(-merits, kind="stable")
        distinguished = np.column_stack([self.canonical(vectors)[order][:, self._balanced_at], merits[order]])
        first = np.sort(np.unique(distinguished, axis=0, return_index=True)[1])
        return self.vectors(self._by_turns(self.indices(vectors[order[first]]))[:n])

    def foremost(self, n: int, rng: np.random.Generator, exclude: NDArray[np.int64] | Sequence[int] = ()) -> Vectors:
        """Return at most n index vectors of distinct programs with the highest merit, best first.

        They are those of the whole space if it can be enumerated, else of many that are drawn. Without a merit, nothing
        is.
        """
        if self.merit is None:
            return np.empty((0, len(self.knobs)), dtype=np.int64)
        n_drawn = _CONSIDERED if self.valid_indices is None else self.size
        vectors = self.sample(n_drawn, rng, exclude)
        return vectors[np.argsort(-self.merit(self.columns(vectors)), kind="stable")[:n]]

    @cached_property
    def best_sampled(self) -> dict[str, Any]:
        """The config with the highest merit of many drawn with a fixed seed; requires one algorithm and a merit.

        If the space has a core, half of the configs are drawn from it.

        Raises:
            ConfigError: no config fulfils the constraints.
        """
        assert self.merit is not None and len(self.algorithms) == 1
        n = _CONSIDERED if self.core is None else _CONSIDERED // 2
        vectors = np.concatenate([self.sample(n, np.random.default_rng(0)), self._drawn_from_core(n)])
        if not len(vectors):
            raise ConfigError("the constraints leave no config for this workload")
        return self.config(vectors[int(np.argmax(self.merit(self.columns(vectors))))])

    def _drawn_from_core(self, n: int) -> Vectors:
        """Draw distinct valid index vectors of the core with a fixed seed, shape (at most n, n_knobs)."""
        if self.core is None:
            return np.empty((0, len(self.knobs)), dtype=np.int64)
        part = self.restricted(self.core)
        drawn = part.sample(n, np.random.default_rng(0))
        pairs = zip(self.knobs, part.knobs, strict=True)
        places = [np.array([whole.index(value) for value in few.values]) for whole, few in pairs]
        return np.stack([place[drawn[:, at]] for at, place in enumerate(places)], axis=1)

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw n indices, valid or not, with possible repeats: first an algorithm, then one of its configs."""
        if len(self._begins) == 1:
            return rng.integers(0, self.size, size=n)
        rows = rng.integers(0, len(self._begins), size=n)
        return rng.integers(self._begins[rows], np.append(self._begins[1:], self.size)[rows])

    def _by_turns(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the indices in an order that alternates between the values of balanced knobs."""
        if not self._balanced_at:
            return indices
        values = self.vectors(indices)[:, self._balanced_at]
        kinds = np.ravel_multi_index(tuple(values.T), tuple(self.cardinalities[self._balanced_at]))
        turns = np.zeros(len(indices), dtype=np.int64)
        for kind in np.unique(kinds):
            turns[kinds == kind] = np.arange(np.count_nonzero(kinds == kind))
        return indices[np.argsort(turns, kind="stable")]
