"""How many rows a kernel computes, where those that there are cannot be cut into tiles that fill the registers."""

from __future__ import annotations

VERSION = 1

_LEAST, _MOST = 6, 16
"""Rows in registers: fewer load more than they multiply, and more do not fit beside a panel of weights."""


def covering(extent: int) -> int:
    """Returns an extent, such as a number of rows, or the least one above it that a good register tile divides.

    What is computed for the rows in excess is thrown away: 197, a prime, are computed as 198, in tiles of 6, 9 or 11.
    """
    if extent <= _MOST:
        return extent
    return next(n for n in range(extent, extent + _LEAST) if any(n % tile == 0 for tile in range(_LEAST, _MOST + 1)))


def covering_version(extent: int) -> int:
    """Returns what a template's version rises by where an extent is covered by more than it is."""
    return VERSION if covering(extent) > extent else 0
