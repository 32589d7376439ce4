"""Backoff of retries."""

from __future__ import annotations

import pytest

from anole.measure.options import Retries


@pytest.mark.parametrize(
    ("retries", "waits"),
    [
        (Retries(1.0, 5.0, 20.0), [1.0, 2.0, 4.0, 5.0, 5.0, 3.0]),
        (Retries(1.0, 5.0, 0.0), []),
        (Retries(), [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, *8 * [30.0], 28.5]),
    ],
)
def test_waits_double_up_to_the_longest_until_the_total_is_spent(retries: Retries, waits: list[float]) -> None:
    assert list(retries.waits()) == waits
