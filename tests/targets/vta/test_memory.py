"""The read channel: a read by itself has a closed form, and plans are changed by who comes later."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anole.targets.vta.memory import Read, ReadChannel, bursts_of

bursts = st.lists(st.integers(1, 16), min_size=1, max_size=60)


def read(client, ready, lengths, gap=1):
    return Read(client, ready, lengths, sum(lengths), gap=gap)


@given(bursts)
def test_the_closed_form_is_what_burst_by_burst_comes_to(lengths):
    channel = ReadChannel(18)
    first = read(2, 100, lengths)
    channel.add(first)
    assert first.end == 118 + sum(lengths)
    # Another read makes it be planned burst by burst, without changing anything before it.
    channel.add(read(4, first.end - 1, [1]))
    assert first.end == 118 + sum(lengths)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 200), bursts), min_size=1, max_size=6))
def test_a_beat_is_read_at_a_time_and_none_is_lost(arrivals):
    channel = ReadChannel(18)
    reads = [read(client, ready, lengths) for client, ready, lengths in sorted(arrivals, key=lambda a: a[1])]
    for each in reads:
        channel.add(each)
    for each, (_, ready, lengths) in zip(reads, sorted(arrivals, key=lambda a: a[1]), strict=True):
        assert each.end > ready + sum(lengths)
    first = min(ready for _, ready, _ in arrivals)
    assert max(each.end for each in reads) >= first + 18 + sum(each.beats for each in reads)


def test_a_client_with_priority_goes_first_and_delays_what_had_not_left():
    channel = ReadChannel(18)
    slow, urgent = read(3, 0, [16] * 20), read(0, 30, [16])
    channel.add(slow)
    assert slow.end == 18 + 320
    changed = channel.add(urgent)
    assert slow in changed and slow.end == 18 + 336
    # Sixteen bursts had been asked for, and are served before it.
    assert urgent.end == 18 + 16 * 17


def test_bursts_end_at_their_boundaries_and_with_each_row():
    assert bursts_of(92, 84, 0, 1, 8, 128).lengths == (5, 6)
    assert bursts_of(0, 224, 224, 2, 8, 128).lengths == (16, 12, 4, 16, 8)
    assert bursts_of(64, 128, 128, 1, 8, 128).beats == 16
