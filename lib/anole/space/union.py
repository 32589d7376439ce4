"""The union of several algorithms' spaces: one tuner chooses the algorithm and its knobs within one budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from anole.errors import ConfigError
from anole.space.encoding import Columns, select_rows
from anole.space.knob import ALGORITHM, Knob, option_knob
from anole.space.space import Description, Figures, Space


def union(spaces: Mapping[str, Space], *, agent: str = "") -> Space:
    """Return a space with a knob `ALGORITHM` and the knobs of every algorithm's space, without a core.

    Raises:
        ConfigError: two algorithms have knobs of the same name with different values.
    """
    knobs: dict[str, Knob] = {}
    for algorithm, space in spaces.items():
        for knob in space.knobs:
            merged = knobs.get(knob.name, replace(knob, algorithms=()))
            if merged.values != knob.values:
                raise ConfigError(f"knob {knob.name} of {algorithm} has different values in another algorithm")
            knobs[knob.name] = replace(merged, algorithms=(*(merged.algorithms or ()), algorithm))
    constraints = [
        replace(constraint, algorithm=algorithm)
        for algorithm, space in spaces.items()
        for constraint in space.constraints
    ]
    describes = {algorithm: space.describe for algorithm, space in spaces.items() if space.describe is not None}
    names = {algorithm: spaces[algorithm].described_names for algorithm in describes}
    columns = {name: position for position, name in enumerate(dict.fromkeys(chain.from_iterable(names.values())))}
    positions = {algorithm: np.array([columns[name] for name in features]) for algorithm, features in names.items()}
    has_merit = all(space.merit is not None for space in spaces.values())
    return Space(
        [option_knob(ALGORITHM, list(spaces), agent=agent, balanced=True), *knobs.values()],
        constraints,
        partial(_Descriptions, describes, list(columns), positions) if describes else None,
        discount=_by_algorithm({algorithm: space.discount for algorithm, space in spaces.items()}, default=1.0),
        merit=_by_algorithm({algorithm: space.merit for algorithm, space in spaces.items()}) if has_merit else None,
        toll=_by_algorithm({algorithm: space.toll for algorithm, space in spaces.items()}),
        merit_is_speed=all(space.merit_is_speed for space in spaces.values()),
    )


def _by_algorithm(figures: Mapping[str, Figures | None], default: float = 0.0) -> Figures | None:
    """Combine the functions of all algorithms, with a default for those without one; None if no algorithm has one."""
    defined = {algorithm: figure for algorithm, figure in figures.items() if figure is not None}

    def figure_of(columns: Columns) -> NDArray[np.float64]:
        values = np.full(len(columns[ALGORITHM]), default)
        for algorithm, figure in defined.items():
            rows = columns[ALGORITHM] == algorithm
            values[rows] = figure(select_rows(columns, rows))
        return values

    return figure_of if defined else None


@dataclass(frozen=True)
class _Descriptions:
    """The descriptions of n configs: the features of a config's algorithm, with 0 for all other algorithms."""

    describes: Mapping[str, Callable[[Columns], Description]]
    feature_names: Sequence[str]
    """The names of all algorithms' features, without repeats."""
    positions: Mapping[str, NDArray[np.int64]]
    """The columns of each algorithm's features."""
    columns: Columns

    def features(self) -> NDArray[np.float32]:
        """Return one row for each config."""
        chosen = self.columns[ALGORITHM]
        features = np.zeros((len(chosen), len(self.feature_names)), dtype=np.float32)
        for algorithm, describe in self.describes.items():
            rows = np.flatnonzero(chosen == algorithm)
            if len(rows):
                features[np.ix_(rows, self.positions[algorithm])] = describe(select_rows(self.columns, rows)).features()
        return features
