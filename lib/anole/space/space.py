"""A space: all knobs of a task, and the maps between config, index, index vector and features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anole.errors import ConfigError
from anole.record import Config
from anole.space.knob import ALGORITHM, Knob

Vectors = NDArray[np.int64]
"""Index vectors, shape (n, n_knobs): for every knob the index of its value."""

Columns = Mapping[str, NDArray[Any]]
"""For every knob the values of n configs: (n, n_parts) for a split, (n,) for an option."""

_ENUMERABLE = 1 << 20

_CONSIDERED = 1 << 12
"""Configs that are drawn for the best of them, by their merit."""

_DRAWN, _DRAWN_BALANCED = 1 << 10, 1 << 14
"""Indices that are drawn at once, of which few may be valid, and fewer of the rarest value of a balanced knob."""


@dataclass(frozen=True)
class Constraint:
    """What every config that can work obeys.

    Attributes:
        reason: what a config that breaks it is told.
        holds: from the columns of n configs to shape (n,) of bool.
        algorithm: whose configs it is asked of; of all when None.
    """

    reason: str
    holds: Callable[[Columns], NDArray[np.bool_]]
    algorithm: str | None = None

    def holds_for(self, columns: Columns) -> NDArray[np.bool_]:
        """Returns, shape (n,), which configs obey it or are none of its business."""
        if self.algorithm is None:
            return self.holds(columns)
        own = columns[ALGORITHM] == self.algorithm
        held = ~own
        held[own] = self.holds({name: values[own] for name, values in columns.items()})
        return np.asarray(held)


class Description(Protocol):
    """What n configs look like to a surrogate, such as the loop nests that they stand for."""

    @property
    def feature_names(self) -> Sequence[str]:
        """Names of the columns; equal names mean the same in the spaces of other tasks."""

    def features(self) -> NDArray[np.float32]:
        """Returns one row for each config."""


class Space:
    """All knobs of a task.

    Where a knob `ALGORITHM` chooses between programs, an index counts the configs of one algorithm after those of
    another, and a knob that means nothing to an algorithm may have any value in an index vector: it counts as its
    first, and is not in the config.

    Args:
        knobs: the tunable choices; in an index the first one is least significant, as in AutoTVM.
        constraints: rejected before building is what breaks one of them.
        describe: optional features beside the knobs' own, from the columns of n configs.
        discount: optional, from the columns of n configs to shape (n,): which share of its speed each is worth.
        merit: optional, from the columns of n configs to shape (n,): how fast each should be, by what is known
            without measuring; on any scale, which may be another for each algorithm.
        core: optional, for some knobs those values that are most likely to obey the constraints: where few configs
            do, `best_drawn` finds some among these.
    """

    def __init__(
        self,
        knobs: Sequence[Knob],
        constraints: Sequence[Constraint] = (),
        describe: Callable[[Columns], Description] | None = None,
        discount: Callable[[Columns], NDArray[np.float64]] | None = None,
        merit: Callable[[Columns], NDArray[np.float64]] | None = None,
        core: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        self.knobs = tuple(knobs)
        self.constraints = tuple(constraints)
        self.core = core
        self.describe, self.merit, self._discount = describe, merit, discount
        self.cardinalities = np.array([len(knob) for knob in self.knobs], dtype=np.int64)
        self._algorithm_at = next((at for at, knob in enumerate(self.knobs) if knob.name == ALGORITHM), None)
        self._balanced_at = [at for at, knob in enumerate(self.knobs) if knob.balanced]
        # Rows are algorithms, of which there is one without a knob for them; columns are knobs.
        self._matters = np.array([[_matters(knob, name) for knob in self.knobs] for name in self.algorithms])
        counted = np.where(self._matters, self.cardinalities, 1)
        if self._algorithm_at is not None:
            counted[:, self._algorithm_at] = 1
        self._counted, self._strides = counted, np.cumprod(np.insert(counted[:, :-1], 0, 1, axis=1), axis=1)
        sizes = [prod(map(int, row)) for row in counted]
        self._begins = np.cumsum([0, *sizes[:-1]], dtype=np.int64)
        self.size = sum(sizes)
        # Which indices are valid, shape (size,), once `valid_indices` has enumerated the space.
        self._all_obeying: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return self.size

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The programs that configs choose between; one without a name where there is no choice."""
        return ("",) if self._algorithm_at is None else self.knobs[self._algorithm_at].values

    @property
    def agents(self) -> dict[str, list[int]]:
        """Who moves which knobs, by their positions."""
        agents: dict[str, list[int]] = {}
        for position, knob in enumerate(self.knobs):
            agents.setdefault(knob.agent, []).append(position)
        return agents

    def names_of(self, agent: str) -> list[str]:
        """Returns the names of an agent's knobs, of those that leave a choice."""
        return [knob.name for knob in self.knobs if knob.agent == agent and len(knob) > 1]

    @property
    def kinds(self) -> list[str]:
        """The names of the balanced knobs, by whose values configs are of different kinds."""
        return [self.knobs[at].name for at in self._balanced_at]

    def restricted(self, values: Mapping[str, Sequence[Any]]) -> Space:
        """Returns the part of this space in which some knobs have only some of their values; it has no core.

        Raises:
            ConfigError: there is no such knob, or it has no such value.
        """
        names = {knob.name for knob in self.knobs}
        if unknown := sorted(set(values) - names):
            raise ConfigError(f"there are no knobs {unknown}; the space has {sorted(names)}")
        knobs = [knob.restricted(values[knob.name]) if knob.name in values else knob for knob in self.knobs]
        return Space(knobs, self.constraints, self.describe, self._discount, self.merit)

    def vectors(self, indices: NDArray[np.int64] | Sequence[int]) -> Vectors:
        """Returns the index vectors, shape (n, n_knobs), of n indices."""
        whole = np.asarray(indices, dtype=np.int64)
        rows = np.searchsorted(self._begins, whole, side="right") - 1
        vectors = ((whole - self._begins[rows])[:, None] // self._strides[rows]) % self._counted[rows]
        if self._algorithm_at is not None:
            vectors[:, self._algorithm_at] = rows
        return vectors

    def indices(self, vectors: Vectors) -> NDArray[np.int64]:
        """Returns the indices, shape (n,), of index vectors of shape (n, n_knobs)."""
        if self._algorithm_at is None:
            return np.asarray(vectors @ self._strides[0], dtype=np.int64)
        rows, plain = vectors[..., self._algorithm_at], self.canonical(vectors).copy()
        plain[..., self._algorithm_at] = 0
        return np.asarray(self._begins[rows] + (plain * self._strides[rows]).sum(axis=-1), dtype=np.int64)

    def canonical(self, vectors: Vectors) -> Vectors:
        """Returns index vectors, shape (n, n_knobs), in which knobs without a meaning have their first value."""
        if self._algorithm_at is None:
            return vectors
        return np.asarray(vectors * self._matters[vectors[..., self._algorithm_at]])

    def config(self, vector: Vectors) -> dict[str, Any]:
        """Returns the config, in plain JSON values, of one index vector of shape (n_knobs,)."""
        matters = self._matters[0 if self._algorithm_at is None else vector[self._algorithm_at]]
        values = (knob.values[index] for knob, index in zip(self.knobs, vector, strict=True))
        return {
            knob.name: list(value) if isinstance(value, tuple) else value
            for knob, value, kept in zip(self.knobs, values, matters, strict=True)
            if kept
        }

    def vector(self, config: Config) -> Vectors:
        """Returns the index vector, shape (n_knobs,), of a config.

        Raises:
            ConfigError: a knob is missing, unknown, or has no such value.
        """
        names = {knob.name for knob in self.knobs if _matters(knob, config.get(ALGORITHM))}
        if set(config) != names:
            raise ConfigError(f"config has knobs {sorted(config)}; the space has {sorted(names)}")
        indices = [knob.index(config[knob.name]) if knob.name in names else 0 for knob in self.knobs]
        return np.array(indices, dtype=np.int64)

    def columns(self, vectors: Vectors) -> dict[str, NDArray[Any]]:
        """Returns for every knob the values of n configs."""
        plain = self.canonical(vectors)
        return {knob.name: knob.table[plain[:, position]] for position, knob in enumerate(self.knobs)}

    def valid(self, vectors: Vectors) -> NDArray[np.bool_]:
        """Returns, shape (n,), which of the index vectors obey every constraint."""
        if self._all_obeying is not None:
            return self._all_obeying[self.indices(vectors)]
        return self._obeying(vectors)

    def rejection(self, config: Config) -> str | None:
        """Returns why a config cannot work, or None when it can."""
        columns = self.columns(self.vector(config)[None, :])
        broken = (constraint.reason for constraint in self.constraints if not constraint.holds_for(columns)[0])
        return next(broken, None)

    def rejections(self, vectors: Vectors) -> dict[str, int]:
        """Returns how many of n index vectors each constraint is the first to reject, by its reason."""
        columns, left = self.columns(vectors), np.ones(len(vectors), dtype=bool)
        counts: dict[str, int] = {}
        for constraint in self.constraints:
            broken = left & ~constraint.holds_for(columns)
            counts[constraint.reason] = counts.get(constraint.reason, 0) + int(broken.sum())
            left &= ~broken
        return {reason: count for reason, count in counts.items() if count}

    def discounts(self, vectors: Vectors) -> NDArray[np.float64]:
        """Returns, shape (n,), which share of its speed each config is worth: 1 unless it costs something else, too."""
        if self._discount is None:
            return np.ones(len(vectors))
        return self._discount(self.columns(vectors))

    def worth(self, config: Config) -> float:
        """Returns which share of its speed a config is worth."""
        return 1.0 if self._discount is None else float(self.discounts(self.vector(config)[None, :])[0])

    def features(self, vectors: Vectors) -> NDArray[np.float32]:
        """Returns what a surrogate sees, shape (n, n_features): the description, then the knobs' features."""
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
        """The names of those that come from the description."""
        return () if self.describe is None else tuple(self.describe(self.columns(self.vectors([0]))).feature_names)

    def normalized(self, vectors: Vectors) -> NDArray[np.float32]:
        """Returns every knob's index scaled to [0, 1], shape (n, n_knobs)."""
        return (vectors / np.maximum(self.cardinalities - 1, 1)).astype(np.float32)

    def denormalized(self, points: NDArray[np.float32]) -> Vectors:
        """Returns the index vectors, valid or not, nearest to points of [0, 1], both of shape (n, n_knobs)."""
        return np.asarray(np.rint(points * (self.cardinalities - 1)), dtype=np.int64)

    @cached_property
    def valid_indices(self) -> NDArray[np.int64] | None:
        """All valid indices in order, or None when the space is too large to be enumerated."""
        if self.size > _ENUMERABLE:
            return None
        self._all_obeying = self._obeying(self.vectors(np.arange(self.size, dtype=np.int64)))
        return np.flatnonzero(self._all_obeying)

    def _obeying(self, vectors: Vectors) -> NDArray[np.bool_]:
        held = np.ones(len(vectors), dtype=bool)
        for algorithm, rows in self._of_each_algorithm(vectors):
            columns = self.columns(vectors[rows])
            for constraint in self.constraints:
                if constraint.algorithm in (None, algorithm):
                    held[rows] &= constraint.holds(columns)
        return held

    def _of_each_algorithm(self, vectors: Vectors) -> list[tuple[str, Any]]:
        """Returns what selects the index vectors of each algorithm that there are some of."""
        if self._algorithm_at is None:
            return [("", slice(None))]
        chosen = vectors[:, self._algorithm_at]
        return [
            (name, rows) for at, name in enumerate(self.algorithms) if len(rows := np.flatnonzero(chosen == at)) > 0
        ]

    def sample(self, n: int, rng: np.random.Generator, exclude: NDArray[np.int64] | Sequence[int] = ()) -> Vectors:
        """Draws distinct valid index vectors, about as many for all values of balanced knobs, uniformly otherwise.

        Args:
            n: how many are wanted; fewer come when the space has no more.
            rng: where the randomness comes from.
            exclude: indices that must not be drawn.

        Returns:
            Shape (at most n, n_knobs).
        """
        excluded = np.asarray(exclude, dtype=np.int64)
        if self.valid_indices is not None:
            free = self.valid_indices[~np.isin(self.valid_indices, excluded)]
            drawn = rng.choice(free, size=len(free) if self._balanced_at else min(n, len(free)), replace=False)
            return self.vectors(self._by_turns(drawn)[:n])
        drawn = np.empty(0, dtype=np.int64)
        for _ in range(1000):
            indices = self.draw(max(_DRAWN_BALANCED if self._balanced_at else _DRAWN, 4 * n), rng)
            fresh = indices[self.valid(self.vectors(indices))]
            joined = np.concatenate([drawn, fresh[~np.isin(fresh, excluded)]])
            drawn = joined[np.sort(np.unique(joined, return_index=True)[1])]
            if len(drawn) >= n:
                break
        return self.vectors(self._by_turns(drawn)[:n])

    def promising(self, n: int, rng: np.random.Generator, exclude: NDArray[np.int64] | Sequence[int] = ()) -> Vectors:
        """Returns the configs of most merit of many that are drawn, those of every kind in turns.

        Of configs of a kind and of equal merit there is but one: nothing is known of what they differ in.

        Returns:
            Shape (at most n, n_knobs), the best first; none where the space knows no merit.
        """
        if self.merit is None:
            return np.empty((0, len(self.knobs)), dtype=np.int64)
        vectors = self.sample(_CONSIDERED, rng, exclude)
        merits = self.merit(self.columns(vectors))
        order = np.argsort(-merits, kind="stable")
        told_apart = np.column_stack([self.canonical(vectors)[order][:, self._balanced_at], merits[order]])
        first = np.sort(np.unique(told_apart, axis=0, return_index=True)[1])
        return self.vectors(self._by_turns(self.indices(vectors[order[first]]))[:n])

    @cached_property
    def best_drawn(self) -> dict[str, Any]:
        """The config of most merit of many that are drawn, the same every time; for one algorithm that knows merit.

        Where the space has a core, half of them are drawn from that.

        Raises:
            ConfigError: no config obeys the constraints.
        """
        assert self.merit is not None and len(self.algorithms) == 1
        n = _CONSIDERED if self.core is None else _CONSIDERED // 2
        vectors = np.concatenate([self.sample(n, np.random.default_rng(0)), self._drawn_from_core(n)])
        if not len(vectors):
            raise ConfigError("the constraints leave no config for this workload")
        return self.config(vectors[int(np.argmax(self.merit(self.columns(vectors))))])

    def _drawn_from_core(self, n: int) -> Vectors:
        """Draws distinct valid index vectors of the core, shape (at most n, n_knobs), always the same."""
        if self.core is None:
            return np.empty((0, len(self.knobs)), dtype=np.int64)
        part = self.restricted(self.core)
        drawn = part.sample(n, np.random.default_rng(0))
        pairs = zip(self.knobs, part.knobs, strict=True)
        places = [np.array([whole.index(value) for value in few.values]) for whole, few in pairs]
        return np.stack([place[drawn[:, at]] for at, place in enumerate(places)], axis=1)

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draws n indices, valid or not, maybe some twice: first an algorithm, and then one of its configs."""
        if len(self._begins) == 1:
            return rng.integers(0, self.size, size=n)
        rows = rng.integers(0, len(self._begins), size=n)
        return rng.integers(self._begins[rows], np.append(self._begins[1:], self.size)[rows])

    def _by_turns(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns indices in an order in which the values of balanced knobs take turns."""
        if not self._balanced_at:
            return indices
        values = self.vectors(indices)[:, self._balanced_at]
        kinds = np.ravel_multi_index(tuple(values.T), tuple(self.cardinalities[self._balanced_at]))
        turns = np.zeros(len(indices), dtype=np.int64)
        for kind in np.unique(kinds):
            turns[kinds == kind] = np.arange(np.count_nonzero(kinds == kind))
        return indices[np.argsort(turns, kind="stable")]


def _matters(knob: Knob, algorithm: object) -> bool:
    """Returns whether a knob means something to an algorithm."""
    return knob.algorithms is None or algorithm in knob.algorithms
