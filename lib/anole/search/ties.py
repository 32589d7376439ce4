"""Ties: which configs are equally fast, as far as a comparison in turns can tell, and which of these is chosen."""

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
"""Returns the position of the config to choose among several that are equally fast."""

_ERROR = 0.05
"""The chance that one of several configs that are equally fast is called slower than the one that seemed fastest."""

_STD_OF_DEVIATION, _STD_OF_MEDIAN = 1.4826, 1.2533
"""For the normal distribution: its standard deviation over its median absolute deviation, and the standard error of a
median over that of a mean."""


@dataclass(frozen=True)
class Compared(Measurement):
    """The measurement of a config that took turns with rivals.

    Attributes:
        min_ratio: the least that its latency is likely to be over that of the fastest rival; at most 1 if it may be
            as fast. None for a failure.
    """

    min_ratio: float | None = None


def min_ratios(latencies_s: Sequence[Sequence[float]]) -> list[float]:
    """Return the least that the latency of each kernel is likely to be over that of the fastest one.

    All kernels have the same turns, and are compared turn by turn, so that what slows a whole turn down tells nothing,
    and outliers count little. Which one seems fastest is chance, too: all ordered pairs share the chance of an error.
    """
    if not latencies_s:
        return []
    fastest = min(latencies_s, key=statistics.median)
    pairs = len(latencies_s) * (len(latencies_s) - 1)
    z = statistics.NormalDist().inv_cdf(1 - _ERROR / max(1, pairs))
    return [_min_ratio(each, fastest, z) for each in latencies_s]


def is_slower(one: Measurement, other: Measurement) -> bool:
    """Whether a config is slower than another beyond chance, as far as records tell; a failure is slower.

    Records keep no turns. So the noise of both counts, and what both had in common, too: this is more careful than a
    comparison turn by turn. What is exact has no noise.
    """
    if one.latency_s is None or other.latency_s is None:
        return one.latency_s is None
    errors = [_STD_OF_MEDIAN * (each.cv or 0.0) / math.sqrt(max(1, each.repeats)) for each in (one, other)]
    z = statistics.NormalDist().inv_cdf(1 - _ERROR / len(errors))
    return math.log(one.latency_s / other.latency_s) > z * math.hypot(*errors)


def _min_ratio(latencies_s: Sequence[float], fastest_s: Sequence[float], z: float) -> float:
    logs = [math.log(one / other) for one, other in zip(latencies_s, fastest_s, strict=True)]
    middle = statistics.median(logs)
    std = _STD_OF_DEVIATION * statistics.median(abs(each - middle) for each in logs)
    return math.exp(middle - z * _STD_OF_MEDIAN * std / math.sqrt(len(logs)))


def prefer_merit(space: Space, default: Config | None) -> Prefer:
    """Return the rule that chooses among equally fast configs of a space, whatever their order and latency.

    Merits of different algorithms cannot be compared, so the default config's algorithm goes first, and otherwise the
    one that the space names first. Within it, the config of most merit is chosen; of several with the same merit, and
    where there is no merit, the default config, and otherwise the one that the space has first.
    """

    def key(config: Config) -> tuple[bool, int, float, bool, int]:
        merit = 0.0 if space.merit is None else space.merit_of(config)
        algorithm = config.get(ALGORITHM, "")
        is_other = default is None or algorithm != default.get(ALGORITHM, "")
        place, index = space.algorithms.index(algorithm), int(space.indices(space.vector(config)))
        return is_other, place, -merit, canonical_json(dict(config)) != own, index

    own = None if default is None else canonical_json(dict(default))
    return lambda configs: min(range(len(configs)), key=lambda at: key(configs[at]))
