"""The read channel to DRAM, burst by burst: five clients share it, and a burst is served when its turn comes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

OUTSTANDING_BURSTS = 16
"""Bursts that were requested and not yet read to the end, of all clients together."""


@dataclass(eq=False, slots=True)
class Read:
    """What one client reads for one instruction.

    Attributes:
        client: its priority; 0 comes first.
        ready: the cycle from which its next request may leave.
        bursts: beats of every burst.
        left: beats of the bursts that were not requested yet; of all of them in the beginning.
        end: the cycle after its last beat, as far as is known: a read of a client with priority may delay it.
        gap: cycles from one of its requests to the next; those of other clients may leave in between.
        next: number of the burst that is requested next.
    """

    client: int
    ready: int
    bursts: Sequence[int]
    left: int
    end: int = 0
    gap: int = 1
    next: int = field(default=0, repr=False)


class _Request(NamedTuple):
    """A request that has left.

    Attributes:
        cycle: when it left.
        begin, end: of its burst.
        nonempty: since when the queue has not been empty.
        read: whose it is.
        ready: from when it might have left.
    """

    cycle: int
    begin: int
    end: int
    nonempty: int
    read: Read
    ready: int


class ChannelState(NamedTuple):
    """What decides how a channel serves what comes later; cycles are relative to an earliest one.

    Attributes:
        reads: those that go on, each as the fields of `Read` in their order.
        requests: as far as they matter, each as the fields of `_Request`; its read is a number among the reads, or -1.
    """

    reads: tuple[tuple[int, int, Sequence[int], int, int, int, int], ...] = ()
    requests: tuple[tuple[int, int, int, int, int, int], ...] = ()


class ReadChannel:
    """Serves bursts in the order of their requests.

    The latency is waited for once, from when the queue of requests last became non-empty: while it never runs
    empty, bursts follow each other without a gap. The queue does not hold the burst that is being served.

    A read is planned as soon as it is known: request by request while several are waiting, and then by the closed form.
    One that comes later may get its requests in between: those that had not left by then are planned anew.

    Args:
        latency: cycles from a request at an empty queue to its first beat.
    """

    def __init__(self, latency: int) -> None:
        self._latency = latency
        self._reads: list[Read] = []
        self._requests: list[_Request] = []

    def add(self, read: Read) -> list[Read]:
        """Begins a read; returns the reads whose end has changed by it, itself included."""
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
        """Returns what matters to reads that become ready from a cycle on."""
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
        """Goes on from a state, at another cycle."""
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
        """Plans the requests that have not left: at least those before a cycle, and when all reads end."""
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
                # Its requests leave faster than they are served, so that the queue does not run empty.
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
