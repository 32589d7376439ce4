"""How long two builds are compared: until the interval of their ratio decides, without raising false alarms.

Whoever looks at an interval again and again, and stops when it decides, is wrong more often than the interval says.
Here the looks are few, each after half as many rounds again, and share the probability of an error: the k-th has a
part of 1/(k (k + 1)), so that all together never exceed it, however long the comparison goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

import numpy as np

from anole.evaluate.signed_ranks import middle

ALPHA = 0.01
"""The probability with which a comparison may be wrong."""

_FIRST, _GROWTH = 10, 1.5
"""Rounds before the first look, which could not decide with less, and between one look and the next."""


class Verdict(StrEnum):
    """What an interval says of a threshold."""

    SLOWER = "slower"
    FASTER = "faster"
    EQUAL = "equal"
    OPEN = "open"


@dataclass(frozen=True)
class Ratio:
    """An estimate of a ratio of two latencies.

    Attributes:
        value: the ratio.
        low, high: its interval.
        rounds: number of rounds that it is from.
        threshold: the relative difference from which on it counts.
    """

    value: float
    low: float
    high: float
    rounds: int
    threshold: float

    @property
    def verdict(self) -> Verdict:
        """What the interval says: `OPEN` if it holds both what counts and what does not."""
        least, most = 1 / (1 + self.threshold), 1 + self.threshold
        if self.low > most:
            return Verdict.SLOWER
        if self.high < least:
            return Verdict.FASTER
        return Verdict.EQUAL if least <= self.low and self.high <= most else Verdict.OPEN


@dataclass(frozen=True)
class Patience:
    """How long to compare, at most.

    Attributes:
        seconds: no round begins after so many seconds.
        rounds: most rounds.
    """

    seconds: float
    rounds: int


def compare_rounds(take: Callable[[], float], threshold: float, patience: Patience, alpha: float = ALPHA) -> Ratio:
    """Takes rounds until the interval of the ratio decides, or the time is up.

    Args:
        take: takes a round and returns the logarithm of the ratio that it found, which is as likely too large as too
            small by any amount.
        threshold: the relative difference from which on it counts.
        patience: limits.
        alpha: the probability with which the verdict may be wrong.
    """
    began_s, logs, looks, next_look = time.monotonic(), [take()], 0, _FIRST
    while True:
        is_over = len(logs) >= patience.rounds or time.monotonic() >= began_s + patience.seconds
        if is_over or len(logs) >= next_look:
            looks, next_look = looks + 1, ceil(len(logs) * _GROWTH)
            ratio = _estimate(logs, threshold, alpha / (looks * (looks + 1)))
            if is_over or ratio.verdict is not Verdict.OPEN:
                return ratio
        logs.append(take())


def _estimate(logs: list[float], threshold: float, alpha: float) -> Ratio:
    found = middle(np.array(logs), alpha)
    value, low, high = (float(np.exp(number)) for number in (found.value, found.low, found.high))
    return Ratio(value, low, high, len(logs), threshold)
