"""Which differences between servers are told, and when they are compared no more."""

from __future__ import annotations

import pytest

from anole.measure.site import Likeness

BOTH = frozenset({"a", "b"})


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_servers_that_are_alike_are_compared_once(caplog: pytest.LogCaptureFixture) -> None:
    likeness = Likeness()
    assert likeness.wants(BOTH)
    likeness.add({"a": 1.0, "b": 1.05})
    assert not likeness.wants(BOTH) and not told(caplog)


def test_a_slower_server_is_told_once_after_three_comparisons(caplog: pytest.LogCaptureFixture) -> None:
    likeness = Likeness()
    for latency_s in (1.1, 1.3, 1.2):
        assert likeness.wants(BOTH) and not told(caplog)
        likeness.add({"a": 1.0, "b": latency_s})
    (text,) = told(caplog)
    assert text.startswith("b is not like a: the same kernel takes 1.20 times as long there (median of 3 comparisons)")
    assert not likeness.wants(BOTH)


def test_a_neighbour_that_slows_a_server_down_for_a_while_is_no_difference(caplog: pytest.LogCaptureFixture) -> None:
    likeness = Likeness()
    for latency_s in (2.0, 2.0, 1.0):
        likeness.add({"a": 1.0, "b": latency_s})
    assert not likeness.wants(BOTH) and not told(caplog)


def test_those_that_were_alike_are_compared_with_one_that_joins(caplog: pytest.LogCaptureFixture) -> None:
    likeness = Likeness()
    likeness.add({"a": 1.0, "b": 1.0})
    for _ in range(3):
        assert likeness.wants(frozenset({"a", "b", "c"}))
        likeness.add({"a": 2.0, "b": 2.0, "c": 1.0})
    assert [text.partition(":")[0] for text in told(caplog)] == ["a is not like c", "b is not like c"]
    assert not likeness.wants(frozenset({"a", "c"}))


@pytest.mark.parametrize("servers", [[], ["a"]])
def test_one_server_is_like_itself(servers: list[str]) -> None:
    assert not Likeness().wants(frozenset(servers))
