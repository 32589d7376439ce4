"""Optuna's tree-structured Parzen estimators as an explorer, only for comparisons."""

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
"""The maximum number of proposals per wanted config: Optuna ignores constraints, and may repeat itself."""


@dataclass(frozen=True)
class Tpe:
    """Optuna's sampler with its defaults, except for ``constant_liar``, which diversifies a batch.

    Bergstra et al., "Algorithms for Hyper-Parameter Optimization" (NeurIPS 2011), section 4. A numeric knob is the
    index of its value in order; others are categorical. Invalid configs count as the slowest, and cost no trial.
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
        self._n_old = 0

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        """Return the candidates, plus uniform ones if Optuna finds too few."""
        import optuna

        if self._study is None:
            optuna.logging.set_verbosity(logging.WARNING)
            sampler = optuna.samplers.TPESampler(seed=int(rng.integers(2**31)), constant_liar=True)
            self._study = optuna.create_study(direction="maximize", sampler=sampler)
        for vector, gflops in zip(history.vectors[self._n_old :], history.gflops[self._n_old :].tolist(), strict=True):
            params = dict(zip(self._named, vector.tolist(), strict=True))
            trial = optuna.trial.create_trial(params=params, distributions=self._named, value=gflops)
            self._study.add_trial(trial)
        self._n_old = len(history)
        n, taken = self.settings.n_candidates, set(history.visited.tolist())
        found = chain(self._asked(taken), fresh(draw(history, n, rng).vectors, taken, self.space))
        vectors = np.array(list(islice(found, n)), dtype=np.int64).reshape(-1, len(self.space.knobs))
        return Candidates(vectors, np.zeros(len(vectors)))

    def _asked(self, taken: set[int]) -> list[NDArray[np.int64]]:
        """Return Optuna's valid proposals that are not taken, and mark them as taken."""
        import optuna

        found, running = list[NDArray[np.int64]](), []
        for _ in range(_MAX_ASKED * self.settings.n_candidates):
            trial = self._study.ask(self._named)
            vector = np.array([trial.params[name] for name in self._named])
            if not self.space.valid(vector[None])[0]:
                self._study.tell(trial, 0.0)
                continue
            running.append(trial)
            found.extend(fresh([vector], taken, self.space))
            if len(found) == self.settings.n_candidates:
                break
        # They are reported to Optuna once they are measured.
        for trial in running:
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return found


def _distribution(values: tuple[Any, ...]) -> Any:
    """Return the Optuna distribution of the index of a value."""
    import optuna

    if all(isinstance(value, (int, float)) for value in values):
        return optuna.distributions.IntDistribution(0, len(values) - 1)
    return optuna.distributions.CategoricalDistribution(range(len(values)))
