"""Ties: detection of configs whose latencies are statistically indistinguishable, and the choice among them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anole.keys import canonical_json
from anole.record import Config, Measurement
from anole.space.knob import ALGORITHM
from anole.space.space import Space

Prefer = Callable[[Sequence[Config]], int]
"""Picks one of several equally fast configs, by its index."""

_ERROR_RATE = 0.05
"""The probability that at least one of several equally fast configs is reported as slower than the apparent fastest."""

_STD_OF_DEVIATION, _STD_OF_MEDIAN = 1.4826, 1.2533
"""For the normal distribution: standard deviation over median absolute deviation, and standard error of the median over
standard error of the mean."""


@dataclass(frozen=True)
class Compared(Measurement):
    """The measurement of a config that was timed in turns with rivals.

    Attributes:
        min_ratio: lower confidence bound of the latency relative to the fastest rival's; at most 1 if the config may be
            as fast. None for a failure.
    """

    min_ratio: float | None = None


def min_ratios(latencies_s: Sequence[Sequence[float]]) -> list[float]:
    """Return the lower confidence bound of each kernel's latency relative to the fastest kernel.

    All kernels have the same turns and are compared turn by turn, by medians: the slowdown of an entire turn cancels
    out, and outliers have little weight. Since chance also decides which kernel appears fastest, the error rate is
    divided among all ordered pairs.
    """
    if not latencies_s:
        return []
    fastest = min(latencies_s, key=statistics.median)
    n_pairs = len(latencies_s) * (len(latencies_s) - 1)
    z = statistics.NormalDist().inv_cdf(1 - _ERROR_RATE / max(1, n_pairs))
    return [_min_ratio(kernel_s, fastest, z) for kernel_s in latencies_s]


def is_slower(one: Measurement, other: Measurement) -> bool:
    """Whether a config is significantly slower than another, by their records; a failure counts as slower.

    Records do not contain single turns, so noise common to both does not cancel out: this is more conservative than a
    comparison turn by turn. Exact measurements have no noise.
    """
    if one.latency_s is None or other.latency_s is None:
        return one.latency_s is None
    errors = [_STD_OF_MEDIAN * (each.cv or 0.0) / math.sqrt(max(1, each.repeats)) for each in (one, other)]
    z = statistics.NormalDist().inv_cdf(1 - _ERROR_RATE / len(errors))
    return math.log(one.latency_s / other.latency_s) > z * math.hypot(*errors)


def _min_ratio(latencies_s: Sequence[float], fastest_s: Sequence[float], z: float) -> float:
    logs = [math.log(own / best) for own, best in zip(latencies_s, fastest_s, strict=True)]
    median = statistics.median(logs)
    std = _STD_OF_DEVIATION * statistics.median(abs(value - median) for value in logs)
    return math.exp(median - z * _STD_OF_MEDIAN * std / math.sqrt(len(logs)))


def prefer_merit(space: Space, default: Config | None) -> Prefer:
    """Return the rule that chooses among equally fast configs of a space, independently of their order and latency.

    Merits of different algorithms are not comparable, so the default config's algorithm goes first, then the order in
    the space decides. Within an algorithm, the config with the highest merit is chosen; of configs with the same merit
    or without a merit, the default config, and otherwise the first in the space.
    """

    def key(config: Config) -> tuple[bool, int, float, bool, int]:
        merit = 0.0 if space.merit is None else space.merit_of(config)
        algorithm = config.get(ALGORITHM, "")
        is_other = default is None or algorithm != default.get(ALGORITHM, "")
        order, index = space.algorithms.index(algorithm), int(space.indices(space.vector(config)))
        return is_other, order, -merit, canonical_json(dict(config)) != default_json, index

    default_json = None if default is None else canonical_json(dict(default))
    return lambda configs: min(range(len(configs)), key=lambda at: key(configs[at]))
