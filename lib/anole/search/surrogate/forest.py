"""AdaTune's surrogate: a random forest with uncertainty, scored by expected improvement."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from anole.search.roles import Examples, History, Surrogate
from anole.search.settings import Range
from anole.space.space import Space, Vectors

if TYPE_CHECKING:
    from sklearn.tree._tree import Tree


logger = logging.getLogger(__name__)

_BEST = 1.0
"""Perf(p*), the speed of the best config measured, relative to which all speeds are."""

_LEAST = 1e-6
"""A negligible expected improvement; the smallest divisor for relative ones."""


@dataclass(frozen=True)
class Forest:
    """A random forest on the space's features, refitted in every iteration.

    Li et al., "AdaTune: Adaptive Tensor Program Compilation Made Efficient" (NeurIPS 2020), section 4.2.1, with
    the hyper-parameters of its appendix A.

    Attributes:
        acquisition: the kind of score: ``expected_improvement`` over the best measured, as a share of the largest
            among the measured configs and as many random ones; or ``mean``, the predicted speed relative to the
            best.
        spread: the deviation of a prediction: that over the ``trees``, as in the paper's code, or the error of their
            mean by the ``jackknife`` (see `Jackknife`), as in the package that section 5 of the paper names. With as
            few trees, the latter is mostly chance; docs/methods/adatune.md has a comparison.
        n_trees: number of trees, each fitted to a bootstrap sample of the examples.
        max_features: number of features considered for one split.
    """

    name: ClassVar[str] = "forest"

    acquisition: Literal["expected_improvement", "mean"] = "expected_improvement"
    spread: Literal["trees", "jackknife"] = "trees"
    n_trees: Annotated[int, Range(1, 1000)] = 10
    max_features: Annotated[int, Range(1)] = 10

    def start(self, space: Space) -> Surrogate:
        """Returns the surrogate, ready to tune one task."""
        return _ForestSurrogate(self, space)


class _ForestSurrogate:
    def __init__(self, settings: Forest, space: Space) -> None:
        # Imported here, while the worker processes start and the search would only wait.
        import_module("sklearn.ensemble")
        self.settings, self.space = settings, space
        self._trees: list[Tree] = []
        self._jackknife: Jackknife | None = None
        self._scale = _LEAST

    @property
    def fitted(self) -> bool:
        return bool(self._trees)

    def fit(self, history: History) -> None:
        self._trees = []
        try:
            examples = history.examples()
            if examples.scores.any():
                self._trees, counts = self._grow(examples)
                self._jackknife = Jackknife(counts) if self.settings.spread == "jackknife" else None
                self._scale = self._largest(examples)
        except Exception:
            self._give_up()

    def score(self, vectors: Vectors) -> NDArray[np.float64]:
        mean, std = self._predict(vectors)
        if self.settings.acquisition == "mean":
            return mean
        return expected_improvement(mean, std, _BEST) / self._scale

    def spread(self, vectors: Vectors) -> NDArray[np.float64]:
        return self._predict(vectors)[1]

    def _predict(self, vectors: Vectors) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns the mean over the trees and its deviation, shape (n,) each; zeros without trees."""
        if self._trees and len(vectors):
            try:
                return self._mean_and_std(self.space.features(vectors))
            except Exception:
                self._give_up()
        return np.zeros(len(vectors)), np.zeros(len(vectors))

    def _give_up(self) -> None:
        """Continues without a model: a failing model costs the run its guidance only."""
        self._trees = []
        logger.warning("the surrogate failed; configs are random until it can be fitted again", exc_info=True)

    def _mean_and_std(self, features: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        # Calling the trees directly is much faster than the forest, which checks its input again for each tree.
        predicted = np.stack([tree.predict(features)[:, 0] for tree in self._trees], axis=1)
        if self._jackknife is None:
            return predicted.mean(axis=1), predicted.std(axis=1)
        return predicted.mean(axis=1), np.sqrt(self._jackknife.variance(predicted))

    def _grow(self, examples: Examples) -> tuple[list[Tree], NDArray[np.int64]]:
        """Returns the trees, and how often each drew each example, shape (n_trees, n_examples)."""
        from sklearn.ensemble import RandomForestRegressor

        forest = RandomForestRegressor(
            self.settings.n_trees,
            max_features=min(self.settings.max_features, examples.features.shape[1]),
            random_state=0,
            n_jobs=1,
        )
        forest.fit(examples.features, examples.scores)
        counts = [np.bincount(drawn, minlength=len(examples)) for drawn in forest.estimators_samples_]
        return [tree.tree_ for tree in forest.estimators_], np.array(counts)

    def _largest(self, examples: Examples) -> float:
        """Returns the largest expected improvement among the examples and as many configs drawn at random."""
        drawn = self.space.features(self.space.sample(len(examples.scores), np.random.default_rng(0)))
        mean, std = self._mean_and_std(np.concatenate([examples.features, drawn]))
        return max(_LEAST, float(expected_improvement(mean, std, _BEST).max()))


def expected_improvement(mean: NDArray[np.float64], std: NDArray[np.float64], best: float) -> NDArray[np.float64]:
    r"""Returns the expected improvement of predictions over the best, shape (n,).

    $$ EI = (\mu - f^*) \Phi(Z) + \sigma \phi(Z), \quad Z = (\mu - f^*) / \sigma $$

    and $\max(0, \mu - f^*)$ where $\sigma = 0$: AdaTune's equations 1 and 2.

    Args:
        mean: the mean of the prediction, shape (n,).
        std: its standard deviation, shape (n,).
        best: the best known value.
    """
    from scipy.special import ndtr

    gain = mean - best
    certain = std == 0
    z = gain / np.where(certain, 1.0, std)
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return np.maximum(0.0, np.where(certain, gain, gain * ndtr(z) + std * density))


class Jackknife:
    r"""The variance of a bagged prediction, without growing further forests.

    Wager, Hastie and Efron, "Confidence Intervals for Random Forests: The Jackknife and the Infinitesimal Jackknife"
    (JMLR 2014), equations 5 and 7, as in forestci's ``random_forest_error`` without its calibration. With the number of
    times $N_{bi}$ that tree b of B drew example i of m, and the tree's prediction $t_b$ of a config, whose mean over
    trees is $\bar t$,

    $$ V = \sum_i \Big( \frac{1}{B} \sum_b (N_{bi} - 1) (t_b - \bar t) \Big)^2
       - \frac{m v}{B^2} \sum_b (t_b - \bar t)^2 $$

    where v is the mean variance of a count over the trees. The second term is what few trees add by chance. V is a
    quadratic form of the deviations, whose matrix depends on the counts alone; below 0, as chance may have it, it is 0.

    Args:
        counts: how often each tree drew each example, shape (n_trees, n_examples).
    """

    def __init__(self, counts: NDArray[np.int64]) -> None:
        n_trees, n_examples = counts.shape
        centred = counts - 1.0
        chance = n_examples * counts.var(axis=0).mean() * np.eye(n_trees)
        self._form: NDArray[np.float64] = (centred @ centred.T - chance) / n_trees**2

    def variance(self, predicted: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the variances, shape (n,), of the mean predictions of trees, shape (n, n_trees)."""
        deviations = predicted - predicted.mean(axis=1, keepdims=True)
        # Tree by tree: a product of matrices would round differently for one config and for many.
        terms = [deviations[:, tree] * (deviations * row).sum(axis=1) for tree, row in enumerate(self._form)]
        return np.asarray(np.maximum(0.0, np.sum(terms, axis=0)))
