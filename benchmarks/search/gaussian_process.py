"""A Gaussian process as a surrogate: the baseline of AdaTune's forest in figure 12, only for comparisons."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from anole.search.roles import History, Surrogate
from anole.search.surrogate.forest import expected_improvement
from anole.space.space import Space, Vectors

_MIN_IMPROVEMENT = 1e-6


@dataclass(frozen=True)
class GaussianProcess:
    """A Gaussian process on standardized features, refitted in every iteration, with the same scores as the forest.

    The paper does not name its kernel. Here, it is Matérn with nu = 5/2 and noise, as is typical for tuning
    (Snoek et al., "Practical Bayesian Optimization of Machine Learning Algorithms", NeurIPS 2012, section 3.1).
    """

    name: ClassVar[str] = "gaussian_process"

    def start(self, space: Space) -> Surrogate:
        """Return the surrogate, ready to tune one task."""
        return _GaussianProcessSurrogate(space)


class _GaussianProcessSurrogate:
    def __init__(self, space: Space) -> None:
        self.space = space
        self._model: Any = None
        self._scale = 1.0

    @property
    def fitted(self) -> bool:
        return self._model is not None

    def fit(self, history: History) -> None:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        self._model = None
        examples = history.examples()
        if not examples.scores.any() or not np.isfinite(examples.features).all():
            return
        kernel = ConstantKernel() * Matern(nu=2.5) + WhiteKernel(0.01)
        regressor = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
        with warnings.catch_warnings():
            # Hyperparameters at their bounds are acceptable.
            warnings.simplefilter("ignore")
            self._model = make_pipeline(StandardScaler(), regressor).fit(examples.features, examples.scores)
        sampled = self.space.features(self.space.sample(len(examples), np.random.default_rng(0)))
        mean, std = self._predict(np.concatenate([examples.features, sampled]))
        self._scale = max(_MIN_IMPROVEMENT, float(expected_improvement(mean, std, 1.0).max()))

    def score(self, vectors: Vectors) -> NDArray[np.float64]:
        if not self.fitted or not len(vectors):
            return np.zeros(len(vectors))
        mean, std = self._predict(self.space.features(vectors))
        return expected_improvement(mean, std, 1.0) / self._scale

    def spread(self, vectors: Vectors) -> NDArray[np.float64]:
        return (
            self._predict(self.space.features(vectors))[1] if self.fitted and len(vectors) else np.zeros(len(vectors))
        )

    def _predict(self, features: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean and standard deviation of the predictions, shape (n,) each."""
        mean, std = self._model.predict(features, return_std=True)
        return np.asarray(mean, dtype=np.float64), np.asarray(std, dtype=np.float64)
