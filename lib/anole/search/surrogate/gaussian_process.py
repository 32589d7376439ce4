"""Bayesian optimization: a Gaussian process of log speed, and a forest that predicts which configs fail."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from anole.search.roles import History, Surrogate
from anole.search.settings import Range
from anole.search.surrogate.forest import grow_trees
from anole.search.surrogate.guarded import GuardedSurrogate, Model, Prediction
from anole.space.space import Space, Vectors

Features = NDArray[np.float64]

_N_SAMPLED = 1024
"""Number of random configs that determine the range of each feature."""

_MAX_DESCRIBED = 32
"""If a space describes more features (a loop nest has hundreds), the process sees only those of the knobs."""

_UNIT = 0.1
"""The score of a factor e of expected improvement."""

_MIN_PROBABILITY = 1e-3
"""The lowest probability of success: a forest of few trees is never certain."""


@dataclass(frozen=True)
class GaussianProcess:
    """A Gaussian process of the log speed of successes, and a random forest of failures; refitted in every iteration.

    A score is the logarithm of the expected improvement of the log speed times the probability of success, which guides
    annealing also where improvements are tiny (Ament et al., "Unexpected Improvements to Expected Improvement", NeurIPS
    2023). The highest among the measured configs and as many random ones is 1. Low scores approach -1; otherwise, no
    chain of annealing would leave the peaks of a precise process. Two models, since failures would distort the speeds:
    Hellsten et al., "BaCO: A Fast and Portable Bayesian Compiler Optimization Framework" (ASPLOS 2023). The kernel is
    Matérn's with nu = 5/2 and a length scale for each feature; features are logarithmic, and scaled to 0..1.

    Attributes:
        n_trees: number of trees that predict failures.
        max_examples: limit on the examples of the process, whose time grows with the cube: the fastest are used.
        max_steps: limit on the optimizer's steps per fit; it continues from the last fit's length scales.
    """

    name: ClassVar[str] = "gaussian_process"

    n_trees: Annotated[int, Range(1, 1000)] = 32
    max_examples: Annotated[int, Range(1, 4096)] = 512
    max_steps: Annotated[int, Range(1)] = 15

    def start(self, space: Space) -> Surrogate:
        """Return the surrogate, ready to tune one task."""
        return _GaussianProcessSurrogate(self, space)


class _GaussianProcessSurrogate(GuardedSurrogate):
    def __init__(self, settings: GaussianProcess, space: Space) -> None:
        from threadpoolctl import ThreadpoolController

        # Imported here, while the search waits for the worker processes to start.
        import_module("sklearn.gaussian_process")
        super().__init__(space)
        self.settings = settings
        # On one thread, since the order of sums, and with it the proposals, would depend on the number of cores.
        self._one_thread = partial(ThreadpoolController().limit, limits=1)
        self._kernel: Any = None
        self._range: tuple[Features, Features] | None = None

    def _learn(self, history: History) -> Model | None:
        examples = history.examples()
        works = examples.scores > 0
        if not works.any():
            return None
        features, log_speeds = self._scale(examples.features), np.log(examples.scores[works])
        fastest = np.argsort(-log_speeds, kind="stable")[: self.settings.max_examples]
        predict_speed = self._fit_process(features[works][fastest], log_speeds[fastest])
        succeeds = grow_trees(features.astype(np.float32), works, self.settings.n_trees, max_features=0.5)

        def log_gain(features: Features) -> Prediction:
            mean, std = predict_speed(features)
            probability = np.maximum(succeeds(features.astype(np.float32)).mean(axis=1), _MIN_PROBABILITY)
            return log_expected_improvement(mean, std, log_speeds.max()) + np.log(probability), std

        random = self._scale(self.space.features(self.space.sample(len(examples), np.random.default_rng(0))))
        highest = float(log_gain(np.concatenate([features, random]))[0].max())

        def score(vectors: Vectors) -> Prediction:
            gains, std = log_gain(self._scale(self.space.features(vectors)))
            # Rounded to 1 % of a gain, since matrix products round differently for one config and for many.
            scores = 1.0 + _UNIT * np.round(gains - highest, 2)
            return np.where(scores < 0, scores / (1.0 + np.abs(scores)), scores), std

        return score

    def _scale(self, features: NDArray[np.float32]) -> Features:
        """Return the features that the models see, shape (n, n_used): logarithms of nonnegative features, in 0..1."""
        if self._range is None:
            sampled = self._log(self.space.features(self.space.sample(_N_SAMPLED, np.random.default_rng(0))))
            width = np.ptp(sampled, axis=0)
            self._range = sampled.min(axis=0), np.where(width > 0, width, 1.0)
        low, width = self._range
        return np.asarray((self._log(features) - low) / width)

    def _log(self, features: NDArray[np.float32]) -> Features:
        n_described = len(self.space.described_names)
        used = features[:, n_described if n_described > _MAX_DESCRIBED else 0 :]
        return np.log2(1.0 + np.maximum(used, 0.0), dtype=np.float64)

    def _fit_process(self, features: Features, log_speeds: NDArray[np.float64]) -> Callable[[Features], Prediction]:
        """Fit a Gaussian process; return a function from features to the mean and the deviation."""
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        if self._kernel is None:
            lengths = Matern(np.full(features.shape[1], 0.7), (0.1, 10.0), nu=2.5)
            self._kernel = ConstantKernel(1.0, (0.05, 20.0)) * lengths + WhiteKernel(1e-3, (1e-5, 1.0))
        optimizer = partial(_minimize, max_steps=self.settings.max_steps)
        process = GaussianProcessRegressor(self._kernel, normalize_y=True, optimizer=optimizer)
        with warnings.catch_warnings(), self._one_thread():
            warnings.simplefilter("ignore")  # hyperparameters at their bounds are acceptable
            process.fit(features, log_speeds)
        self._kernel = process.kernel_

        def predict(features: Features) -> Prediction:
            with self._one_thread():
                mean, std = process.predict(features, return_std=True)
            return np.asarray(mean, dtype=np.float64), np.asarray(std, dtype=np.float64)

        return predict


def _minimize(loss: Callable[..., Any], start: Features, bounds: Features, max_steps: int) -> tuple[Features, float]:
    """Minimize a loss that also returns its gradient, as scikit-learn's optimizer does, within a number of steps."""
    from scipy.optimize import minimize

    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": max_steps})
    return found.x, float(found.fun)


def log_expected_improvement(mean: Features, std: Features, best: float) -> NDArray[np.float64]:
    r"""Return the logarithm of the expected improvement of n predictions over the best known value, shape (n,).

    With $z = (\mu - f^*) / \sigma$, $\log \sigma (\phi(z) + z \Phi(z))$, in a form without cancellation for z below -1
    (Ament et al. 2023, section 4). Deviations are positive.
    """
    from scipy.special import erfcx, ndtr

    z = (mean - best) / std
    low, high = np.minimum(z, -1.0), np.maximum(z, -1.0)
    log_density = -0.5 * (z**2 + np.log(2 * np.pi))
    ratio = erfcx(-low / np.sqrt(2)) * np.abs(low) * np.sqrt(np.pi / 2)
    # Beyond this z the difference of one and the ratio rounds to 0; its limit is 1 / z^2.
    log_rest = np.where(low > -1e4, np.log1p(-np.minimum(ratio, 1 - 1e-12)), -2 * np.log(np.abs(low)))
    log_h = np.where(
        z > -1.0, np.log(np.exp(-0.5 * high**2) / np.sqrt(2 * np.pi) + high * ndtr(high)), log_density + log_rest
    )
    return np.asarray(np.log(std) + log_h)
