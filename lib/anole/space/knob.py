"""A knob: one tunable choice, with a table of its possible values."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.errors import ConfigError

ALGORITHM = "algorithm"
"""Name of the knob that chooses between programs with separate knobs."""


@dataclass(frozen=True, eq=False)
class Knob:
    """A tunable choice.

    Attributes:
        name: as in the papers, such as ``tile_f``.
        values: all values, in the order of their indices; a tuple of factors for a split, a plain value for an option.
        features: the surrogate's features of each value, shape (n_values, n_features).
        feature_names: names of the columns of `features`; equal names mean the same in the spaces of other tasks.
        agent: the agent that moves the knob, if several agents search a space together.
        algorithms: the values of the knob `ALGORITHM` for which this knob has an effect; None for all.
        balanced: whether random samples contain about the same number of configs with each value (stratified sampling).
    """

    name: str
    values: tuple[Any, ...]
    features: NDArray[np.float32]
    feature_names: tuple[str, ...]
    agent: str = ""
    algorithms: tuple[str, ...] | None = None
    balanced: bool = False

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def table(self) -> NDArray[Any]:
        """The values as an array: (n_values, n_parts) for a split, (n_values,) for an option."""
        return np.array(self.values)

    @cached_property
    def _value_indices(self) -> dict[Any, int]:
        return {value: index for index, value in enumerate(self.values)}

    def matters_for(self, algorithm: object) -> bool:
        """Whether the knob has an effect for an algorithm."""
        return self.algorithms is None or algorithm in self.algorithms

    def index(self, value: Any) -> int:
        """Return the index of a value; a list is treated as a tuple.

        Raises:
            ConfigError: the knob has no such value.
        """
        index = self._value_indices.get(tuple(value) if isinstance(value, list) else value)
        if index is None:
            raise ConfigError(f"knob {self.name} has no value {value}; its {len(self)} values include {self.values[0]}")
        return index

    def restrict(self, allowed: Sequence[Any]) -> Knob:
        """Return the knob with only the allowed values, in their current order.

        Raises:
            ConfigError: the knob has no such value.
        """
        indices = sorted({self.index(value) for value in allowed})
        values = tuple(self.values[index] for index in indices)
        return replace(self, values=values, features=self.features[indices])


def split_knob(
    name: str, extent: int, n_parts: int, allow: Callable[[tuple[int, ...]], bool] | None = None, *, agent: str = ""
) -> Knob:
    """Return a knob whose values are all ordered factorizations of an extent into n parts, outermost first.

    `allow` selects the splits to keep; if it is None, or selects none, all are kept.
    """
    splits = list(_factorizations(extent, n_parts))
    return _split_knob(name, [split for split in splits if allow is None or allow(split)] or splits, agent)


def covering_knob(
    name: str, extent: int, n_parts: int, also: Sequence[tuple[int, ...]] = (), *, agent: str = ""
) -> Knob:
    """Return a knob whose values are splits that cover an extent, possibly with a tail beyond it.

    Every part but the outermost is a divisor of the extent or a power of two, as in AutoTVM's policy "verbose", and
    their product is at most the extent. The outermost part is the quotient, rounded up. `also` adds other splits.
    """
    lengths = sorted({*divisors(extent), *(1 << power for power in range(extent.bit_length()))})
    inner = [parts for parts in itertools.product(lengths, repeat=n_parts - 1) if prod(parts) <= extent]
    covering = [(-(-extent // prod(parts)), *parts) for parts in inner]
    return _split_knob(name, sorted({*covering, *also}), agent)


def _split_knob(name: str, splits: Sequence[tuple[int, ...]], agent: str) -> Knob:
    features = np.log2(np.array(splits, dtype=np.float32) + 1)
    return Knob(name, tuple(splits), features, tuple(f"{name}.{part}" for part in range(len(splits[0]))), agent)


def option_knob(name: str, values: Sequence[Any], *, agent: str = "", balanced: bool = False) -> Knob:
    """Return a knob with a few plain values: a number is its own feature, and strings are one-hot encoded."""
    numeric = all(isinstance(value, (int, float)) for value in values)
    features = np.array(values, dtype=np.float32)[:, None] if numeric else np.eye(len(values), dtype=np.float32)
    names = (name,) if numeric else tuple(f"{name}={value}" for value in values)
    return Knob(name, tuple(values), features, names, agent, balanced=balanced)


def _factorizations(extent: int, n_parts: int) -> list[tuple[int, ...]]:
    if n_parts == 1:
        return [(extent,)]
    return [(first, *rest) for first in divisors(extent) for rest in _factorizations(extent // first, n_parts - 1)]


def divisors(extent: int) -> tuple[int, ...]:
    """Return all divisors of an integer in ascending order."""
    return tuple(divisor for divisor in range(1, extent + 1) if extent % divisor == 0)
