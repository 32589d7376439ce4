"""One space of several: an algorithm is chosen, and its own knobs, all by one tuner on one budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

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
    describe = partial(_Descriptions, describes) if describes else None
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
class _Descriptions:
    """What configs of several algorithms look like: each as its own algorithm describes it, and 0 elsewhere."""

    describes: Mapping[str, Callable[[Columns], Description]]
    columns: Columns

    @property
    def feature_names(self) -> list[str]:
        """The names of all algorithms' features, each once."""
        first = {name: values[:1] for name, values in self.columns.items()}
        return list(
            dict.fromkeys(name for describe in self.describes.values() for name in describe(first).feature_names)
        )

    def features(self) -> NDArray[np.float32]:
        """Returns one row for each config."""
        positions = {name: at for at, name in enumerate(self.feature_names)}
        chosen = self.columns[ALGORITHM]
        features = np.zeros((len(chosen), len(positions)), dtype=np.float32)
        for algorithm, describe in self.describes.items():
            rows = np.flatnonzero(chosen == algorithm)
            if len(rows):
                description = describe({name: values[rows] for name, values in self.columns.items()})
                at = np.array([positions[name] for name in description.feature_names])
                features[np.ix_(rows, at)] = description.features()
        return features
