"""Size ranges: a single build serves all sizes of a range, such as batches of 1 to 16."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from math import gcd, isqrt
from typing import Self

_TEXT = re.compile(r"\s*(\d{1,10})\s*\.\.\s*(\d{1,10})\s*")


@dataclass(frozen=True)
class SizeRange:
    """The sizes from `min` to `max`, inclusive."""

    min: int
    max: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a range such as ``1..16``; raise ValueError for other texts."""
        match = _TEXT.fullmatch(text)
        low, high = map(int, match.groups()) if match is not None else (0, 0)
        if not 1 <= low < high:
            raise ValueError(f"found {text!r}; write a range as smallest and largest size, such as 1..16")
        return cls(low, high)

    @property
    def typical(self) -> int:
        """The size for which tasks are tuned: a power of two near the geometric mean, if the range contains one."""
        mean = isqrt(self.min * self.max)
        return max(self.min, 1 << (mean.bit_length() - 1), 2)

    @property
    def small(self) -> int:
        """The largest size that runs the kernels for the minimum: the geometric mean of minimum and typical size."""
        return isqrt(self.min * self.typical)

    @property
    def samples(self) -> tuple[int, int, int]:
        """Three sizes above 1 to find size-dependent values: the typical one, a low one, and the maximum or above.

        Their differences are coprime, which exposes values that change in steps.
        """
        largest = max(self.max, self.typical + 2)
        sizes = (size for size in count(max(self.min, 2)) if size != self.typical)
        low = next(size for size in sizes if gcd(size - self.typical, largest - self.typical) == 1)
        return self.typical, low, largest

    @property
    def checked(self) -> tuple[int, ...]:
        """Further sizes at which a build is evaluated: both ends, an odd size, and the kernel thresholds."""
        odd = min((self.typical + self.max) // 2 | 1, self.max)
        return tuple(sorted({self.min, self.min + 1, self.small, self.small + 1, odd, self.max} - {self.typical}))

    def __contains__(self, size: int) -> bool:
        return self.min <= size <= self.max

    def __str__(self) -> str:
        return f"{self.min}..{self.max}"


def checked_sizes(ranges: Mapping[str, SizeRange]) -> list[dict[str, int]]:
    """Return the sizes at which a build is evaluated: one range varied at a time, then all ranges at their ends."""
    typical = {name: range_.typical for name, range_ in ranges.items()}
    varied = [{**typical, name: size} for name, range_ in ranges.items() for size in range_.checked]
    ends = [{name: r.min for name, r in ranges.items()}, {name: r.max for name, r in ranges.items()}]
    ends += [{name: range_.small + offset for name, range_ in ranges.items()} for offset in (0, 1)]
    candidates = [typical, *varied, *ends]
    return [sizes for i, sizes in enumerate(candidates) if sizes not in candidates[:i]][1:]
