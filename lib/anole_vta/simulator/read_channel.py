"""The DRAM read channel: five clients share it, and bursts are served one by one in request order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple, TypeAlias

OUTSTANDING_BURSTS = 16
"""The maximum number of bursts, over all clients, that are requested and not yet completely read."""


ReadState: TypeAlias = tuple[int, int, Sequence[int], int, int, int, int]
"""The fields of a read in order, with relative cycles."""

_client = attrgetter("client")


@dataclass(eq=False, slots=True)
class Read:
    """One client's read for one instruction.

    Attributes:
        client: the priority; 0 comes first.
        ready: the earliest cycle of the next request.
        bursts: beats of every burst.
        left: beats of the bursts that are not requested yet; initially of all bursts.
        end: the cycle after the last beat, as planned so far; a read of higher priority may delay it.
        gap: cycles from one request to the next; requests of other clients may leave in between.
        next: index of the next burst to request.
    """

    client: int
    ready: int
    bursts: Sequence[int]
    left: int
    end: int = 0
    gap: int = 1
    next: int = field(default=0, repr=False)

    def state(self, earliest: int) -> ReadState:
        """Return the state relevant from a cycle on."""
        if not self.left:
            return self.client, 0, (), 0, self.end - earliest, 1, 0
        ready, end = max(0, self.ready - earliest), self.end - earliest
        return self.client, ready, self.bursts, self.left, end, self.gap, self.next


class ChannelState(NamedTuple):
    """The state that determines how a channel serves later reads; cycles are relative to a reference cycle.

    Attributes:
        reads: the states of the unfinished reads.
        ends: the ends of the bursts that are requested and not yet completely read.
        begin: the start of the last of these bursts; -1 if it has started.
    """

    reads: tuple[ReadState, ...] = ()
    ends: tuple[int, ...] = ()
    begin: int = -1


_Request: TypeAlias = tuple[int, int, int, Read, int]
"""The cycle of a request, the start and end of its burst, its read, and the earliest cycle of the request."""


class ReadChannel:
    """A DRAM read channel that serves bursts in the order of their requests.

    The latency is paid once, from the cycle in which the request queue last became non-empty. While the queue is not
    empty, bursts follow each other without a gap. The queue does not hold the burst that is being served.

    A read is planned as soon as it is known: request by request, then in closed form once there is a request in every
    cycle. Later reads may come in between; requests not yet sent by then are planned again.
    """

    def __init__(self, latency: int) -> None:
        self._latency = latency
        self._reads: list[Read] = []
        self._requests: list[_Request] = []

    def add(self, read: Read) -> list[Read]:
        """Add a read; return the reads whose end changes, including the new one."""
        ready = read.ready
        unfinished = [other for other in self._reads if other.end > ready]
        if not unfinished:
            read.end = ready + self._latency + read.left
            self._reads, self._requests = [read], []
            return [read]
        self._advance(ready)
        previous_ends = [other.end for other in unfinished]
        self._reads = [*unfinished, read]
        self._plan(self._reads)
        return [*[other for other, end in zip(unfinished, previous_ends, strict=True) if other.end != end], read]

    def state(self, earliest: int) -> ChannelState:
        """Return the state relevant to reads that become ready from a cycle on."""
        reads = [read for read in self._reads if read.end > earliest]
        if not reads:
            return ChannelState()
        self._advance(earliest)
        outstanding = self._requests[-OUTSTANDING_BURSTS:]
        return ChannelState(
            tuple([read.state(earliest) for read in reads]),
            tuple([end - earliest for _, _, end, _, _ in outstanding if end > earliest]),
            max(-1, outstanding[-1][1] - earliest) if outstanding else -1,
        )

    def resume(self, state: ChannelState, earliest: int) -> None:
        """Continue from a state at another cycle."""
        self._reads = [
            Read(client, ready + earliest, bursts, left, end + earliest, gap, next_burst)
            for client, ready, bursts, left, end, gap, next_burst in state.reads
        ]
        finished, begin = Read(0, 0, (), 0), state.begin + earliest
        self._requests = [(earliest - 1, begin, end + earliest, finished, 0) for end in state.ends]

    def _advance(self, cycle: int) -> None:
        """Plan all requests before a cycle, and drop the plans of later requests."""
        self._plan(self._reads, cycle)
        requests = self._requests
        while requests and requests[-1][0] >= cycle:
            _, _, _, read, ready = requests.pop()
            read.ready, read.next = ready, read.next - 1
            read.left += read.bursts[read.next]

    def _plan(self, reads: Sequence[Read], until: int | None = None) -> None:
        """Plan the requests before a cycle or, without one, the end of all reads."""
        waiting = [read for read in reads if read.left]
        if not waiting:
            return
        if len(waiting) > 1:
            waiting.sort(key=_client)
        requests, latency = self._requests, self._latency
        if requests:
            cycle, begin, end, _, _ = requests[-1]
        else:
            begin = min([read.ready for read in waiting])
            cycle, end = begin - 1, begin + latency
        while waiting:
            # The queue is not empty, and does not become so: requests are sent faster than served.
            if until is None and begin > cycle and max([max(read.ready - cycle, read.gap) for read in waiting]) <= 1:
                for read in waiting:
                    end += read.left
                    read.end = end
                return
            cycle += 1
            if len(requests) >= OUTSTANDING_BURSTS:
                cycle = max(cycle, requests[-OUTSTANDING_BURSTS][2])
            read = waiting[0]
            if read.ready > cycle:
                cycle = max(cycle, min([read.ready for read in waiting]))
                read = next(read for read in waiting if read.ready <= cycle)
            if until is not None and cycle >= until:
                return
            begin = end if begin >= cycle else max(end, cycle + latency)
            beats = read.bursts[read.next]
            end = begin + beats
            requests.append((cycle, begin, end, read, read.ready))
            read.next, read.ready, read.left = read.next + 1, cycle + read.gap, read.left - beats
            if not read.left:
                read.end = end
                waiting.remove(read)


@dataclass(frozen=True)
class Bursts:
    """The bursts of a tile: the beats of each burst in order, and their total."""

    lengths: tuple[int, ...]
    beats: int


@lru_cache(1 << 14)
def bursts_of(address: int, row_bytes: int, stride_bytes: int, rows: int, bus_bytes: int, burst_bytes: int) -> Bursts:
    """Return the bursts of a tile; bursts end at multiples of the burst size and at the end of each row.

    Only the first row's address modulo the burst size matters. A partly used beat of the bus counts fully.
    """
    lengths = []
    for row in range(rows):
        first = address + row * stride_bytes
        last = first + row_bytes
        while first < last:
            until = min(last, (first // burst_bytes + 1) * burst_bytes)
            lengths.append(-(-until // bus_bytes) - first // bus_bytes)
            first = until
    return Bursts(tuple(lengths), sum(lengths))
