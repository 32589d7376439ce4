"""Searching by ask and tell: Anole's tuners on any space, and any optimizer on a problem."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anole.bench.problem import Problem
from anole.bench.spaces import Restriction, make_space
from anole.errors import AnoleError, ConfigError
from anole.record import Config, Measurement, Status, Trial
from anole.search import DEFAULT_PRESET
from anole.search.presets import read_tuner
from anole.search.settings import TunerSettings
from anole.search.state import Search, Subject
from anole.space.space import Space

_MAX_CALLS = 100
"""Limit on the calls of an objective per trial: an optimizer may propose known or invalid configs forever."""


class Tuner:
    """A tuner that proposes configs, and learns from latencies that its user measures.

    Attributes:
        search: the state of the search, with its trials.
    """

    def __init__(
        self,
        space: Space | Mapping[str, Sequence[Any]] | Subject,
        preset: str | TunerSettings = DEFAULT_PRESET,
        seed: int = 0,
        restrictions: Sequence[Restriction] = (),
    ) -> None:
        """Start a search of a space, a subject, or the combinations of knobs' values that satisfy `restrictions`.

        A preset, given by its name, never ends early.
        """
        if isinstance(space, Mapping):
            space = make_space(space, restrictions)
        subject = Subject(space, 10**9, "task") if isinstance(space, Space) else space
        settings = replace(read_tuner({"preset": preset}), min_gain=None) if isinstance(preset, str) else preset
        self.search = Search(subject, settings, seed=seed)
        self._asked: list[Config] = []
        self._told: dict[int, Measurement] = {}

    def ask(self) -> list[Config]:
        """Return the configs to measure next, the same ones until all have a latency; none if the search is over.

        All are valid, and no two configs of a search have the same program.
        """
        search = self.search
        if not self._asked and not search.done:
            if search.iteration < 0:
                search.start_clock()
            candidates = search.propose()
            search.begin(search.choose(candidates), candidates.log)
            self._asked = search.pending(sys.maxsize)
        return list(self._asked)

    def tell(self, configs: Sequence[Config], latencies_s: Sequence[float | None]) -> None:
        """Learn the latencies of some of the asked configs, in any order; None, NaN and infinity are failures.

        Raises:
            ConfigError: a config was not asked for, or has a latency already.
        """
        for config, latency_s in zip(configs, latencies_s, strict=True):
            failed = latency_s is None or not math.isfinite(latency_s)
            self.learn(config, Measurement(Status.RUN_ERROR) if failed else Measurement(Status.OK, None, latency_s))

    def learn(self, config: Config, measurement: Measurement) -> None:
        """Learn the measurement of one of the asked configs, as `tell` learns latencies."""
        position = next((at for at, each in enumerate(self._asked) if each == config and at not in self._told), None)
        if position is None:
            raise ConfigError(f"{config}: was not asked for, or has a latency already")
        self._told[position] = measurement
        # Trials are appended in the order of the batch, on which proposals depend.
        while 0 in self._told:
            self.search.append(self._asked.pop(0), self._told.pop(0))
            self._told = {at - 1: each for at, each in self._told.items()}
        self.search.learn()


@dataclass(frozen=True)
class Replay:
    """The trials of a search on a problem.

    Attributes:
        trials: the trials in order; `elapsed_s` is only the time of the search.
        iterations: statistics of each iteration's search, by the iteration's number.
    """

    trials: tuple[Trial, ...]
    iterations: Mapping[int, Mapping[str, float]]


def replay(
    problem: Problem, settings: TunerSettings, n_trials: int, seed: int, ends_at_the_optimum: bool = False
) -> Replay:
    """Tune on a problem instead of hardware, optionally ending at the optimum."""
    tuner, iterations = Tuner(problem.subject, settings, seed), dict[int, Mapping[str, float]]()
    search = tuner.search
    while len(search.trials) < n_trials and (configs := tuner.ask()):
        iterations[search.iteration] = search.log
        configs = configs[: n_trials - len(search.trials)]
        for config, measurement in zip(configs, problem.measure(configs), strict=True):
            tuner.learn(config, measurement)
            if ends_at_the_optimum and problem.evaluate(config) <= problem.optimum:
                return Replay(tuple(search.trials), iterations)
    return Replay(tuple(search.trials), iterations)


class BudgetSpentError(AnoleError):
    """An optimizer called its objective after the last trial."""


class Objective:
    """The cost of a problem's configs as a function that counts trials.

    A trial is the first evaluation of a valid program. Known and invalid configs cost no trial, but only
    100 times as many calls as trials are allowed.

    Attributes:
        costs_s: the cost of each trial in seconds; infinity is a failure.
        configs: the config of each trial.
    """

    def __init__(self, problem: Problem, n_trials: int) -> None:
        self.problem = problem
        self.n_trials = min(n_trials, len(np.unique(problem.space.all_identities)))
        self.costs_s: list[float] = []
        self.configs: list[Config] = []
        self._tried: set[int] = set()
        self.n_calls = 0

    @property
    def done(self) -> bool:
        """Whether the budget is spent."""
        return len(self.costs_s) >= self.n_trials or self.n_calls >= _MAX_CALLS * self.n_trials

    def __call__(self, config: Config) -> float:
        """Return the cost of a config in seconds; infinity is a failure, or an invalid config.

        Raises:
            BudgetSpentError: the budget is spent.
            ConfigError: the space has other knobs or values.
        """
        if self.done:
            raise BudgetSpentError(f"{self.problem.name}: all {self.n_trials} trials are spent")
        self.n_calls += 1
        cost_s, vector = self.problem.evaluate(config), self.problem.space.vectors_of([config])
        if self.problem.space.valid(vector)[0]:
            identity = int(self.problem.space.identities(vector)[0])
            if identity not in self._tried:
                self._tried.add(identity)
                self.costs_s.append(cost_s)
                self.configs.append(config)
        return cost_s
