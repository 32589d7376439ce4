"""Optimizers by name: Anole's presets, and adapters for Optuna, SMAC, Nevergrad and Kernel Tuner.

A package adds its own to the entry-point group ``anole.optimizers``: functions of an objective and a seed, which call
the objective until it is done. Optimizers of other packages get the index of each value, as an integer if the values
are numbers, and minimize the negative speed, 1 / cost; a failure has speed 0.
"""

from __future__ import annotations

import logging
import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from copy import copy
from functools import lru_cache, partial
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import numpy as np

from anole.bench.ask_tell import Objective, Tuner
from anole.bench.problem import Problem
from anole.errors import AnoleError, suggestion
from anole.search.presets import PRESETS

Optimizer = Callable[[Objective, int], None]
"""Calls an objective until it is done; its other argument is the seed."""


class OptimizerError(AnoleError):
    """An optimizer is unknown, or its package is not installed."""


def find_optimizer(name: str) -> Optimizer:
    """Return an optimizer by its name, such as ``anole``, ``optuna:TPESampler`` or ``kernel_tuner:genetic_algorithm``.

    Raises:
        OptimizerError: it is unknown, or its package is not installed.
    """
    package, _, kind = name.partition(":")
    added = entry_points(group="anole.optimizers")
    if name in PRESETS:
        return partial(_run_preset, name)
    if package in _PACKAGES:
        try:
            import_module(package)
        except ImportError as error:
            raise OptimizerError(f"{name}: {error}; `pip install 'anole[bench]'` installs all optimizers") from error
        return partial(_PACKAGES[package], kind)
    if name not in added.names:
        known = [*PRESETS, *_PACKAGES, *added.names]
        raise OptimizerError(f"unknown optimizer {name!r}; {suggestion(name, known)}")
    return added[name].load()  # type: ignore[no-any-return]


def _run_preset(name: str, objective: Objective, seed: int) -> None:
    tuner = Tuner(objective.problem.subject, name, seed)
    while not objective.done and (configs := tuner.ask()):
        for config, measurement in zip(configs, objective.problem.measure(configs), strict=True):
            if not objective.done:
                objective(config)
            tuner.learn(config, measurement)


def _run_optuna(kind: str, objective: Objective, seed: int) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    integer, choice = optuna.distributions.IntDistribution, optuna.distributions.CategoricalDistribution
    knobs = {
        name: integer(0, n - 1) if is_number else choice(range(n))
        for name, (n, is_number) in _knobs(objective.problem).items()
    }
    study = optuna.create_study(sampler=_member(optuna.samplers, kind or "TPESampler")(seed=seed))
    while not objective.done:
        trial = study.ask(knobs)
        study.tell(trial, _loss(objective, trial.params))


def _run_smac(kind: str, objective: Objective, seed: int) -> None:
    import ConfigSpace
    import joblib
    import smac
    from smac.runhistory import TrialValue

    logging.getLogger("smac").setLevel(logging.CRITICAL)
    space = ConfigSpace.ConfigurationSpace(seed=seed)
    for name, (n, is_number) in _knobs(objective.problem).items():
        space.add(ConfigSpace.Integer(name, (0, n - 1)) if is_number else ConfigSpace.Categorical(name, range(n)))
    with tempfile.TemporaryDirectory() as folder, joblib.parallel_config("sequential"):
        n_trials = objective.n_trials
        scenario = smac.Scenario(space, deterministic=True, n_trials=n_trials, seed=seed, output_directory=folder)
        facade = _member(smac, kind or "HyperparameterOptimizationFacade")
        optimizer = facade(scenario, lambda config, seed=0: 0.0, logging_level=False)
        while not objective.done:
            trial = optimizer.ask()
            optimizer.tell(trial, TrialValue(cost=_loss(objective, trial.config)))


def _run_nevergrad(kind: str, objective: Objective, seed: int) -> None:
    import nevergrad

    knobs = {name: nevergrad.p.Choice(range(n)) for name, (n, _) in _knobs(objective.problem).items()}
    for name, (n, is_number) in _knobs(objective.problem).items():
        if is_number:
            knobs[name] = nevergrad.p.Scalar(lower=0, upper=n - 1).set_integer_casting()
    parametrization = nevergrad.p.Dict(**knobs)
    parametrization.random_state = np.random.RandomState(seed)
    optimizer = _member(nevergrad.optimizers, kind or "NGOpt")(parametrization, budget=objective.n_trials)
    while not objective.done:
        candidate = optimizer.ask()
        optimizer.tell(candidate, _loss(objective, candidate.value))


def _run_kernel_tuner(kind: str, objective: Objective, seed: int) -> None:
    from kernel_tuner import interface, util

    strategy = interface.strategy_map.get(kind or "genetic_algorithm")
    if strategy is None:
        raise OptimizerError(f"kernel_tuner has no strategy {kind!r}; {suggestion(kind, interface.strategy_map)}")
    random.seed(seed)
    np.random.seed(seed)
    space = copy(_search_space(objective.problem))
    # Strategies change the lists of neighbors in these caches, on which later runs would depend.
    vars(space)["_Searchspace__neighbor_cache"] = defaultdict(dict)
    vars(space)["_Searchspace__neighbor_partial_cache"] = defaultdict(lambda: defaultdict(list))
    options = {"max_fevals": objective.n_trials}
    if len(space.list) == objective.problem.space.size and "constraint_aware" in getattr(strategy, "_options", ()):
        options["constraint_aware"] = False  # there are no constraints, and lists of neighbors are slow
    budget = util.TuningBudget(None, objective.n_trials)
    settings = interface.Options(
        tune_params=space.tune_params,
        strategy_options=interface.Options(options),
        **{"budget": budget, "objective": ["time"], "objective_higher_is_better": [False], "verbose": False},
    )
    while not objective.done:
        # A strategy that ends early, for example because it has converged, starts again.
        strategy.tune(space, _Runner(objective, budget), settings)
        objective.n_calls += 1


class _Runner:
    """A substitute for Kernel Tuner's runners, which looks configs up."""

    def __init__(self, objective: Objective, budget: Any) -> None:
        self._objective, self._budget = objective, budget

    def add_strategy_time(self, seconds: float) -> None:
        """Ignore the time of the strategy."""

    def run(self, configs: Any, options: Any) -> list[dict[str, Any] | None]:
        """Return the result of each config; None after the last trial."""
        found: list[dict[str, Any] | None] = []
        for config in configs:
            indices = dict(zip(_knobs(self._objective.problem), config, strict=True))
            found.append(None if self._objective.done else {**indices, "time": _loss(self._objective, indices)})
        n_tried = len(self._objective.costs_s)
        self._budget.num_fevals = self._budget.max_fevals if self._objective.done else n_tried
        return found


@lru_cache(maxsize=1)
def _search_space(problem: Problem) -> Any:
    """Return a problem's space for Kernel Tuner, which lists all configs."""
    from kernel_tuner.searchspace import Searchspace

    values = {name: list(range(n)) for name, (n, _) in _knobs(problem).items()}
    if len(problem.space.all_valid_indices) == problem.space.size:
        return Searchspace(values, None, 10**9)
    at = [position for position, knob in enumerate(problem.space.knobs) if knob.name in values]
    rows = problem.space.vectors(problem.space.all_valid_indices)[:, at].tolist()
    listed = {number: dict(zip(values, row, strict=True)) for number, row in enumerate(rows)}
    return Searchspace(None, None, None, from_cache={"tune_params": values, "cache": listed})


_PACKAGES = {"optuna": _run_optuna, "smac": _run_smac, "nevergrad": _run_nevergrad, "kernel_tuner": _run_kernel_tuner}


def _knobs(problem: Problem) -> dict[str, tuple[int, bool]]:
    """Return, for each knob with a choice, the number of its values, and whether they are numbers."""
    return {
        knob.name: (len(knob), all(isinstance(value, (int, float)) for value in knob.values))
        for knob in problem.space.knobs
        if len(knob) > 1
    }


def _loss(objective: Objective, indices: Mapping[str, Any]) -> float:
    """Return the negative speed of a config, given by the index of each knob's value."""
    knobs = objective.problem.space.knobs
    vector = np.array([int(indices[knob.name]) if len(knob) > 1 else 0 for knob in knobs])
    return -1 / objective(objective.problem.space.config(vector))


def _member(module: Any, name: str) -> Any:
    """Return an optimizer class of a module."""
    if not hasattr(module, name):
        raise OptimizerError(f"{module.__name__} has no {name!r}; {suggestion(name, dir(module))}")
    return getattr(module, name)
