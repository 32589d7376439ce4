"""A problem: a space whose every valid config was measured or simulated, so its optimum is known."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from anole.errors import StoreError
from anole.record import Config, Measurement, Status
from anole.search.state import Subject
from anole.space.space import Space
from anole.task import Workload

_MAX_CONFIGS = 1 << 24
"""Limit on the size of a space with a table."""

_FLOP = 10**9
"""Assumed work of a kernel without a workload: GFLOP/s are then executions per second."""

STATUSES = {"timeout": Status.RUN_TIMEOUT, "compile": Status.BUILD_ERROR, "correctness": Status.WRONG_ANSWER}
"""The status of a failure by its T4 kind; all other kinds are run errors."""


@dataclass(frozen=True, eq=False)
class Problem:
    """A space with the latency of every valid config.

    Attributes:
        space: the space, or a restricted part of it.
        latencies_s: latencies of the valid configs in the order of their indices, shape (n_valid,); NaN is a failure.
        workload: the layer, if the space belongs to one.
        failures: the T4 kind of failure of each valid config, such as ``compile``; None if it was not recorded.
        repeats_s: all recorded execution times of each valid config; None if only means were recorded.
    """

    name: str
    space: Space
    latencies_s: NDArray[np.float64]
    workload: Workload | None = None
    failures: Sequence[str] | None = None
    repeats_s: Sequence[Sequence[float]] | None = None

    @cached_property
    def subject(self) -> Subject:
        """The subject of a search for the optimum."""
        if self.workload is None:
            return Subject(self.space, _FLOP, self.name)
        return Subject(self.space, self.workload.flop, self.workload.label)

    @property
    def best_s(self) -> float:
        """The lowest latency."""
        return float(np.nanmin(self.latencies_s))

    @cached_property
    def costs_s(self) -> NDArray[np.float64]:
        """The minimized cost of every valid config, its latency over its worth, shape (n_valid,).

        NaN is a failure, and infinity a config with zero worth.
        """
        with np.errstate(divide="ignore"):
            return self.latencies_s / self.space.worths(self.space.vectors(valid_indices(self.space)), self.latencies_s)

    @cached_property
    def optimum(self) -> float:
        """The lowest cost, in seconds."""
        return float(np.nanmin(self.costs_s))

    @cached_property
    def median(self) -> float:
        """The median cost of the programs that run, in seconds: the cost that a search starts from."""
        costs_s = self._random_costs_s
        return float(np.median(costs_s[np.isfinite(costs_s)]))

    @cached_property
    def _random_costs_s(self) -> NDArray[np.float64]:
        """The costs of one config of each program, which random search samples from."""
        return self.costs_s[np.unique(self.space.all_identities, return_index=True)[1]]

    def random_curve(self, n_trials: int) -> NDArray[np.float64]:
        """Return the expected best cost after each of n random trials without replacement, shape (n_trials,).

        Before its first cost below the median, a search counts as having found the median, as in Willemsen et al., "A
        methodology for comparing optimization algorithms for auto-tuning" (FGCS 159, 2024).
        """
        clipped_s = np.fmin(self._random_costs_s, self.median)
        costs_s, counts = np.unique(clipped_s, return_counts=True)
        n_configs, n_cheaper = len(clipped_s), np.cumsum(counts) - counts
        # The probability that no trial so far is cheaper than a cost: C(N - cheaper, n) / C(N, n).
        none_cheaper, curve = np.ones(len(costs_s)), np.empty(n_trials)
        for n in range(n_trials):
            none_cheaper *= np.clip((n_configs - n_cheaper - n) / max(n_configs - n, 1), 0, 1)
            curve[n] = costs_s[0] + np.diff(costs_s) @ none_cheaper[1:]
        return curve

    def expected_random(self, n_trials: int) -> float:
        """Return the last value of `random_curve`: the expected best cost of n random trials, in seconds."""
        return float(self.random_curve(n_trials)[-1])

    def evaluate(self, config: Config) -> float:
        """Return the cost of a config in seconds: infinity if the config is invalid or fails.

        Raises:
            ConfigError: the space has other knobs or values.
        """
        vector = self.space.vectors_of([config])
        cost_s = float(self.costs_s[self.rows([config])[0]]) if self.space.valid(vector)[0] else math.inf
        return math.inf if math.isnan(cost_s) else cost_s

    def runs_s(self, config: Config) -> Sequence[float]:
        """Return all recorded execution times of a valid config; none if only their mean is known."""
        return () if self.repeats_s is None else self.repeats_s[self.rows([config])[0]]

    def rows(self, configs: Sequence[Config]) -> NDArray[np.int64]:
        """Return the indices of valid configs in the arrays of this problem, shape (n,)."""
        return np.searchsorted(valid_indices(self.space), self.space.indices(self.space.vectors_of(configs)))

    def gaps(self, configs: Sequence[Config]) -> NDArray[np.float64]:
        """Return the relative excess of the best cost so far over the optimum after each valid config, shape (n,)."""
        costs_s = np.nan_to_num(self.costs_s[self.rows(configs)], nan=np.inf, posinf=np.inf)
        return np.asarray(np.minimum.accumulate(costs_s) / self.optimum - 1)

    def measure(self, configs: Sequence[Config]) -> Iterator[Measurement]:
        """Look up the measurements of valid configs."""
        for row in self.rows(configs).tolist():
            latency_s = float(self.latencies_s[row])
            if math.isnan(latency_s):
                kind = "run" if self.failures is None else self.failures[row]
                error = f"failed when the table was recorded: {kind} error"
                yield Measurement(STATUSES.get(kind, Status.RUN_ERROR), error)
            else:
                yield Measurement(Status.OK, latency_s=latency_s)


def enlarge(problem: Problem, name: str, space: Space) -> Problem:
    """Return the problem of a larger space with the same knobs; configs that only the larger space has are failures.

    The space is enumerated, as all spaces with a table are.
    """
    vectors = problem.space.vectors(valid_indices(problem.space))
    for column, (knob, larger) in enumerate(zip(problem.space.knobs, space.knobs, strict=True)):
        vectors[:, column] = np.array([larger.values.index(value) for value in knob.values])[vectors[:, column]]
    latencies_s = np.full(space.size, np.nan)
    latencies_s[space.indices(vectors)] = problem.latencies_s
    return Problem(name, replace(space, is_enumerated=True), latencies_s, problem.workload)


def valid_indices(space: Space) -> NDArray[np.int64]:
    """Return all valid indices of a space.

    Raises:
        StoreError: the space is too large for a table.
    """
    if space.size > _MAX_CONFIGS:
        raise StoreError(f"a space of {space.size} configs is too large for a table; {_MAX_CONFIGS} fit")
    return space.all_valid_indices
