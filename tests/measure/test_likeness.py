"""Which differences between servers are told, and when they are compared no more."""

from __future__ import annotations

import pytest

from anole.measure.device_access import ServerConsistency

Latencies = dict[str, float]


@pytest.mark.parametrize(
    ("comparisons", "told"),
    [
        # Servers that are alike are compared once.
        ([{"a": 1.0, "b": 1.05}], []),
        (
            [{"a": 1.0, "b": latency_s} for latency_s in (1.1, 1.3, 1.2)],
            ["b is not like a: the same kernel takes 1.20 times as long there (median of 3 comparisons)"],
        ),
        # A neighbour slows a server down for a while.
        ([{"a": 1.0, "b": latency_s} for latency_s in (2.0, 2.0, 1.0)], []),
        # Those that were alike are compared with one that joins.
        ([{"a": 1.0, "b": 1.0}, *3 * [{"a": 2.0, "b": 2.0, "c": 1.0}]], ["a is not like c", "b is not like c"]),
    ],
    ids=["alike", "slower", "neighbour", "joins"],
)
def test_a_slower_server_is_told_once(
    comparisons: list[Latencies], told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    likeness = ServerConsistency()
    for latencies_s in comparisons:
        assert likeness.wants(frozenset(latencies_s)) and not caplog.messages
        likeness.add(latencies_s)
    assert [text[: len(begin)] for text, begin in zip(caplog.messages, told, strict=True)] == told
    assert not likeness.wants(frozenset(comparisons[-1]))
    assert not likeness.wants(frozenset(comparisons[-1].keys() & {"a", "c"})), "nor are some of them"


def test_one_server_is_like_itself() -> None:
    assert not ServerConsistency().wants(frozenset()) and not ServerConsistency().wants(frozenset({"a"}))
