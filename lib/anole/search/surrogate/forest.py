"""AdaTune's surrogate: a random forest with uncertainty, scored by expected improvement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from anole.search.roles import Examples, History, Surrogate
from anole.search.settings import Range
from anole.search.surrogate.guarded import GuardedSurrogate, Model, Prediction
from anole.space.space import Space, Vectors

_BEST = 1.0
"""Perf(p*), the speed of the best measured config; all speeds are relative to it."""

_MIN_IMPROVEMENT = 1e-6
"""A negligible expected improvement, the lower bound of the unit of scores."""


@dataclass(frozen=True)
class Forest:
    """A random forest on the space's features, refitted in every iteration.

    Li et al., "AdaTune: Adaptive Tensor Program Compilation Made Efficient" (NeurIPS 2020), section 4.2.1, with
    the hyper-parameters of its appendix A.

    Attributes:
        acquisition: the acquisition function: ``expected_improvement`` over the best measured config, relative to the
            largest one among the measured configs and an equal number of random configs; or ``mean``, the predicted
            speed relative to the best.
        n_trees: number of trees, each fitted to a bootstrap sample of the examples.
        max_features: number of features considered for one split.
    """

    name: ClassVar[str] = "forest"

    acquisition: Literal["expected_improvement", "mean"] = "expected_improvement"
    n_trees: Annotated[int, Range(1, 1000)] = 10
    max_features: Annotated[int, Range(1)] = 10

    def start(self, space: Space) -> Surrogate:
        """Return the surrogate, ready to tune one task."""
        return _ForestSurrogate(self, space)


class _ForestSurrogate(GuardedSurrogate):
    def __init__(self, settings: Forest, space: Space) -> None:
        # Imported here, while the search waits for the worker processes to start.
        import_module("sklearn.ensemble")
        super().__init__(space)
        self.settings = settings

    def _learn(self, history: History) -> Model | None:
        examples = history.examples()
        if not examples.scores.any():
            return None
        predict = self._grow(examples)
        # The unit of scores is the largest expected improvement among the examples and as many random configs.
        random = self.space.features(self.space.sample(len(examples), np.random.default_rng(0)))
        reference = predict(np.concatenate([examples.features, random]))
        largest = max(_MIN_IMPROVEMENT, float(expected_improvement(*reference, _BEST).max()))

        def score(vectors: Vectors) -> Prediction:
            mean, std = predict(self.space.features(vectors))
            if self.settings.acquisition == "mean":
                return mean, std
            return expected_improvement(mean, std, _BEST) / largest, std

        return score

    def _grow(self, examples: Examples) -> Callable[[NDArray[np.float32]], Prediction]:
        """Fit new trees; return a function from features to the mean over the trees and its deviation."""
        max_features = min(self.settings.max_features, examples.features.shape[1])
        predict = grow_trees(examples.features, examples.scores, self.settings.n_trees, max_features)

        def predict_mean(features: NDArray[np.float32]) -> Prediction:
            predicted = predict(features)
            return predicted.mean(axis=1), predicted.std(axis=1)

        return predict_mean


def grow_trees(
    features: NDArray[np.float32], targets: NDArray[Any], n_trees: int, max_features: int | float
) -> Callable[[NDArray[np.float32]], NDArray[np.float64]]:
    """Fit a random forest; return a function from features to the trees' predictions, shape (n, n_trees)."""
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(n_trees, max_features=max_features, random_state=0, n_jobs=1).fit(features, targets)
    trees = [tree.tree_ for tree in forest.estimators_]
    # Calling the trees directly is much faster than calling the forest, which checks its input for each tree.
    return lambda rows: np.stack([tree.predict(rows)[:, 0] for tree in trees], axis=1)


def expected_improvement(mean: NDArray[np.float64], std: NDArray[np.float64], best: float) -> NDArray[np.float64]:
    r"""Return the expected improvement of n predictions, with their deviations, over the best known value.

    $$ EI = (\mu - f^*) \Phi(Z) + \sigma \phi(Z), \quad Z = (\mu - f^*) / \sigma $$

    and $\max(0, \mu - f^*)$ where $\sigma = 0$: AdaTune's equations 1 and 2.
    """
    from scipy.special import ndtr

    gain = mean - best
    certain = std == 0
    z = gain / np.where(certain, 1.0, std)
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return np.maximum(0.0, np.where(certain, gain, gain * ndtr(z) + std * density))
