"""Allocation of one budget to many tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.search.budget import spend
from anole.search.loop import tune
from anole.search.presets import read_tuner
from anole.search.state import Search, Subject


@dataclass
class Task:
    """A task whose every trial takes a second and saves a fixed share of the rest, up to `max_trials` trials."""

    latency_s: float
    max_trials: int = 10**6
    n_trials: int = 0
    grants: list[int] = field(default_factory=list)

    @property
    def elapsed_s(self) -> float:
        return float(self.n_trials)

    @property
    def done(self) -> bool:
        return self.n_trials >= self.max_trials

    @property
    def expected_saving_s(self) -> float:
        return self.latency_s * 0.9**self.n_trials

    def advance(self, n_trials: int) -> None:
        self.grants.append(n_trials - self.n_trials)
        self.n_trials = min(n_trials, self.max_trials)


@given(
    st.lists(st.tuples(st.floats(0.01, 10), st.integers(1, 60)), min_size=1, max_size=6),
    st.integers(1, 200),
    st.integers(1, 64),
)
def test_the_budget_is_spent_in_full_unless_all_tasks_are_done(tasks, n_trials, step):
    tasks = [Task(latency_s, max_trials) for latency_s, max_trials in tasks]
    spend(tasks, n_trials, step)
    assert sum(task.n_trials for task in tasks) == min(n_trials, sum(task.max_trials for task in tasks))
    assert all(0 < grant <= step for task in tasks for grant in task.grants)
    if n_trials >= len(tasks):
        assert all(task.n_trials for task in tasks)


def test_trials_go_to_the_task_with_the_greatest_saving():
    slow, fast = Task(1.0), Task(0.1)
    spend([fast, slow], 60, 2)
    assert slow.n_trials > fast.n_trials
    assert slow.expected_saving_s == pytest.approx(fast.expected_saving_s, rel=0.3)


@pytest.mark.parametrize(("seconds", "spent"), [(0, [0, 0]), (1, [0, 2]), (3, [2, 2]), (9, [2, 8])])
def test_no_step_begins_after_the_time_limit(seconds, spent):
    tasks = [Task(0.1), Task(1.0)]
    spend(tasks, 100, 2, seconds)
    assert [task.n_trials for task in tasks] == spent


@pytest.mark.parametrize(("n_trials", "spent"), [(0, [0, 0, 0]), (2, [0, 1, 1])])
def test_a_budget_below_one_trial_per_task_goes_to_the_slowest(n_trials, spent):
    tasks = [Task(0.1), Task(3.0), Task(1.0)]
    spend(tasks, n_trials, 64)
    assert [task.n_trials for task in tasks] == spent
    spend([], n_trials, 64)


class Tuning:
    """A task of a model, tuned in memory."""

    def __init__(self, formula, key, weight, recorded=()):
        subject = Subject(formula.space, formula.flop, key)
        self.search = Search(subject, read_tuner({"preset": "random", "batch": 6}), seed=0, recorded=recorded)
        self.formula, self.weight = formula, weight

    @property
    def n_trials(self):
        return len(self.search.trials)

    @property
    def elapsed_s(self):
        return 0.0

    @property
    def done(self):
        return self.search.done

    @property
    def expected_saving_s(self):
        latencies_s = [trial.measurement.latency_s for trial in self.search.trials]
        return self.weight * min(filter(None, latencies_s), default=1.0) * self.search.expected_gain

    def advance(self, n_trials):
        tune(self.search, self.formula.measure, n_trials)


def test_a_resumed_budget_gives_the_same_trials(formula):
    """Replayed trials count as before: the gain after each iteration is known before the next step."""

    def spent(recorded=((), (), ())):
        given = zip((1, 2, 8), recorded, strict=True)
        tunings = [Tuning(formula("bowl"), str(weight), weight, trials) for weight, trials in given]
        spend(tunings, 96, 6)
        return tunings

    uninterrupted = spent()
    for n_lost in (0, 6, 30):
        again = spent([tuning.search.trials[: max(0, tuning.n_trials - n_lost)] for tuning in uninterrupted])
        assert [tuning.n_trials for tuning in again] == [tuning.n_trials for tuning in uninterrupted]
        n_asked = sum(len(tuning.formula.asked) for tuning in again)
        assert n_asked == sum(min(n_lost, tuning.n_trials) for tuning in uninterrupted)
