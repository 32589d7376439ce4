"""One space of several: an algorithm is chosen, and its own knobs, all by one tuner on one budget."""

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
    """Returns the space of a knob `ALGORITHM` and of the knobs of every algorithm's own space.

    Args:
        spaces: of every algorithm, by its name.
        agent: who moves the knob of algorithms.

    Raises:
        ConfigError: two algorithms have knobs of one name, but of other values.
    """
    knobs: dict[str, Knob] = {}
    for algorithm, space in spaces.items():
        for knob in space.knobs:
            known = knobs.get(knob.name, replace(knob, algorithms=()))
            if known.values != knob.values:
                raise ConfigError(f"the knob {knob.name} of {algorithm} has other values than that of its rivals")
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
    chosen = option_knob(ALGORITHM, list(spaces), agent=agent, balanced=True)
    return Space([chosen, *knobs.values()], constraints, describe, merit=merit)


def _merits(merits: Mapping[str, Callable[[Columns], NDArray[np.float64]]], columns: Columns) -> NDArray[np.float64]:
    """Returns, shape (n,), the merit of each config on the scale of its algorithm."""
    found = np.zeros(len(columns[ALGORITHM]))
    for algorithm, merit in merits.items():
        rows = columns[ALGORITHM] == algorithm
        found[rows] = merit({name: values[rows] for name, values in columns.items()})
    return found


@dataclass(frozen=True)
class _Describe:
    """What configs of several algorithms look like: each as its own algorithm describes it, and 0 elsewhere.

    Attributes:
        describes: by algorithm.
        feature_names: of all algorithms, each once.
        positions: among them, of those of each algorithm.
    """

    describes: Mapping[str, Callable[[Columns], Description]]
    feature_names: Sequence[str]
    positions: Mapping[str, NDArray[np.int64]]

    @classmethod
    def each(
        cls, describes: Mapping[str, Callable[[Columns], Description]], names: Mapping[str, Sequence[str]]
    ) -> Self:
        """Returns what describes the configs of several algorithms, whose features have these names."""
        every = list(dict.fromkeys(chain.from_iterable(names.values())))
        at = {name: position for position, name in enumerate(every)}
        positions = {algorithm: np.array([at[name] for name in own]) for algorithm, own in names.items()}
        return cls(describes, every, positions)

    def __call__(self, columns: Columns) -> _Descriptions:
        return _Descriptions(self, columns)


@dataclass(frozen=True)
class _Descriptions:
    """n configs, as their algorithms describe them."""

    describe: _Describe
    columns: Columns

    @property
    def feature_names(self) -> Sequence[str]:
        """The names of all algorithms' features, each once."""
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
