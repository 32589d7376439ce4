"""The read channel to DRAM: five clients share it, and bursts are served one by one in the order of their requests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

OUTSTANDING_BURSTS = 16
"""The most bursts of all clients together that are requested and not yet fully read."""


@dataclass(eq=False, slots=True)
class Read:
    """One client's read for one instruction.

    Attributes:
        client: its priority; 0 comes first.
        ready: the cycle from which its next request may leave.
        bursts: beats of every burst.
        left: beats of the bursts that are not requested yet; initially of all bursts.
        end: the cycle after its last beat, as known so far; a read of higher priority may delay it.
        gap: cycles from one of its requests to the next; requests of other clients may leave in between.
        next: number of the next burst to request.
    """

    client: int
    ready: int
    bursts: Sequence[int]
    left: int
    end: int = 0
    gap: int = 1
    next: int = field(default=0, repr=False)


class _Request(NamedTuple):
    """A request that has left in some cycle.

    Attributes:
        begin, end: begin and end of its burst.
        nonempty: since when the queue has not been empty.
        ready: the cycle from which it could have left.
    """

    cycle: int
    begin: int
    end: int
    nonempty: int
    read: Read
    ready: int


class ChannelState(NamedTuple):
    """The state that decides how a channel serves later reads; cycles are relative to a reference cycle.

    Attributes:
        reads: the unfinished reads, each as the fields of `Read` in their order.
        requests: the requests that still matter, each as the fields of `_Request`; the read is its index in `reads`, or
            -1.
    """

    reads: tuple[tuple[int, int, Sequence[int], int, int, int, int], ...] = ()
    requests: tuple[tuple[int, int, int, int, int, int], ...] = ()


class ReadChannel:
    """Serves bursts in the order of their requests.

    The latency is paid once, from the cycle in which the queue of requests last became non-empty. As long as the queue
    never runs empty, bursts follow each other without a gap. The queue does not hold the burst that is being served.

    A read is planned as soon as it is known: request by request while several reads are waiting, and then by the closed
    form. The requests of a later read may come in between; requests that had not left by then are planned anew.
    """

    def __init__(self, latency: int) -> None:
        self._latency = latency
        self._reads: list[Read] = []
        self._requests: list[_Request] = []

    def add(self, read: Read) -> list[Read]:
        """Adds a read; returns the reads whose end changes, including the new one."""
        ready = read.ready
        known = [other for other in self._reads if other.end > ready]
        if not known:
            read.end = ready + self._latency + read.left
            self._reads, self._requests = [read], []
            return [read]
        self._plan(known, ready)
        self._forget(ready)
        before = [other.end for other in known]
        self._reads = [*known, read]
        self._plan(self._reads)
        return [*(other for other, end in zip(known, before, strict=True) if other.end != end), read]

    def state(self, earliest: int) -> ChannelState:
        """Returns the state that matters to reads that become ready from a cycle on."""
        reads = [read for read in self._reads if read.end > earliest]
        if not reads:
            return ChannelState()
        numbers = {id(read): number for number, read in enumerate(reads)}
        kept = sum(request.cycle >= earliest for request in self._requests) + OUTSTANDING_BURSTS
        return ChannelState(
            tuple(
                (read.client, read.ready - earliest, read.bursts, read.left, read.end - earliest, read.gap, read.next)
                for read in reads
            ),
            tuple(
                (
                    *(cycle - earliest, begin - earliest, end - earliest, nonempty - earliest),
                    *(numbers.get(id(read), -1), ready - earliest),
                )
                for cycle, begin, end, nonempty, read, ready in self._requests[-kept:]
            ),
        )

    def resume(self, state: ChannelState, earliest: int) -> None:
        """Continues from a state at another cycle."""
        self._reads = [
            Read(client, ready + earliest, bursts, left, end + earliest, gap, after)
            for client, ready, bursts, left, end, gap, after in state.reads
        ]
        gone = Read(0, 0, (), 0)
        self._requests = [
            _Request(
                *(cycle + earliest, begin + earliest, end + earliest, nonempty + earliest),
                *(self._reads[number] if number >= 0 else gone, ready + earliest),
            )
            for cycle, begin, end, nonempty, number, ready in state.requests
        ]

    def _forget(self, cycle: int) -> None:
        """Takes back the requests that have not left before a cycle."""
        requests = self._requests
        while requests and requests[-1].cycle >= cycle:
            request = requests.pop()
            read, read.ready = request.read, request.ready
            read.next -= 1
            read.left += read.bursts[read.next]

    def _plan(self, reads: Sequence[Read], until: float = -math.inf) -> None:
        """Plans the requests that have not left: at least those before a cycle, and the end of all reads."""
        requests, latency = self._requests, self._latency
        owner: Read | None
        if requests:
            cycle, _, end, nonempty, owner, _ = requests[-1]
        else:
            nonempty = end = min(read.ready for read in reads)
            cycle, owner = end - 1, None
        waiting = sorted((read for read in reads if read.left), key=lambda read: read.client)
        while waiting:
            read = waiting[0]
            if len(waiting) == 1 and read is owner and read.gap == 1 and cycle >= until:
                # Requests leave faster than they are served, so the queue does not run empty.
                read.end = end + read.left
                return
            earliest = cycle + 1
            if len(requests) >= OUTSTANDING_BURSTS:
                earliest = max(earliest, requests[-OUTSTANDING_BURSTS].end)
            if len(waiting) == 1:
                cycle = max(earliest, read.ready)
            else:
                cycle = max(earliest, min(read.ready for read in waiting))
                read = next(read for read in waiting if read.ready <= cycle)
            if not requests or requests[-1].begin < cycle:
                nonempty = cycle
            begin = max(end, nonempty + latency)
            beats = read.bursts[read.next]
            end = begin + beats
            requests.append(_Request(cycle, begin, end, nonempty, read, read.ready))
            owner = read
            read.next, read.ready, read.left = read.next + 1, cycle + read.gap, read.left - beats
            if not read.left:
                read.end = end
                waiting.remove(read)


@dataclass(frozen=True)
class Bursts:
    """The bursts of a tile: the beats of each in order, and of all together."""

    lengths: tuple[int, ...]
    beats: int


@lru_cache(1 << 14)
def bursts_of(address: int, row_bytes: int, stride_bytes: int, rows: int, bus_bytes: int, burst_bytes: int) -> Bursts:
    """Returns the bursts of a tile; a burst ends at multiples of the burst size and at the end of each row.

    Of the first row's address, only the remainder modulo the burst size matters. A partly used beat of the bus counts
    as a whole.
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
