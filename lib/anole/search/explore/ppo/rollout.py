"""Rollouts: parallel episodes that walk a space; a step moves each knob one down, one up or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anole.space.space import Space, Vectors

Policy = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""From states, shape (n, n_knobs), to the logits of decrement, stay and increment, shape (3, n, n_knobs)."""

_DRAWS = 4
"""Joint moves drawn at once for each episode; the first valid one is taken."""


@dataclass(frozen=True)
class Rollout:
    """The path of n_episodes over n_steps.

    Attributes:
        vectors: index vectors before each step and after the last, shape (n_steps + 1, n_episodes, n_knobs).
        live: which episodes took part in a step, shape (n_steps, n_episodes); the others stand still.
        ended: which episodes ended with a step, shape (n_steps, n_episodes).
    """

    vectors: NDArray[np.int64]
    live: NDArray[np.bool_]
    ended: NDArray[np.bool_]

    @property
    def actions(self) -> NDArray[np.int64]:
        """The actions, shape (n_steps, n_episodes, n_knobs): 0 decrement, 1 stay, 2 increment."""
        return np.diff(self.vectors, axis=0) + 1


def roll_out(
    space: Space,
    policy: Policy,
    vectors: Vectors,
    live: NDArray[np.bool_],
    n_steps: int,
    converged_share: float | None,
    rng: np.random.Generator,
) -> Rollout:
    """Continues episodes from index vectors until all have ended, or for `n_steps` steps.

    An episode converges, and ends, when at least `converged_share` of its knobs stay in one step. The rule is that of
    RELEASE's code, which also counts knobs that push against a boundary: here the action mask makes them stay.

    Args:
        space: the space that the agents walk.
        policy: the policy.
        vectors: current configs of the episodes, shape (n_episodes, n_knobs).
        live: which episodes still walk, shape (n_episodes,).
        n_steps: steps at most.
        converged_share: the share of knobs with more than one value that must have converged to end an episode; None
            ends none.
        rng: source of randomness.
    """
    movable = space.cardinalities > 1
    path = [vectors]
    lives: list[NDArray[np.bool_]] = []
    ends: list[NDArray[np.bool_]] = []
    while live.any() and len(lives) < n_steps:
        moved, drawn = move(space, vectors, policy(space.normalized(vectors)), rng)
        moved = np.where(live[:, None], moved, vectors)
        ended = np.zeros_like(live)
        if converged_share is not None and movable.any():
            # An episode that drew no valid move did not choose to stay.
            staying = (moved == vectors)[:, movable].mean(axis=1)
            ended = live & drawn & (staying >= converged_share)
        path.append(moved)
        lives.append(live)
        ends.append(ended)
        vectors, live = moved, live & ~ended
    shape = (len(lives), len(vectors))
    return Rollout(np.array(path), np.array(lives).reshape(shape), np.array(ends, dtype=bool).reshape(shape))


def allowed(space: Space, vectors: Vectors) -> NDArray[np.bool_]:
    """Returns which actions keep every knob within its bounds, shape (3, n, n_knobs)."""
    return np.stack([vectors > 0, np.ones_like(vectors, dtype=bool), vectors < space.cardinalities - 1])


def move(
    space: Space, vectors: Vectors, logits: NDArray[np.float32], rng: np.random.Generator
) -> tuple[Vectors, NDArray[np.bool_]]:
    """Draws a joint move for each episode until it is valid.

    Args:
        space: the space that the agents walk.
        vectors: current configs of the episodes, shape (n_episodes, n_knobs).
        logits: the logits of the three actions of every knob, shape (3, n_episodes, n_knobs).
        rng: source of randomness.

    Returns:
        The next configs of the episodes, shape (n_episodes, n_knobs), and which episodes drew a valid move, shape
        (n_episodes,); the others stay where they are.
    """
    n_episodes, n_knobs = vectors.shape
    masked = np.where(allowed(space, vectors), logits, -np.inf)
    down, stay, up = np.exp(masked - masked.max(axis=0))
    n_draws = _DRAWS if space.constraints else 1
    thresholds = rng.random((n_draws, n_episodes, n_knobs)) * (down + stay + up)
    moved = vectors + (thresholds >= down + stay) - (thresholds < down)
    valid = space.valid(moved.reshape(-1, n_knobs)).reshape(n_draws, n_episodes)
    drawn: NDArray[np.bool_] = np.any(valid, axis=0)
    first_valid = moved[np.argmax(valid, axis=0), np.arange(n_episodes)]
    return np.where(drawn[:, None], first_valid, vectors), drawn
