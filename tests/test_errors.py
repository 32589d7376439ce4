"""What is told of an error that another one wraps."""

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
def test_a_cause_is_one_line_whatever_it_says(error: Exception, line: int, expected: str) -> None:
    assert cause(error, line) == expected
