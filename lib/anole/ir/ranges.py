"""Ranges of sizes: one build serves every size of a range, such as batches of 1 to 16."""

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
    """The sizes from `least` to `most`, both included."""

    least: int
    most: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the range of a text such as ``1..16``; raises ValueError if it is none."""
        found = _TEXT.fullmatch(text)
        least, most = map(int, found.groups()) if found is not None else (0, 0)
        if not 1 <= least < most:
            raise ValueError(f"found {text!r}; a range has its least and its largest size, such as 1..16")
        return cls(least, most)

    @property
    def usual(self) -> int:
        """The size at which tasks are tuned: a power of two near the middle of the ratios, if the range has one."""
        middle = isqrt(self.least * self.most)
        return max(self.least, 1 << (middle.bit_length() - 1), 2)

    @property
    def small(self) -> int:
        """The largest size that has the programs of the least one: midway to the usual size, in ratios."""
        return isqrt(self.least * self.usual)

    @property
    def samples(self) -> tuple[int, int, int]:
        """Three sizes above 1 that tell what follows the size: the usual one, a low one, and the largest or above.

        Their differences have no common divisor, so that what follows the size in steps shows.
        """
        largest = max(self.most, self.usual + 2)
        others = (size for size in count(max(self.least, 2)) if size != self.usual)
        low = next(size for size in others if gcd(size - self.usual, largest - self.usual) == 1)
        return self.usual, low, largest

    @property
    def checked(self) -> tuple[int, ...]:
        """The sizes at which a build is evaluated beside the usual one: ends, an odd one, and where programs change."""
        odd = min((self.usual + self.most) // 2 | 1, self.most)
        return tuple(sorted({self.least, self.least + 1, self.small, self.small + 1, odd, self.most} - {self.usual}))

    def __contains__(self, size: int) -> bool:
        return self.least <= size <= self.most

    def __str__(self) -> str:
        return f"{self.least}..{self.most}"


def checked_sizes(ranges: Mapping[str, SizeRange]) -> list[dict[str, int]]:
    """Returns the sizes at which a build is evaluated: those of each range alone, and all ends together."""
    usual = {name: each.usual for name, each in ranges.items()}
    found = [{**usual, name: size} for name, each in ranges.items() for size in each.checked]
    ends = [{name: each.least for name, each in ranges.items()}, {name: each.most for name, each in ranges.items()}]
    ends += [{name: each.small + more for name, each in ranges.items()} for more in (0, 1)]
    every = [usual, *found, *ends]
    return [sizes for at, sizes in enumerate(every) if sizes not in every[:at]][1:]
