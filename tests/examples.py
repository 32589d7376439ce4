"""The number of examples of property tests: all of them in `make guard`, a fraction in `make test`."""

from __future__ import annotations

from hypothesis import settings

_DEFAULT_EXAMPLES = 100
"""The default number of examples in `make guard`."""


def examples(n: int) -> int:
    """Scale ``n`` examples to the current profile."""
    return max(1, n * settings.default.max_examples // _DEFAULT_EXAMPLES)
