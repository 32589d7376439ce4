"""The infinitesimal jackknife: how sure a forest is of a prediction, from which trees were grown on which examples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


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
