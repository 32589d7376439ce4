"""The interfaces of a tuner's parts (surrogate, explorer, sampler, evaluator), and the history that they share."""

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
    """Training examples of a surrogate.

    Attributes:
        features: the space's features, shape (n, n_features).
        scores: speeds relative to the best of the same task, shape (n,); 0 for a failure.
    """

    features: NDArray[np.float32]
    scores: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.scores)


class History:
    """The measurements of a run so far, as arrays; speeds are multiplied by `Space.worths`.

    For the arguments see `anole.search.state.Subject`.
    """

    def __init__(self, space: Space, flop: int, prior: Examples | None = None, default: Config | None = None) -> None:
        self.space, self.flop, self.prior = space, flop, prior
        self.default: Vectors = space.vectors_of([] if default is None else [default])
        self.vectors: Vectors = space.vectors_of([])
        self.gflops: NDArray[np.float64] = np.empty(0)

    def __len__(self) -> int:
        return len(self.gflops)

    @property
    def best_gflops(self) -> float:
        """The highest speed so far, in GFLOP/s; 0 before the first success."""
        return float(self.gflops.max(initial=0.0))

    @property
    def visited(self) -> NDArray[np.int64]:
        """The identities of the measured configs in the space, shape (n,)."""
        return self.space.identities(self.vectors)

    @property
    def scores(self) -> NDArray[np.float64]:
        """Speeds relative to the best, shape (n,), 0 for a failure; surrogates are fitted to them."""
        return self.gflops / max(self.best_gflops, 1e-12)

    def examples(self) -> Examples:
        """Return the training examples: the measurements or, before the first one, the prior if there is one."""
        if not len(self) and self.prior is not None:
            return self.prior
        return self.measured()

    def measured(self) -> Examples:
        """Return the measurements alone as training examples."""
        return Examples(self.space.features(self.vectors), self.scores)

    def add(self, vectors: Vectors, measurements: Sequence[Measurement]) -> None:
        """Append n measured index vectors, shape (n, n_knobs)."""
        latencies_s = np.array([m.latency_s or np.nan for m in measurements])
        worths = self.space.worths(vectors, latencies_s)
        gflops = np.where(np.isfinite(latencies_s), self.flop / latencies_s / 1e9 * worths, 0.0)
        self.vectors = np.concatenate([self.vectors, vectors])
        self.gflops = np.concatenate([self.gflops, gflops])


@dataclass(frozen=True)
class Candidates:
    """Configs that an explorer proposes, the most promising first.

    Attributes:
        vectors: shape (n, n_knobs), valid, distinct, never measured.
        scores: the surrogate's scores, shape (n,); zeros before its first fit, or if the explorer does not use it.
        values: the values assigned by the explorer's critic, shape (n,); None without a critic.
        epsilon: random share of a batch, set by the explorer; None leaves it to the sampler.
        log: statistics of the search, stored with the run (steps, queries, losses); samplers add theirs.
    """

    vectors: Vectors
    scores: NDArray[np.float64]
    log: dict[str, float] = field(default_factory=dict)
    epsilon: float | None = None
    values: NDArray[np.float64] | None = None


class Surrogate(Protocol):
    """A model that predicts the speed of configs without measuring them."""

    @property
    def fitted(self) -> bool:
        """Whether the surrogate has been fitted to any examples."""

    def fit(self, history: History) -> None:
        """Refit to the history's examples; the surrogate becomes unfitted if none of them succeeded."""

    def score(self, vectors: Vectors) -> NDArray[np.float64]:
        """Return the scores, shape (n,), of index vectors of shape (n, n_knobs): higher is faster, about 1 the best."""

    def spread(self, vectors: Vectors) -> NDArray[np.float64]:
        """Return the standard deviation of the predicted relative speed, shape (n,); 0 where unknown."""


class Explorer(Protocol):
    """A search of the space that is guided by the surrogate; it may keep state between iterations."""

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        """Return candidates; before the surrogate's first fit, their choice does not depend on it."""


class Sampler(Protocol):
    """A rule that chooses a few representative candidates to measure."""

    def choose(self, candidates: Candidates, history: History, n: int, rng: np.random.Generator) -> Vectors:
        """Return at most n distinct, valid, never measured index vectors, shape (at most n, n_knobs)."""


Timer = Callable[[int], float]
"""Executes a kernel the given number of times back to back and returns the mean seconds of one execution."""


@dataclass(frozen=True)
class Timing:
    """The mean seconds of one execution, with the standard deviation and coefficient of variation of the repeats."""

    latency_s: float
    latency_std_s: float
    cv: float
    repeats: int


class Evaluator(Protocol):
    """A rule for how often a kernel is executed to determine its latency."""

    def evaluate(self, timer: Timer, best_s: float | None = None) -> Timing:
        """Return the timing of one kernel; `best_s` is the latency of the fastest rival so far, if there is one."""


Measure = Callable[[Sequence[Config]], Iterable[Measurement]]
"""Measures configs and yields their measurements in the same order, one by one if possible, failures included."""
