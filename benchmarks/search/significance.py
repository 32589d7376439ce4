"""Whether an effect may be chance: Student's interval over the means of layers, and Holm's correction of many tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t

_LEVEL = 0.95
_FEWEST_PLACES, _FEWEST_PAIRS = 3, 5
"""With fewer, a spread tells next to nothing of what else might have been."""


@dataclass(frozen=True)
class Effect:
    """A geometric mean over places, which are layers or families of networks.

    Attributes:
        value: the mean of the places' means, so that a place with more seeds counts no more than the others.
        low, high: its 95 % interval; both None with too few places or pairs, or if nothing varies.
        p: the chance of a mean as far from the claimed number if that were true, on both sides; 1 without an interval.
        n: number of pairs.
        places: number of places.
    """

    value: float
    low: float | None
    high: float | None
    p: float
    n: int
    places: int


def effect(logs: Mapping[tuple[str, str], float], claimed: float = 1.0) -> Effect | None:
    """Returns the geometric mean of what is given by its logarithms; None without any.

    Seeds of a layer are not independent of each other, and two networks that share layers are not either: only what
    differs between places says how sure a mean is.

    Args:
        logs: by place and pair; what is no finite number does not count.
        claimed: the number with which the mean is compared.
    """
    by_place: dict[str, list[float]] = {}
    for (place, _), value in logs.items():
        if np.isfinite(value):
            by_place.setdefault(place, []).append(value)
    if not by_place:
        return None
    means = np.array([np.mean(group) for group in by_place.values()])
    middle, n, places = float(means.mean()), sum(map(len, by_place.values())), len(means)
    error = float(means.std(ddof=1)) / np.sqrt(places) if places >= _FEWEST_PLACES and n >= _FEWEST_PAIRS else 0.0
    if not error:
        return Effect(float(np.exp(middle)), None, None, 1.0, n, places)
    half = float(t.ppf((1 + _LEVEL) / 2, places - 1)) * error
    p = 2 * float(t.sf(abs(middle - np.log(claimed)) / error, places - 1))
    value, low, high = np.exp([middle, middle - half, middle + half]).tolist()
    return Effect(value, low, high, p, n, places)


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p-values corrected for their number (Holm 1979): each times that of those not smaller."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(order), 0, -1)
    corrected = np.minimum(np.maximum.accumulate(np.asarray(p_values, dtype=float)[order] * factors), 1.0)
    return [float(corrected[place]) for place in np.argsort(order, kind="stable")]
