"""The description of a wrapped error."""

from __future__ import annotations

import pytest

from anole.errors import cause


@pytest.mark.parametrize(
    ("error", "line", "expected"),
    [
        (ValueError("first\n\n  last \n"), -1, "ValueError: last"),
        (ValueError("first\n\n  last \n"), 0, "ValueError: first"),
        (StopIteration(), -1, "StopIteration"),
        (AssertionError(" \n"), 0, "AssertionError"),
    ],
)
def test_a_cause_is_always_one_line(error: Exception, line: int, expected: str) -> None:
    assert cause(error, line) == expected
