"""The base class of learning surrogates: if a model fails, the search continues without guidance until the next fit."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from anole.search.roles import History
from anole.space.space import Space, Vectors

Prediction = tuple[NDArray[np.float64], NDArray[np.float64]]
"""The scores of n configs, and the deviations of the predictions, shape (n,) each."""

Model = Callable[[Vectors], Prediction]
"""A function that predicts the scores of at least one index vector."""

logger = logging.getLogger(__name__)


class GuardedSurrogate(ABC):
    """A surrogate that is refitted in every iteration, and becomes unfitted if a fit or a prediction fails."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self._model: Model | None = None

    @abstractmethod
    def _learn(self, history: History) -> Model | None:
        """Return a model that is fitted to a history; None if the history has no success."""

    @property
    def fitted(self) -> bool:
        """Whether the last fit succeeded, and every prediction since."""
        return self._model is not None

    def fit(self, history: History) -> None:
        """Replace the model."""
        self._model = None
        try:
            self._model = self._learn(history)
        except Exception:
            self._give_up()

    def score(self, vectors: Vectors) -> NDArray[np.float64]:
        """Return the scores, shape (n,), of index vectors of shape (n, n_knobs)."""
        return self._predict(vectors)[0]

    def spread(self, vectors: Vectors) -> NDArray[np.float64]:
        """Return the deviations of the predictions, shape (n,)."""
        return self._predict(vectors)[1]

    def _predict(self, vectors: Vectors) -> Prediction:
        if self._model is not None and len(vectors):
            try:
                return self._model(vectors)
            except Exception:
                self._give_up()
        return self._score_unfitted(vectors), np.zeros(len(vectors))

    def _score_unfitted(self, vectors: Vectors) -> NDArray[np.float64]:
        """Return the scores without a model, shape (n,)."""
        return np.zeros(len(vectors))

    def _give_up(self) -> None:
        self._model = None
        logger.warning("the surrogate failed; configs are random until it can be fitted again", exc_info=True)
