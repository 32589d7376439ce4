"""Optuna's tree-structured Parzen estimators as an explorer, for comparisons alone."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from anole.search.explore.random import draw
from anole.search.roles import Candidates, Explorer, History, Surrogate
from anole.search.sample.synthesis import fresh
from anole.space.space import Space

_MAX_ASKED = 16
"""Configs that Optuna is asked for each that is wanted: it knows no constraints, and may repeat itself."""


@dataclass(frozen=True)
class Tpe:
    """Optuna's sampler with its defaults, except that candidates of one batch are told apart (``constant_liar``).

    Bergstra et al., "Algorithms for Hyper-Parameter Optimization" (NeurIPS 2011), section 4. A knob of numbers is one
    of their places, in order; others are categories. What is invalid is told as the slowest, and costs no trial.
    """

    name: ClassVar[str] = "tpe"

    n_candidates: int = 16

    def start(self, space: Space) -> Explorer:
        """Return the explorer, ready to tune one task."""
        return _TpeExplorer(self, space)


class _TpeExplorer:
    def __init__(self, settings: Tpe, space: Space) -> None:
        self.settings, self.space = settings, space
        self._named = {knob.name: _distribution(knob.values) for knob in space.knobs}
        self._study: Any = None
        self._told = 0

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        """Return the candidates, and uniform ones where Optuna finds too few."""
        import optuna

        if self._study is None:
            optuna.logging.set_verbosity(logging.WARNING)
            sampler = optuna.samplers.TPESampler(seed=int(rng.integers(2**31)), constant_liar=True)
            self._study = optuna.create_study(direction="maximize", sampler=sampler)
        for vector, gflops in zip(history.vectors[self._told :], history.gflops[self._told :].tolist(), strict=True):
            params = dict(zip(self._named, vector.tolist(), strict=True))
            trial = optuna.trial.create_trial(params=params, distributions=self._named, value=gflops)
            self._study.add_trial(trial)
        self._told = len(history)
        n, taken = self.settings.n_candidates, set(history.visited.tolist())
        found = chain(self._asked(taken), fresh(draw(history, n, rng).vectors, taken, self.space))
        vectors = np.array(list(islice(found, n)), dtype=np.int64).reshape(-1, len(self.space.knobs))
        return Candidates(vectors, np.zeros(len(vectors)))

    def _asked(self, taken: set[int]) -> list[NDArray[np.int64]]:
        """Return what Optuna proposes that is valid and not taken, and marks it as taken."""
        import optuna

        found, running = list[NDArray[np.int64]](), []
        for _ in range(_MAX_ASKED * self.settings.n_candidates):
            asked = self._study.ask(self._named)
            vector = np.array([asked.params[name] for name in self._named])
            if not self.space.valid(vector[None])[0]:
                self._study.tell(asked, 0.0)
                continue
            running.append(asked)
            found.extend(fresh([vector], taken, self.space))
            if len(found) == self.settings.n_candidates:
                break
        # They are told anew once they are measured.
        for asked in running:
            self._study.tell(asked, state=optuna.trial.TrialState.FAIL)
        return found


def _distribution(values: tuple[Any, ...]) -> Any:
    """Return how Optuna draws the place of a value."""
    import optuna

    if all(isinstance(value, (int, float)) for value in values):
        return optuna.distributions.IntDistribution(0, len(values) - 1)
    return optuna.distributions.CategoricalDistribution(range(len(values)))
