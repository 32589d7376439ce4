"""Fixtures and helpers for tests of searches: small spaces, histories, and calls of parts with fixed seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from anole.record import Measurement, Status, Trial
from anole.search.roles import Candidates, Explorer, History, Measure, Sampler, Surrogate
from anole.search.settings import Part, TunerSettings
from anole.search.state import Subject
from anole.search.watch import Watch
from anole.space import Constraint, Space, option_knob
from anole.space.space import Vectors
from anole.testing import formulas
from anole.testing.formulas import Formula
from anole.testing.in_memory import tune_in_memory
from kit.oracle import Oracle, OracleSurrogate


def space_of(cardinalities: Sequence[int], constraints: Sequence[Constraint] = ()) -> Space:
    """Return a space of the knobs ``k0``, ``k1`` and so on, whose values are their indices."""
    return Space([option_knob(f"k{at}", list(range(size))) for at, size in enumerate(cardinalities)], constraints)


def history_of(space: Space, vectors: Any = (), latencies_s: float | Sequence[float | None] = 1.0) -> History:
    """Return a history of configs with the given latencies, or the same for all; None is a failure."""
    rows = np.array(vectors, dtype=np.int64).reshape(-1, len(space.knobs))
    each = [latencies_s] * len(rows) if isinstance(latencies_s, float) else latencies_s
    history = History(space, 1)
    history.add(rows, [Measurement(Status.OK if s else Status.RUN_ERROR, latency_s=s) for s in each])
    return history


def choose(sampler: Part[Sampler], candidates: Candidates, history: History, n: int = 64, seed: int = 0) -> Vectors:
    return sampler.start(history.space).choose(candidates, history, n, np.random.default_rng(seed))


def propose(explorer: Part[Explorer], surrogate: Surrogate, history: History, seed: int = 0) -> Candidates:
    return explorer.start(history.space).propose(surrogate, history, np.random.default_rng(seed))


def run_search(
    formula: Formula, settings: TunerSettings, n_trials: int, seed: int = 0, measure: Measure | None = None
) -> list[Trial]:
    trials: list[Trial] = []
    subject, watch = Subject(formula.space, formula.flop, "task"), Watch(trial=trials.append)
    tune_in_memory(subject, settings, measure or formula.measure, n_trials, seed=seed, watch=watch)
    return trials


def fit(settings: Part[Surrogate], history: History) -> Surrogate:
    surrogate = settings.start(history.space)
    surrogate.fit(history)
    return surrogate


def ranks(values: Any) -> Any:
    return np.argsort(np.argsort(values))


@pytest.fixture(scope="session")
def bowl() -> Formula:
    """The formula `bowl`, shared by all tests to enumerate its space only once."""
    return formulas.bowl()


@pytest.fixture
def oracle(bowl: Formula) -> OracleSurrogate:
    """A surrogate that knows the bowl."""
    return Oracle(bowl, bowl.optimum_s).start(bowl.space)
