"""The action mask: steps of knobs, one after the other, that together lead to a valid config."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from anole.space.space import Space, Vectors

_AT_ONCE = 1 << 14
"""Number of configs whose validity is asked for at once, which bounds memory."""


class ActionMask:
    """The steps that knobs may take, one knob after the other, so that no move is drawn in vain: down, none, or up.

    If the space can be enumerated, a step is allowed if the later knobs have steps that complete it to a valid config.
    Otherwise it is allowed if the config is valid while the later knobs stay, so that a move goes from one valid config
    to the next. In both cases at least one step always is allowed: a valid config may stay what it is.
    """

    def __init__(self, space: Space, n_enumerable: int = 1 << 20) -> None:
        self.space = space
        self._completable = _completable(space, n_enumerable)
        sizes = np.append(space.cardinalities[1:], 1)
        self._strides = np.cumprod(sizes[::-1])[::-1]

    def allowed(self, vectors: Vectors, knob: int) -> NDArray[np.bool_]:
        """Return which steps one knob may take, shape (3, n).

        Earlier knobs have taken their steps in the index vectors, shape (n, n_knobs), and later ones have not.
        """
        bounded = within(vectors[:, knob], self.space.cardinalities[knob])
        if not self.space.constraints:
            return bounded
        if self._completable is None:
            return self._valid(vectors, knob, bounded)
        places = vectors @ self._strides + np.array([[-1], [0], [1]]) * self._strides[knob]
        return bounded & self._completable[knob].take(np.where(bounded, places, 0))

    def _valid(self, vectors: Vectors, knob: int, bounded: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which of a knob's bounded steps lead from valid index vectors to valid ones, shape (3, n)."""
        allowed = bounded.copy()
        for step in (-1, 1):
            (rows,) = np.nonzero(bounded[step + 1])
            moved = vectors[rows]
            moved[:, knob] += step
            allowed[step + 1, rows] = self.space.valid(moved)
        return allowed


def within(values: NDArray[np.int64], cardinalities: NDArray[np.int64] | np.int64) -> NDArray[np.bool_]:
    """Return which steps stay within the knobs' values, shape (3, *values.shape)."""
    return np.stack([values > 0, np.ones_like(values, dtype=bool), values < cardinalities - 1])


def _completable(space: Space, n_enumerable: int) -> list[NDArray[np.bool_]] | None:
    """Return for each knob which combinations of values later knobs can complete, shape (n_combinations,).

    A combination consists of the values of that knob and of earlier ones after their steps, and of the values of later
    ones before theirs. None if there is nothing to know, or too much.
    """
    n_combinations = prod(map(int, space.cardinalities))
    if not space.constraints or n_combinations > n_enumerable:
        return None
    combinations = np.arange(n_combinations)
    parts = np.array_split(combinations, -(-n_combinations // _AT_ONCE))
    shape = tuple(map(int, space.cardinalities))
    valid = [space.valid(np.stack(np.unravel_index(part, shape), axis=1).astype(np.int64)) for part in parts]
    found = [np.concatenate(valid).reshape(shape)]
    for knob in reversed(range(1, len(shape))):
        here = np.moveaxis(found[-1], knob, 0)
        near = here.copy()  # a step away along the knob's axis, or here
        near[1:] |= here[:-1]
        near[:-1] |= here[1:]
        found.append(np.moveaxis(near, 0, knob))
    return [each.ravel() for each in reversed(found)]
