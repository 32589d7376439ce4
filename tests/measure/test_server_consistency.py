"""Which speed differences between servers are reported, and when comparing them ends."""

from __future__ import annotations

import pytest

from anole.measure.device_access import ServerConsistency

Latencies = dict[str, float]


@pytest.mark.parametrize(
    ("comparisons", "expected"),
    [
        # Servers of the same speed are compared once.
        ([{"a": 1.0, "b": 1.05}], []),
        (
            [{"a": 1.0, "b": latency_s} for latency_s in (1.1, 1.3, 1.2)],
            ["b is slower than a: the same kernel takes 1.20 times as long (median of 3 comparisons)"],
        ),
        # Background load slows a server down for a while.
        ([{"a": 1.0, "b": latency_s} for latency_s in (2.0, 2.0, 1.0)], []),
        # Servers of the same speed are compared again when another one joins.
        ([{"a": 1.0, "b": 1.0}, *3 * [{"a": 2.0, "b": 2.0, "c": 1.0}]], ["a is slower than c", "b is slower than c"]),
    ],
    ids=["same speed", "slower", "background load", "joins"],
)
def test_a_slower_server_is_reported_once(
    comparisons: list[Latencies], expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    consistency = ServerConsistency()
    for latencies_s in comparisons:
        assert consistency.wants(frozenset(latencies_s)) and not caplog.messages
        consistency.add(latencies_s)
    assert [text[: len(begin)] for text, begin in zip(caplog.messages, expected, strict=True)] == expected
    assert not consistency.wants(frozenset(comparisons[-1]))
    assert not consistency.wants(frozenset(comparisons[-1].keys() & {"a", "c"})), "nor are some of them"


def test_a_single_server_is_not_compared() -> None:
    assert not ServerConsistency().wants(frozenset()) and not ServerConsistency().wants(frozenset({"a"}))
