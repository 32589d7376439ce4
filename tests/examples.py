"""How many examples a property is tried on: all of them in `make guard`, a quarter of them in `make test`."""

from __future__ import annotations

from hypothesis import settings

_WHOLE = 100
"""The examples of a property that names no number, in `make guard`."""


def examples(n: int) -> int:
    """Return the share of ``n`` examples that the profile tries."""
    return max(1, n * settings.default.max_examples // _WHOLE)
