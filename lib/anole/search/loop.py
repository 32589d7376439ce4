"""The loop: explore, sample, measure, learn; after an interruption it goes on as if there had been none."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from anole.keys import derive_seed
from anole.record import Config, Confirmation, Trial, utc_now
from anole.search.confirm import Worth, confirm, ranked, rivals
from anole.search.roles import Candidates, Examples, History, Measure
from anole.search.settings import TunerSettings
from anole.search.surrogate.blind import Blind
from anole.space.space import Space, Vectors

TUNER_VERSION = 4
"""Raised when the same settings lead to other proposals than before; a part of a run's key."""

_LED_SHARE = 0.5
"""Of the first batch, what similar tasks choose; the rest is what the explorer begins with, as without them."""

_GAIN_MEMORY = 0.5
"""How much of the expected gain is what was expected before."""

logger = logging.getLogger(__name__)


def _ignore(*_: object) -> None:
    pass


@dataclass(frozen=True)
class Subject:
    """What is searched.

    Attributes:
        space: where the configs come from.
        flop: floating-point operations of one run of the task's kernel.
        task_key: the task's content key, which all randomness comes from, together with the seed.
        prior: what similar tasks teach, before anything is measured.
    """

    space: Space
    flop: int
    task_key: str
    prior: Examples | None = None


@dataclass(frozen=True)
class Watch:
    """Who is told what happens.

    Attributes:
        iteration: is handed the number of every iteration that measures something, with figures of its search.
        trial: is handed every new trial as soon as it is measured.
        confirmation: is handed every new confirmation, the fastest first.
    """

    iteration: Callable[[int, Mapping[str, float]], None] = _ignore
    trial: Callable[[Trial], None] = _ignore
    confirmation: Callable[[Confirmation], None] = _ignore


def tune(
    subject: Subject,
    settings: TunerSettings,
    measure: Measure,
    n_trials: int,
    *,
    seed: int,
    recorded: Sequence[Trial] = (),
    confirmed: Sequence[Confirmation] = (),
    confirm_with: Measure | None = None,
    watch: Watch = Watch(),
) -> Trial | Confirmation | None:
    """Tunes one task: measures promising configs while it is worth it, then confirms the best.

    Args:
        subject: what is searched.
        settings: the parts of the tuner.
        measure: what measures a batch.
        n_trials: the budget, recorded trials included.
        seed: where all randomness comes from.
        recorded: trials of the same run.
        confirmed: confirmations of the same run; the fastest are not confirmed again after as many trials.
        confirm_with: measures the fastest configs again, more carefully; they stay unconfirmed without it.
        watch: who is told what happens.

    Returns:
        The fastest: confirmed, if anything was, or as its trial; None when every trial failed.

    Raises:
        ConfigError: a recorded config does not belong to the space.
    """
    trials = list(recorded)
    if len(trials) < n_trials:
        search = Search(subject, settings, measure, seed=seed, recorded=recorded, watch=watch)
        search.advance(n_trials)
        trials = search.trials
    ranking = settle(trials, settings, confirmed, confirm_with, subject.space.worth, watch)
    return next(iter(ranking), None)


def settle(
    trials: Sequence[Trial],
    settings: TunerSettings,
    confirmed: Sequence[Confirmation],
    confirm_with: Measure | None,
    worth: Worth,
    watch: Watch = Watch(),
    default: Config | None = None,
) -> list[Trial | Confirmation]:
    """Confirms the fastest of all trials of a run, unless that was done, and returns all that worked, the best first.

    The default config competes where one is given: a search may not have met it, and should not end behind it.
    """
    confirmations = [confirmation for confirmation in confirmed if confirmation.after_trials == len(trials)]
    if confirm_with is not None and not confirmations:
        confirmations = confirm(rivals(trials, settings.n_confirm, default, worth), confirm_with, len(trials))
        for confirmation in confirmations:
            watch.confirmation(confirmation)
    return ranked(trials, confirmations, worth)


@dataclass
class _Iteration:
    """One round of the loop.

    Attributes:
        vectors: of its trials so far and then of those to come, shape (n, n_knobs).
        trials: as far as they are measured.
        log: figures of its search.
    """

    number: int
    vectors: Vectors
    trials: list[Trial]
    log: Mapping[str, float]

    @property
    def pending(self) -> Vectors:
        """What is still to be measured."""
        return self.vectors[len(self.trials) :]


class Search:
    """The search of one task, which goes on for as many trials as it is granted.

    A search is resumed by replay: given the trials that were recorded, the explorer proposes again what it did
    then, so that its state is what it was, but the recorded configs count as chosen and are not measured
    again. An iteration that was cut off is filled up. So a run that was interrupted, or whose budget was
    raised, ends with the trials that it would have had in one go.

    Args:
        subject: what is searched.
        settings: the parts of the tuner.
        measure: what measures a batch.
        seed: where all randomness comes from.
        recorded: trials of the same run, which are replayed before anything is measured.
        watch: who is told what happens.

    Attributes:
        trials: by number, replayed and new ones.
        expected_gain: which share of the best latency the next iteration is expected to save: what past
            iterations saved, the last one weighing as much as all before it. It is 1 in the beginning.
        exhausted: whether there was nothing more to propose.
    """

    def __init__(
        self,
        subject: Subject,
        settings: TunerSettings,
        measure: Measure,
        *,
        seed: int,
        recorded: Sequence[Trial] = (),
        watch: Watch = Watch(),
    ) -> None:
        self.subject, self.settings = subject, settings
        self.trials: list[Trial] = []
        self.expected_gain = 1.0
        self.exhausted = False
        self._measure, self._seed, self._watch = measure, seed, watch
        self._recorded = sorted(recorded, key=lambda trial: trial.number)
        self._history = History(subject.space, subject.flop, subject.prior)
        self._explorer = settings.explorer.start(subject.space)
        self._sampler = settings.sampler.start(subject.space)
        self._surrogate = settings.surrogate.start(subject.space)
        self._iteration: _Iteration | None = None
        self._numbers = itertools.count(self._recorded[-1].number + 1 if self._recorded else 0)
        self._n_iterations = 0
        self._began_s = 0.0

    @property
    def converged(self) -> bool:
        """Whether the next iteration is expected to gain too little to be worth it."""
        return self.settings.min_gain is not None and self.expected_gain < self.settings.min_gain

    def advance(self, n_trials: int) -> None:
        """Goes on until there are `n_trials`, the space is exhausted or the search has converged."""
        self._resume_clock()
        while len(self.trials) < n_trials and not self.exhausted:
            if self._iteration is not None:
                self._fill(self._iteration, n_trials - len(self.trials))
            elif self.converged:
                logger.info("converged after %d trials", len(self.trials))
                return
            else:
                self._iteration = self._propose()

    def _propose(self) -> _Iteration:
        """Searches and chooses; what is recorded of the iteration counts as chosen and as measured."""
        began_s = time.perf_counter()
        if len(self._history) or self._history.prior is not None:
            self._surrogate.fit(self._history)
        number, space, batch = self._n_iterations, self.subject.space, self.settings.batch
        rng = np.random.default_rng(derive_seed(self._seed, self.subject.task_key, number))
        candidates = self._explorer.propose(self._surrogate, self._history, rng)
        # Always a whole batch, cut off later: a budget that is raised must not change the choice.
        chosen = self._choose(candidates, batch, rng)
        known = [trial for trial in self._recorded if trial.iteration == number]
        vectors = _vectors(space, known)
        if not self._recorded or number >= self._recorded[-1].iteration:
            fresh = chosen[~np.isin(space.indices(chosen), space.indices(vectors))]
            vectors = np.concatenate([vectors, fresh[: batch - len(known)]])
            self.exhausted = not len(vectors)
        if self.exhausted:
            logger.info("nothing more to propose after %d trials", len(self.trials))
        if known:
            self.trials += known
            self._resume_clock()
        self._n_iterations += 1
        return _Iteration(number, vectors, known, {"search_s": time.perf_counter() - began_s, **candidates.log})

    def _choose(self, candidates: Candidates, batch: int, rng: np.random.Generator) -> Vectors:
        """Returns the sampler's choice; similar tasks may err, so that they lead but a share of the first batch."""
        if len(self._history) or self._history.prior is None:
            return self._sampler.choose(candidates, self._history, batch, rng)
        led = self._sampler.choose(candidates, self._history, math.ceil(_LED_SHARE * batch), rng)
        space = self.subject.space
        unled = self._explorer.propose(Blind().start(space), self._history, rng).vectors
        fresh = unled[~np.isin(space.indices(unled), space.indices(led))]
        return np.concatenate([led, fresh[: batch - len(led)]])

    def _fill(self, iteration: _Iteration, n_at_most: int) -> None:
        """Measures what is pending of an iteration, and learns from it once it is whole."""
        configs = [self.subject.space.config(vector) for vector in iteration.pending[:n_at_most]]
        if configs:
            self._watch.iteration(iteration.number, iteration.log)
        for config, measurement in zip(configs, self._measure(configs) if configs else (), strict=True):
            gflops = self.subject.flop / measurement.latency_s / 1e9 if measurement.latency_s else None
            elapsed_s = time.perf_counter() - self._began_s
            trial = Trial(next(self._numbers), iteration.number, config, measurement, elapsed_s, gflops, utc_now())
            self.trials.append(trial)
            iteration.trials.append(trial)
            self._watch.trial(trial)
        if not len(iteration.pending):
            self._learn(iteration)
            self._iteration = None

    def _learn(self, iteration: _Iteration) -> None:
        before = self._history.best_gflops
        self._history.add(iteration.vectors, [trial.measurement for trial in iteration.trials])
        after = self._history.best_gflops
        gain = 1.0 - before / after if after else 0.0
        self.expected_gain = _GAIN_MEMORY * self.expected_gain + (1.0 - _GAIN_MEMORY) * gain

    def _resume_clock(self) -> None:
        """Lets the run's seconds go on after those of its last trial."""
        self._began_s = time.perf_counter() - (self.trials[-1].elapsed_s if self.trials else 0.0)


def _vectors(space: Space, trials: Sequence[Trial]) -> Vectors:
    """Returns the index vectors of n trials, shape (n, n_knobs)."""
    vectors = [space.vector(trial.config) for trial in trials]
    return np.array(vectors, dtype=np.int64).reshape(-1, len(space.knobs))
