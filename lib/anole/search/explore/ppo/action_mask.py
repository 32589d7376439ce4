"""The action mask of PPO and MAPPO: the steps of each knob that can lead to a valid config."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from anole.space.space import Space, Vectors

_BATCH_SIZE = 1 << 14
"""Number of configs whose validity is checked together, which bounds memory."""


class ActionMask:
    """The steps that knobs may take, one knob after the other, to get a valid config: down, none, or up.

    If the space can be enumerated, a step is allowed if steps of the later knobs can complete it to a valid config.
    Otherwise it is allowed if the config is valid while the later knobs stay, which makes every intermediate config
    valid. In both cases at least one step is allowed: no knob has to leave a valid config.
    """

    def __init__(self, space: Space, n_enumerable: int = 1 << 20) -> None:
        self.space = space
        self._completable = _completable(space, n_enumerable)
        sizes = np.append(space.cardinalities[1:], 1)
        self._strides = np.cumprod(sizes[::-1])[::-1]

    def allowed_steps(self, vectors: Vectors, knob: int) -> NDArray[np.bool_]:
        """Return the mask of the steps that one knob may take, shape (3, n).

        In the index vectors, shape (n, n_knobs), earlier knobs have already taken their steps, later ones have not.
        """
        bounded = bounded_steps(vectors[:, knob], self.space.cardinalities[knob])
        if not self.space.constraints:
            return bounded
        if self._completable is None:
            return self._valid(vectors, knob, bounded)
        offsets = vectors @ self._strides + np.array([[-1], [0], [1]]) * self._strides[knob]
        return bounded & self._completable[knob].take(np.where(bounded, offsets, 0))

    def _valid(self, vectors: Vectors, knob: int, bounded: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the mask of a knob's bounded steps that lead from valid index vectors to valid ones, shape (3, n)."""
        allowed = bounded.copy()
        for step in (-1, 1):
            (rows,) = np.nonzero(bounded[step + 1])
            moved = vectors[rows]
            moved[:, knob] += step
            allowed[step + 1, rows] = self.space.valid(moved)
        return allowed


def bounded_steps(values: NDArray[np.int64], cardinalities: NDArray[np.int64] | np.int64) -> NDArray[np.bool_]:
    """Return the mask of the steps that stay within the knobs' values, shape (3, *values.shape)."""
    return np.stack([values > 0, np.ones_like(values, dtype=bool), values < cardinalities - 1])


def _completable(space: Space, n_enumerable: int) -> list[NDArray[np.bool_]] | None:
    """Return for each knob the mask of the combinations that later knobs can complete, shape (n_combinations,).

    A combination consists of the values of that knob and earlier ones after their steps, and of later ones before
    theirs. None if the space has no constraints, or more than `n_enumerable` combinations.
    """
    n_combinations = prod(map(int, space.cardinalities))
    if not space.constraints or n_combinations > n_enumerable:
        return None
    combinations = np.arange(n_combinations)
    parts = np.array_split(combinations, -(-n_combinations // _BATCH_SIZE))
    shape = tuple(map(int, space.cardinalities))
    valid = [space.valid(np.stack(np.unravel_index(part, shape), axis=1).astype(np.int64)) for part in parts]
    masks = [np.concatenate(valid).reshape(shape)]
    for knob in reversed(range(1, len(shape))):
        mask = np.moveaxis(masks[-1], knob, 0)
        reachable = mask.copy()  # at most one step away along the knob's axis
        reachable[1:] |= mask[:-1]
        reachable[:-1] |= mask[1:]
        masks.append(np.moveaxis(reachable, 0, knob))
    return [mask.ravel() for mask in reversed(masks)]
