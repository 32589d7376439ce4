"""The read channel to DRAM, burst by burst: five clients share it, and a burst is served when its turn comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

OUTSTANDING_BURSTS = 16
"""Bursts that were requested and not yet read to the end, of all clients together."""


REQUEST_CYCLES = 2
"""From one request of a client to its next; those of other clients may leave in between."""


@dataclass(eq=False, slots=True)
class Read:
    """What one client reads for one instruction.

    Attributes:
        client: its priority; 0 comes first.
        ready: the cycle from which its requests may leave, one in each.
        bursts: beats of every burst.
        end: the cycle after its last beat, as far as is known: a read of a client with priority may delay it.
    """

    client: int
    ready: int
    bursts: Sequence[int]
    beats: int
    end: int = 0
    gap: int = 1
    next: int = field(default=0, repr=False)


class ReadChannel:
    """Serves bursts in the order of their requests.

    The latency is waited for once, from when the queue of requests last became non-empty: while it never runs
    empty, bursts follow each other without a gap. The queue does not hold the burst that is being served.

    A read is planned to its end as soon as it is known. One that comes later may get its requests in between:
    requests that had not left by then are planned anew.

    Args:
        latency: cycles from a request at an empty queue to its first beat.
    """

    def __init__(self, latency: int) -> None:
        self._latency = latency
        self._reads: list[Read] = []
        self._requests: list[tuple[int, int, int, int, Read, int]] = []

    def add(self, read: Read) -> list[Read]:
        """Begins a read; returns the reads whose end has changed by it, itself included."""
        ready = read.ready
        known = [other for other in self._reads if other.end > ready]
        if not known:
            # By itself the queue cannot run empty: all requests leave before they are needed.
            read.end = ready + self._latency + read.beats
            self._reads, self._requests = [read], []
            return [read]
        if not self._requests:
            self._plan(known)
        self._forget(ready)
        before = [other.end for other in known]
        self._reads = known = [*known, read]
        self._plan(known)
        changed = [other for other, end in zip(known, before, strict=False) if other.end != end]
        return [*changed, read]

    def _forget(self, cycle: int) -> None:
        """Takes back the requests that have not left before a cycle."""
        requests = self._requests
        while requests and requests[-1][0] >= cycle:
            *_, read, ready = requests.pop()
            read.next, read.ready = read.next - 1, ready

    def _plan(self, reads: Sequence[Read]) -> None:
        """Plans all requests that have not left."""
        requests, latency = self._requests, self._latency
        request, _, end, nonempty, *_ = requests[-1] if requests else (-1, 0, 0, 0, None, 0)
        waiting = sorted((read for read in reads if read.next < len(read.bursts)), key=lambda read: read.client)
        while waiting:
            earliest = request + 1
            if len(requests) >= OUTSTANDING_BURSTS:
                earliest = max(earliest, requests[-OUTSTANDING_BURSTS][2])
            request = max(earliest, min(read.ready for read in waiting))
            read = next(read for read in waiting if read.ready <= request)
            if not requests or requests[-1][1] < request:
                nonempty = request
            begin = max(end, nonempty + latency)
            end = begin + read.bursts[read.next]
            requests.append((request, begin, end, nonempty, read, read.ready))
            read.next, read.ready = read.next + 1, request + read.gap
            if read.next == len(read.bursts):
                read.end = end
                waiting.remove(read)


@dataclass(frozen=True)
class Bursts:
    """The bursts of a tile.

    Attributes:
        lengths: beats of every burst, in order.
        beats: of all of them.
    """

    lengths: tuple[int, ...]
    beats: int


@lru_cache(1 << 14)
def bursts_of(address: int, row_bytes: int, stride_bytes: int, rows: int, bus_bytes: int, burst_bytes: int) -> Bursts:
    """Returns the bursts of a tile, which end at multiples of their size and with each row.

    Args:
        address: of the first row, as far as it matters: modulo the size of a whole burst.
        row_bytes: of one row.
        stride_bytes: from one row to the next.
        rows: how many there are.
        bus_bytes: of one beat; a beat that is used in part counts as a whole.
        burst_bytes: the size of a whole burst.
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
