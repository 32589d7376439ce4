"""The read channel: plans match a cycle-by-cycle simulation, and later reads change them."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from anole_vta.simulator.read_channel import Read, ReadChannel, bursts_of

from ...examples import examples

bursts = st.lists(st.integers(1, 16), min_size=1, max_size=60)


def read(client, ready, lengths, gap=1):
    return Read(client, ready, lengths, sum(lengths), gap=gap)


def cycle_by_cycle(arrivals, latency):
    """Return the ends of reads (client, ready, bursts, gap), by simulating every cycle."""
    pending = {client: [ready, list(lengths), gap] for client, ready, lengths, gap in arrivals}
    served, ends, cycle, free, nonempty = [], {}, 0, 0, 0
    while pending:
        outstanding = sum(end > cycle for _, end in served)
        able = [client for client in sorted(pending) if pending[client][0] <= cycle and outstanding < 16]
        if able:
            _, lengths, gap = pending[able[0]]
            if not any(begin >= cycle for begin, _ in served):
                nonempty = cycle
            begin = max(free, nonempty + latency)
            free = begin + lengths.pop(0)
            served.append((begin, free))
            pending[able[0]][0] = cycle + gap
            if not lengths:
                ends[able[0]] = free
                del pending[able[0]]
        cycle += 1
    return ends


@settings(max_examples=examples(200), deadline=None)
@given(st.permutations(range(5)), st.lists(st.tuples(st.integers(0, 250), bursts), min_size=1, max_size=5))
def test_plans_match_a_cycle_by_cycle_simulation(clients, arrivals):
    arrivals = sorted(arrivals, key=lambda arrival: arrival[0])
    # Micro-operations use the wider interface, with a request every other cycle, and are few.
    asked = [
        (client, ready, lengths[:3] if client == 1 else lengths, 2 if client == 1 else 1)
        for client, (ready, lengths) in zip(clients, arrivals, strict=False)
    ]
    channel = ReadChannel(18)
    reads = {client: read(client, ready, lengths, gap) for client, ready, lengths, gap in asked}
    for each in reads.values():
        channel.add(each)
    assert {client: each.end for client, each in reads.items()} == cycle_by_cycle(asked, 18)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.permutations(range(5)),
    st.lists(st.tuples(st.integers(0, 250), bursts), min_size=2, max_size=5),
    st.integers(1, 4),
    st.integers(-50, 500),
)
@example([0, 1, 2, 3, 4], [(0, [1]), (20, [13]), (50, [15])], 2, 210)
def test_a_state_can_be_resumed_at_another_cycle(clients, arrivals, n_before, later):
    arrivals = sorted(arrivals, key=lambda arrival: arrival[0])
    asked = [(client, *arrival) for client, arrival in zip(clients, arrivals, strict=False)]
    before, after = asked[:n_before], asked[n_before:]
    channel, resumed = ReadChannel(18), ReadChannel(18)
    for each in before:
        channel.add(read(*each))
    earliest = after[0][1] if after else 0
    resumed.resume(channel.state(earliest), earliest + later)
    for client, ready, lengths in after:
        ends, ends_later = (
            sorted((changed.client, changed.end) for changed in served.add(read(client, ready + offset, lengths)))
            for served, offset in ((channel, 0), (resumed, later))
        )
        assert ends_later == [(client, end + later) for client, end in ends]
    assert channel.state(earliest + 300) == resumed.state(earliest + 300 + later)


def test_a_client_with_priority_goes_first_and_delays_unsent_requests():
    channel = ReadChannel(18)
    slow, urgent = read(3, 0, [16] * 20), read(0, 30, [16])
    channel.add(slow)
    assert slow.end == 18 + 320
    changed = channel.add(urgent)
    assert slow in changed and slow.end == 18 + 336
    # Sixteen bursts were requested before, and are served first.
    assert urgent.end == 18 + 16 * 17


def test_bursts_end_at_their_boundaries_and_with_each_row():
    assert bursts_of(92, 84, 0, 1, 8, 128).lengths == (5, 6)
    assert bursts_of(0, 224, 224, 2, 8, 128).lengths == (16, 12, 4, 16, 8)
    assert bursts_of(64, 128, 128, 1, 8, 128).beats == 16
