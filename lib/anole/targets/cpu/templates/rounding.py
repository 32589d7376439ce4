"""Rounds up the number of rows that a kernel computes if no good register tile divides it."""

from __future__ import annotations

VERSION = 1

_LEAST, _MOST = 6, 16
"""Rows in registers: fewer load more than they multiply, and more do not fit beside a panel of weights."""


def covering(extent: int) -> int:
    """Returns an extent, such as a number of rows, or the least larger one that a good register tile divides.

    The results of the excess rows are discarded: 197, a prime, is computed as 198, in tiles of 6, 9 or 11.
    """
    if extent <= _MOST:
        return extent
    return next(n for n in range(extent, extent + _LEAST) if any(n % tile == 0 for tile in range(_LEAST, _MOST + 1)))


def covering_version(extent: int) -> int:
    """Returns the increment of a template's version where an extent is rounded up."""
    return VERSION if covering(extent) > extent else 0
