"""The state of a search, and the steps of its loop: propose, choose, begin, append, learn."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from anole.keys import derive_seed
from anole.record import Config, Measurement, Trial, utc_now
from anole.search.progress import expected_gain, rank_correlation
from anole.search.roles import Candidates, Examples, History
from anole.search.settings import TunerSettings
from anole.search.surrogate.none import NoSurrogate
from anole.space.space import Space, Vectors

_GUIDED_SHARE = 0.5
"""Share of the first batch that is chosen with the prior from similar tasks; the rest is chosen without it."""

_MIN_TRIALS_WITHOUT_MERIT = 96
"""Min trials before a search without merit ends: the fastest of fewer trials are a bad sample of the upper tail."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Subject:
    """The task to search.

    Attributes:
        flop: floating-point operations per execution of the task's kernel.
        task_key: the task's content key; all randomness derives from it and the seed.
        prior: examples from similar tasks, which the surrogate is fitted to before the first measurement.
        default: the config that is built without tuning; some explorers start with it.
    """

    space: Space
    flop: int
    task_key: str
    prior: Examples | None = None
    default: Config | None = None


@dataclass
class Batch:
    """The configs that one iteration measures.

    Attributes:
        vectors: index vectors of the measured configs, then of the pending ones, shape (n, n_knobs).
    """

    vectors: Vectors
    trials: list[Trial] = field(default_factory=list)

    @property
    def pending(self) -> Vectors:
        """The index vectors of the configs that have yet to be measured."""
        return self.vectors[len(self.trials) :]


class Search:
    """The state of one search, which `anole.search.loop.tune` advances step by step.

    A search with recorded trials is resumed by replay: the explorer, the sampler and the surrogate propose and choose
    again, which restores their state, and the recorded configs replace the chosen ones.

    Attributes:
        trials: replayed and new trials, in the order of their iterations.
        batch: the configs of the current iteration; None between two iterations.
        iteration: the number of the latest iteration; -1 before the first.
        log: statistics of the latest iteration's search; ``rank_correlation`` refers to the previous batch, see
            `anole.search.progress`.
        expected_gain: the share of the best latency that the next batch is expected to save; 1 before the first.
        exhausted: whether the explorer ran out of configs.
    """

    def __init__(self, subject: Subject, settings: TunerSettings, *, seed: int, recorded: Sequence[Trial] = ()) -> None:
        self.subject, self.settings = subject, settings
        self.trials: list[Trial] = []
        self.batch: Batch | None = None
        self.iteration = -1
        self.log: Mapping[str, float] = {}
        self.expected_gain = 1.0
        self.exhausted = False
        self._seed, self._rng = seed, np.random.default_rng()
        self._n_batch = settings.batch_in(subject.space)
        self._recorded = sorted(recorded, key=lambda trial: trial.number)
        self._numbers = itertools.count(self._recorded[-1].number + 1 if self._recorded else 0)
        self._history = History(subject.space, subject.flop, subject.prior, subject.default)
        self._explorer = settings.explorer.start(subject.space)
        self._sampler = settings.sampler.start(subject.space)
        self._surrogate = settings.surrogate.start(subject.space)
        self._agreement: Mapping[str, float] = {}
        self._began_s = self._iteration_began_s = 0.0

    @property
    def converged(self) -> bool:
        """Whether the next trials are expected to gain less than `min_gain`."""
        min_gain, n_ahead = self.settings.min_gain, self.settings.trials_ahead(self.subject.space)
        if min_gain is None or (not self.subject.space.merit and len(self._history) < _MIN_TRIALS_WITHOUT_MERIT):
            return False
        return expected_gain(self._history.gflops, n_ahead) < min_gain

    @property
    def done(self) -> bool:
        """Whether no further trials are useful, or allowed."""
        limit = self.settings.max_iterations
        is_last = limit is not None and self.batch is None and self.iteration + 1 >= limit
        return self.exhausted or self.converged or is_last

    def start_clock(self) -> None:
        """Continue the run's clock from the elapsed seconds of its last trial."""
        self._began_s = time.perf_counter() - (self.trials[-1].elapsed_s if self.trials else 0.0)

    def propose(self) -> Candidates:
        """Start an iteration: fit the surrogate to the history and let the explorer propose candidates."""
        self._iteration_began_s = time.perf_counter()
        self.iteration += 1
        self._rng = np.random.default_rng(derive_seed(self._seed, self.subject.task_key, self.iteration))
        if len(self._history) or self._history.prior is not None:
            self._surrogate.fit(self._history)
        return self._explorer.propose(self._surrogate, self._history, self._rng)

    def choose(self, candidates: Candidates) -> Vectors:
        """Return the sampler's choice for a full batch, even if the budget allows only a part of it.

        Examples from similar tasks may mislead, so they guide only a share of the first batch.
        """
        n = self._n_batch
        if len(self._history) or self._history.prior is None:
            return self._sampler.choose(candidates, self._history, n, self._rng)
        guided = self._sampler.choose(candidates, self._history, math.ceil(_GUIDED_SHARE * n), self._rng)
        unguided = self._explorer.propose(NoSurrogate().start(self.subject.space), self._history, self._rng).vectors
        return np.concatenate([guided, self._exclude(unguided, guided)[: n - len(guided)]])

    def begin(self, chosen: Vectors, log: Mapping[str, float]) -> None:
        """Make the chosen configs the batch; recorded trials of the iteration count as chosen and as measured.

        If there are neither, the space is exhausted.
        """
        recorded = [trial for trial in self._recorded if trial.iteration == self.iteration]
        vectors = self.subject.space.vectors_of(trial.config for trial in recorded)
        if not self._recorded or self.iteration >= self._recorded[-1].iteration:
            new_vectors = self._exclude(chosen, vectors)
            vectors = np.concatenate([vectors, new_vectors[: self._n_batch - len(recorded)]])
            self.exhausted = not len(vectors)
        if self.exhausted:
            logger.info("the space is exhausted after %d trials", len(self.trials))
            return
        self.batch = Batch(vectors, recorded)
        self.log = {"search_s": time.perf_counter() - self._iteration_began_s, **self._agreement, **log}
        if recorded:
            self.trials += recorded
            self.start_clock()

    def pending(self, n_trials: int) -> list[Config]:
        """Return the pending configs of the batch that a budget of `n_trials` allows."""
        if self.batch is None:
            return []
        n_left = max(0, n_trials - len(self.trials))
        return [self.subject.space.config(vector) for vector in self.batch.pending[:n_left]]

    def append(self, config: Config, measurement: Measurement) -> Trial:
        """Append the measurement of the next pending config as a trial, and return the trial."""
        assert self.batch is not None
        gflops = self.subject.flop / measurement.latency_s / 1e9 if measurement.latency_s else None
        elapsed_s = time.perf_counter() - self._began_s
        trial = Trial(next(self._numbers), self.iteration, config, measurement, elapsed_s, gflops, utc_now())
        self.trials.append(trial)
        self.batch.trials.append(trial)
        return trial

    def learn(self) -> None:
        """End the iteration if its batch is complete: add it to the history and update the expected gain.

        The surrogate is fitted when the next iteration begins, which saves a fit after the last one.
        """
        if self.batch is None or len(self.batch.pending):
            return
        self._agreement = self._agreement_on(self.batch)
        self._history.add(self.batch.vectors, [trial.measurement for trial in self.batch.trials])
        self.expected_gain = expected_gain(self._history.gflops, self._n_batch)
        self.batch = None
        if self.converged:
            logger.info("converged after %d trials: more would save less than the minimum gain", len(self.trials))

    def _agreement_on(self, batch: Batch) -> dict[str, float]:
        """Return the rank correlation of a batch's speeds with the scores of the surrogate that chose the batch."""
        if not self._surrogate.fitted:
            return {}
        speeds = np.array([trial.gflops or 0.0 for trial in batch.trials])
        correlation = rank_correlation(self._surrogate.score(batch.vectors), speeds)
        return {} if correlation is None else {"rank_correlation": correlation}

    def _exclude(self, vectors: Vectors, others: Vectors) -> Vectors:
        """Return the index vectors whose programs differ from all programs of `others`."""
        space = self.subject.space
        return vectors[~np.isin(space.identities(vectors), space.identities(others))]
