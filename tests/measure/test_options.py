"""Retries: how long is waited between attempts."""

from __future__ import annotations

import pytest

from anole.measure.options import Retries


def test_waits_grow_up_to_the_longest_until_they_are_spent() -> None:
    assert list(Retries(1.0, 5.0, 20.0).waits()) == [1.0, 2.0, 4.0, 5.0, 5.0, 3.0]
    assert list(Retries(1.0, 5.0, 0.0).waits()) == []


def test_minutes_are_waited_by_default() -> None:
    waits = list(Retries().waits())
    assert sum(waits) == pytest.approx(300.0)
    assert waits[0] == 0.5 and max(waits) == 30.0
