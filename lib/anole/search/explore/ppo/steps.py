"""Steps of knobs that can be completed to a valid config, so that no joint move is drawn in vain."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from anole.space.space import Space, Vectors

_ENUMERABLE = 1 << 20

_AT_ONCE = 1 << 14
"""Number of configs whose validity is asked for at once, which bounds memory."""


class Steps:
    """The steps that knobs may take, one knob after the other: one value down, none, or one up.

    If the space can be enumerated, a step is allowed if the later knobs have steps that complete it to a valid config.
    At least one always is: a valid config may stay what it is. Otherwise only the knobs' ends are known.

    Args:
        space: the space that is walked.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self._completable = _completable(space)
        sizes = np.append(space.cardinalities[1:], 1)
        self._strides = np.cumprod(sizes[::-1])[::-1]

    @property
    def complete(self) -> bool:
        """Whether every joint move of allowed steps leads to a valid config."""
        return self._completable is not None or not self.space.constraints

    def within_bounds(self, vectors: Vectors) -> NDArray[np.bool_]:
        """Returns which steps keep each knob within its bounds, shape (3, n, n_knobs)."""
        return within(vectors, self.space.cardinalities)

    def allowed(self, vectors: Vectors, knob: int) -> NDArray[np.bool_]:
        """Returns which steps one knob may take, shape (3, n).

        Args:
            vectors: index vectors in which earlier knobs have taken their steps and later ones have not, shape
                (n, n_knobs).
            knob: the knob's position.
        """
        bounded = within(vectors[:, knob], self.space.cardinalities[knob])
        if self._completable is None:
            return bounded
        places = vectors @ self._strides + np.array([[-1], [0], [1]]) * self._strides[knob]
        return bounded & self._completable[knob].take(np.where(bounded, places, 0))


def within(values: NDArray[np.int64], cardinalities: NDArray[np.int64] | np.int64) -> NDArray[np.bool_]:
    """Returns which steps stay within the knobs' values, shape (3, *values.shape)."""
    return np.stack([values > 0, np.ones_like(values, dtype=bool), values < cardinalities - 1])


def _completable(space: Space) -> list[NDArray[np.bool_]] | None:
    """Returns for each knob which combinations of values later knobs can complete, shape (n_combinations,).

    A combination consists of the values of that knob and of earlier ones after their steps, and of the values of later
    ones before theirs. None if there is nothing to know, or too much.
    """
    n_combinations = prod(map(int, space.cardinalities))
    if not space.constraints or n_combinations > _ENUMERABLE:
        return None
    combinations = np.arange(n_combinations)
    parts = np.array_split(combinations, -(-n_combinations // _AT_ONCE))
    shape = tuple(map(int, space.cardinalities))
    valid = [space.valid(np.stack(np.unravel_index(part, shape), axis=1).astype(np.int64)) for part in parts]
    found = [np.concatenate(valid).reshape(shape)]
    for knob in reversed(range(1, len(shape))):
        found.append(_or_a_step_away(found[-1], knob))
    return [each.ravel() for each in reversed(found)]


def _or_a_step_away(holds: NDArray[np.bool_], axis: int) -> NDArray[np.bool_]:
    """Returns where a condition holds at a place or at one of its two neighbours along an axis."""
    moved = np.moveaxis(holds, axis, 0)
    near = moved.copy()
    near[1:] |= moved[:-1]
    near[:-1] |= moved[1:]
    return np.moveaxis(near, 0, axis)
