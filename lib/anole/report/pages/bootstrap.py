"""Intervals of means over groups, by resampling groups and then what is in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_RESAMPLES = 2000
_LEVEL = 0.95


def mean_interval(groups: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Returns the mean of the groups' means and its 95 % interval.

    Groups are drawn with replacement, and then the values of each drawn group: what differs between tasks is no chance
    that more seeds would remove (Efron and Tibshirani 1993, chapter 8).

    Args:
        groups: the values of each group; no group is empty.
    """
    sizes = np.array([len(group) for group in groups])
    values = np.zeros((len(groups), sizes.max()))
    for number, group in enumerate(groups):
        values[number, : len(group)] = group
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(groups), size=(_RESAMPLES, len(groups)))
    # Of each drawn group as many values as it has; the rest of the widest group's places counts nothing.
    places = (rng.random((*drawn.shape, values.shape[1])) * sizes[drawn][..., None]).astype(int)
    counts = np.arange(values.shape[1]) < sizes[drawn][..., None]
    means = (values[drawn[..., None], places] * counts).sum(axis=2) / sizes[drawn]
    low, high = np.quantile(means.mean(axis=1), [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return float(np.mean([np.mean(group) for group in groups])), float(low), float(high)
