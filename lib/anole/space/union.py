"""The union of several algorithms' spaces: one tuner chooses the algorithm and its knobs with one budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Self

import numpy as np
from numpy.typing import NDArray

from anole.errors import ConfigError
from anole.space.knob import ALGORITHM, Knob, option_knob
from anole.space.space import Columns, Description, Space


def union(spaces: Mapping[str, Space], *, agent: str = "") -> Space:
    """Returns a space with a knob `ALGORITHM` and the knobs of every algorithm's own space.

    Args:
        spaces: each algorithm's space, by the algorithm's name.
        agent: the agent that moves the knob `ALGORITHM`.

    Raises:
        ConfigError: two algorithms have knobs of the same name with different values.
    """
    knobs: dict[str, Knob] = {}
    for algorithm, space in spaces.items():
        for knob in space.knobs:
            known = knobs.get(knob.name, replace(knob, algorithms=()))
            if known.values != knob.values:
                raise ConfigError(f"knob {knob.name} of {algorithm} has other values than in another algorithm")
            knobs[knob.name] = replace(known, algorithms=(*(known.algorithms or ()), algorithm))
    constraints = [
        replace(constraint, algorithm=algorithm)
        for algorithm, space in spaces.items()
        for constraint in space.constraints
    ]
    describes = {algorithm: space.describe for algorithm, space in spaces.items() if space.describe is not None}
    names = {algorithm: spaces[algorithm].described_names for algorithm in describes}
    describe = _Describe.each(describes, names) if describes else None
    merits = {algorithm: space.merit for algorithm, space in spaces.items() if space.merit is not None}
    merit = partial(_merits, merits) if len(merits) == len(spaces) else None
    is_speed = all(space.merit_is_speed for space in spaces.values())
    chosen = option_knob(ALGORITHM, list(spaces), agent=agent, balanced=True)
    return Space([chosen, *knobs.values()], constraints, describe, merit=merit, merit_is_speed=is_speed)


def _merits(merits: Mapping[str, Callable[[Columns], NDArray[np.float64]]], columns: Columns) -> NDArray[np.float64]:
    """Returns the merit of each config on its algorithm's scale, shape (n,)."""
    found = np.zeros(len(columns[ALGORITHM]))
    for algorithm, merit in merits.items():
        rows = columns[ALGORITHM] == algorithm
        found[rows] = merit({name: values[rows] for name, values in columns.items()})
    return found


@dataclass(frozen=True)
class _Describe:
    """Describes configs of several algorithms: each by its own algorithm's features, with 0 for all others.

    Attributes:
        describes: the description of each algorithm's configs.
        feature_names: the feature names of all algorithms, each once.
        positions: the positions of each algorithm's features in `feature_names`.
    """

    describes: Mapping[str, Callable[[Columns], Description]]
    feature_names: Sequence[str]
    positions: Mapping[str, NDArray[np.int64]]

    @classmethod
    def each(
        cls, describes: Mapping[str, Callable[[Columns], Description]], names: Mapping[str, Sequence[str]]
    ) -> Self:
        """Returns the common description of several algorithms.

        Args:
            describes: the description of each algorithm's configs.
            names: the feature names of each algorithm.
        """
        every = list(dict.fromkeys(chain.from_iterable(names.values())))
        at = {name: position for position, name in enumerate(every)}
        positions = {algorithm: np.array([at[name] for name in own]) for algorithm, own in names.items()}
        return cls(describes, every, positions)

    def __call__(self, columns: Columns) -> _Descriptions:
        return _Descriptions(self, columns)


@dataclass(frozen=True)
class _Descriptions:
    """The descriptions of n configs by their algorithms."""

    describe: _Describe
    columns: Columns

    @property
    def feature_names(self) -> Sequence[str]:
        """The feature names of all algorithms, each once."""
        return self.describe.feature_names

    def features(self) -> NDArray[np.float32]:
        """Returns one row for each config."""
        chosen = self.columns[ALGORITHM]
        features = np.zeros((len(chosen), len(self.feature_names)), dtype=np.float32)
        for algorithm, describe in self.describe.describes.items():
            rows = np.flatnonzero(chosen == algorithm)
            if len(rows):
                description = describe({name: values[rows] for name, values in self.columns.items()})
                features[np.ix_(rows, self.describe.positions[algorithm])] = description.features()
        return features
