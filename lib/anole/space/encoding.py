"""The encodings of a space's configs: index vectors, single indices, and columns of values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.errors import ConfigError
from anole.record import Config
from anole.space.knob import ALGORITHM, Knob

Vectors = NDArray[np.int64]
"""Index vectors, shape (n, n_knobs): the index of each knob's value."""

Columns = Mapping[str, NDArray[Any]]
"""The values of n configs by knob: shape (n, n_parts) for a split, (n,) for an option."""


@dataclass(eq=False, repr=False)
class Encoding:
    """The knobs of a task, and the conversions between their configs, index vectors, indices and columns.

    If a knob `ALGORITHM` chooses between programs, indices enumerate all configs of the first algorithm, then of the
    second, and so on. A knob that has no effect for an algorithm may have any value in an index vector: the value is
    treated as the knob's first, and the config omits the knob.

    Attributes:
        knobs: the tunable choices; in an index, the first knob is the least significant digit, as in AutoTVM.
    """

    knobs: Sequence[Knob]

    def __post_init__(self) -> None:
        self.knobs = tuple(self.knobs)
        self.cardinalities = np.array([len(knob) for knob in self.knobs], dtype=np.int64)
        self._algorithm_at = next((at for at, knob in enumerate(self.knobs) if knob.name == ALGORITHM), None)
        self._balanced_at = [at for at, knob in enumerate(self.knobs) if knob.balanced]
        # Rows are algorithms (one row if there is no knob for them); columns are knobs.
        self._matters = np.array([[knob.matters_for(name) for knob in self.knobs] for name in self.algorithms])
        lengths = np.where(self._matters, self.cardinalities, 1)
        if self._algorithm_at is not None:
            lengths[:, self._algorithm_at] = 1
        self._lengths, self._strides = lengths, np.cumprod(np.insert(lengths[:, :-1], 0, 1, axis=1), axis=1)
        sizes = [prod(map(int, row)) for row in lengths]
        self._starts = np.cumsum([0, *sizes[:-1]], dtype=np.int64)
        self.size = sum(sizes)

    def __len__(self) -> int:
        return self.size

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The programs that configs choose between; one empty name if there is no choice."""
        return ("",) if self._algorithm_at is None else self.knobs[self._algorithm_at].values

    @property
    def agents(self) -> dict[str, list[int]]:
        """The indices of the knobs that each agent moves."""
        agents: dict[str, list[int]] = {}
        for position, knob in enumerate(self.knobs):
            agents.setdefault(knob.agent, []).append(position)
        return agents

    def names_of(self, agent: str) -> list[str]:
        """Return the names of an agent's knobs with more than one value."""
        return [knob.name for knob in self.knobs if knob.agent == agent and len(knob) > 1]

    @property
    def kinds(self) -> list[str]:
        """The names of the balanced knobs, whose values together define the kind of a config."""
        return [self.knobs[at].name for at in self._balanced_at]

    def vectors(self, indices: NDArray[np.int64] | Sequence[int]) -> Vectors:
        """Return the index vectors of n indices, shape (n, n_knobs)."""
        flat = np.asarray(indices, dtype=np.int64)
        rows = np.searchsorted(self._starts, flat, side="right") - 1
        vectors = ((flat - self._starts[rows])[:, None] // self._strides[rows]) % self._lengths[rows]
        if self._algorithm_at is not None:
            vectors[:, self._algorithm_at] = rows
        return vectors

    def indices(self, vectors: Vectors) -> NDArray[np.int64]:
        """Return the indices of index vectors of shape (n, n_knobs), shape (n,)."""
        if self._algorithm_at is None:
            return np.asarray(vectors @ self._strides[0], dtype=np.int64)
        rows, plain = vectors[..., self._algorithm_at], self.canonical(vectors).copy()
        plain[..., self._algorithm_at] = 0
        return np.asarray(self._starts[rows] + (plain * self._strides[rows]).sum(axis=-1), dtype=np.int64)

    def canonical(self, vectors: Vectors) -> Vectors:
        """Set knobs without an effect to their first value in index vectors of shape (n, n_knobs)."""
        if self._algorithm_at is None:
            return vectors
        return np.asarray(vectors * self._matters[vectors[..., self._algorithm_at]])

    def config(self, vector: Vectors) -> dict[str, Any]:
        """Return the config of one index vector of shape (n_knobs,), in plain JSON values."""
        matters = self._matters[0 if self._algorithm_at is None else vector[self._algorithm_at]]
        values = (knob.values[index] for knob, index in zip(self.knobs, vector, strict=True))
        return {
            knob.name: list(value) if isinstance(value, tuple) else value
            for knob, value, has_effect in zip(self.knobs, values, matters, strict=True)
            if has_effect
        }

    def vector(self, config: Config) -> Vectors:
        """Return the index vector of a config, shape (n_knobs,).

        Raises:
            ConfigError: a knob is missing, unknown, or has no such value.
        """
        names = {knob.name for knob in self.knobs if knob.matters_for(config.get(ALGORITHM))}
        if set(config) != names:
            raise ConfigError(f"config has knobs {sorted(config)}; the space has {sorted(names)}")
        indices = [knob.index(config[knob.name]) if knob.name in names else 0 for knob in self.knobs]
        return np.array(indices, dtype=np.int64)

    def vectors_of(self, configs: Iterable[Config]) -> Vectors:
        """Return the index vectors of n configs, shape (n, n_knobs); raise ConfigError as `vector` does."""
        vectors = [self.vector(config) for config in configs]
        return np.array(vectors, dtype=np.int64).reshape(-1, len(self.knobs))

    def columns(self, vectors: Vectors) -> dict[str, NDArray[Any]]:
        """Return the columns of n index vectors."""
        plain = self.canonical(vectors)
        return {knob.name: knob.table[plain[:, position]] for position, knob in enumerate(self.knobs)}

    def normalize(self, vectors: Vectors) -> NDArray[np.float32]:
        """Return the index vectors scaled to [0, 1], shape (n, n_knobs)."""
        return (vectors / np.maximum(self.cardinalities - 1, 1)).astype(np.float32)

    def denormalize(self, points: NDArray[np.float32]) -> Vectors:
        """Return the index vectors nearest to points in [0, 1], valid or not; both have shape (n, n_knobs)."""
        return np.asarray(np.rint(points * (self.cardinalities - 1)), dtype=np.int64)


def select_rows(columns: Columns, rows: NDArray[Any]) -> Columns:
    """Select configs from columns by a mask or an array of indices."""
    return {name: values[rows] for name, values in columns.items()}
