"""The roles of a tuner's parts, and the history that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from anole.record import Config, Measurement
from anole.space.space import Space, Vectors


@dataclass(frozen=True)
class Examples:
    """What a surrogate learns from.

    Attributes:
        features: shape (n, n_features), as the space gives them.
        scores: shape (n,), speed relative to the best of the same task, a failure is 0.
    """

    features: NDArray[np.float32]
    scores: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.scores)


class History:
    """What a run has measured so far, in arrays; speeds are discounted as the space says.

    Args:
        space: where the configs come from.
        flop: floating-point operations of one run of the task's kernel.
        prior: examples from similar tasks, which are learned before anything is measured.
    """

    def __init__(self, space: Space, flop: int, prior: Examples | None = None) -> None:
        self.space, self.flop, self.prior = space, flop, prior
        self.vectors: Vectors = np.empty((0, len(space.knobs)), dtype=np.int64)
        self.gflops: NDArray[np.float64] = np.empty(0)

    def __len__(self) -> int:
        return len(self.gflops)

    @property
    def best_gflops(self) -> float:
        """The fastest so far; 0 before the first success."""
        return float(self.gflops.max(initial=0.0))

    @property
    def visited(self) -> NDArray[np.int64]:
        """The indices that were measured, shape (n,)."""
        return self.space.indices(self.vectors)

    @property
    def scores(self) -> NDArray[np.float64]:
        """What surrogates learn, shape (n,): speed relative to the best, a failure is 0."""
        return self.gflops / max(self.best_gflops, 1e-12)

    def examples(self) -> Examples:
        """Returns what there is to learn from: what was measured, and before that the prior, if there is one."""
        if not len(self) and self.prior is not None:
            return self.prior
        return Examples(self.space.features(self.vectors), self.scores)

    def add(self, vectors: Vectors, measurements: Sequence[Measurement]) -> None:
        """Appends n measured index vectors, shape (n, n_knobs)."""
        speeds = np.array([self.flop / m.latency_s / 1e9 if m.latency_s else 0.0 for m in measurements])
        gflops = speeds * self.space.discounts(vectors)
        self.vectors = np.concatenate([self.vectors, vectors])
        self.gflops = np.concatenate([self.gflops, gflops])


@dataclass(frozen=True)
class Candidates:
    """What an explorer found worth considering, the most promising first.

    Attributes:
        vectors: shape (n, n_knobs), valid, distinct, never measured.
        scores: shape (n,), the surrogate's word; zeros before its first fit.
        values: the values that the explorer's critic gives them, shape (n,); None without a critic.
        epsilon: which share of a batch the explorer would rather have drawn at random; None leaves it to the sampler.
        log: figures of the search for the run's record (steps, queries, losses).
    """

    vectors: Vectors
    scores: NDArray[np.float64]
    log: dict[str, float] = field(default_factory=dict)
    epsilon: float | None = None
    values: NDArray[np.float64] | None = None


class Surrogate(Protocol):
    """Predicts speed without measuring."""

    @property
    def fitted(self) -> bool:
        """Whether there was anything to learn from yet."""

    def fit(self, history: History) -> None:
        """Learns the history's examples anew; without a success among them there is nothing to learn."""

    def score(self, vectors: Vectors) -> NDArray[np.float64]:
        """Returns, shape (n,), how promising index vectors of shape (n, n_knobs) are; about 1 is the best known."""

    def spread(self, vectors: Vectors) -> NDArray[np.float64]:
        """Returns, shape (n,), the standard deviation of the predicted speed relative to the best; 0 where unknown."""


class Explorer(Protocol):
    """Walks the space on the surrogate's word; may carry state from one iteration to the next."""

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        """Returns candidates; before the surrogate's first fit they are drawn uniformly."""


class Sampler(Protocol):
    """Chooses few, representative configs to measure."""

    def choose(self, candidates: Candidates, history: History, n: int, rng: np.random.Generator) -> Vectors:
        """Returns at most n distinct, valid, never measured index vectors, shape (at most n, n_knobs)."""


Timer = Callable[[int], float]
"""Runs a kernel so many times back to back and returns the mean seconds of one run."""


@dataclass(frozen=True)
class Timing:
    """What an evaluator found out about one kernel; times are in seconds.

    Attributes:
        latency_s: seconds of one run.
        latency_std_s: standard deviation over the repeats.
        cv: coefficient of variation of the repeats (standard deviation over mean).
        repeats: how many repeats were timed.
    """

    latency_s: float
    latency_std_s: float
    cv: float
    repeats: int


class Evaluator(Protocol):
    """Decides how often a kernel is run before its time is believed."""

    def evaluate(self, timer: Timer, best_s: float | None = None) -> Timing:
        """Times one kernel.

        Args:
            timer: runs it.
            best_s: seconds of one run of the fastest rival so far; None when there is none.
        """


Measure = Callable[[Sequence[Config]], Iterable[Measurement]]
"""Measures configs and gives their measurements in the same order, if it can one by one; failures too."""
