"""Runs candidates on remote servers: as many at once as there are servers, or rivals in turns on one of them."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from typing import Any, Self

from anole.errors import DeviceLostError, MeasureError
from anole.measure.builders import Built
from anole.measure.device_access import RemoteDevices
from anole.measure.options import MeasureOptions
from anole.measure.remote_worker import Ended, RemoteWorker, WorkerState
from anole.measure.results import Results
from anole.measure.worker_functions import Timed, start_running_elsewhere
from anole.record import Measurement
from anole.targets.base import Device
from anole.targets.rpc.address import Remote
from anole.targets.rpc.tracker import count_servers
from anole.task import Workload

logger = logging.getLogger(__name__)

_MAX_LOSSES = 3
_MAX_PASSES = 3
_LONGEST_WAIT_S = 60.0
_COMPARED_S = 0.1
"""Seconds for which a kernel runs on each server, to find out whether they are alike."""


@dataclass
class _Call:
    """Candidates that run together in one call, and how often a server was lost meanwhile."""

    candidates: Sequence[Built]
    seconds: float | None = None
    losses: int = 0


class RemoteRunner:
    """Runs candidates of a workload on servers; a context manager that gives them back.

    What ran on a server that is lost runs again on another one, or on the same one when it is back. What loses its
    server several times is assumed to crash it.
    """

    def __init__(
        self, site: RemoteDevices, target: Device, workload: Workload, options: MeasureOptions, results: Results
    ) -> None:
        self._site, self._target, self._options, self._results = site, target, options, results
        self._start: Callable[[], Callable[..., Any]] = partial(
            start_running_elsewhere, target, workload, options.evaluator, options.limits.session_s
        )
        self._lanes: list[RemoteWorker] = []
        self._waiting, self._running = deque[_Call](), dict[RemoteWorker, _Call]()
        self._describe: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()

    @contextmanager
    def held(self, n: int) -> Iterator[None]:
        """Hold as many servers as there are now, at most one for each of `n` calls."""
        self._describe.clear()
        self._site.absent.discard(str(self._site.remote))
        self._lanes = [
            RemoteWorker(places, self._start, self._target, self._options)
            for places in places_of_workers(self._site.remote, n, self._site.absent)
        ]
        try:
            self._advance(())
            yield
        finally:
            self._give_back()

    @property
    def n_workers(self) -> int:
        """How many candidates run at once at most."""
        return len(self._lanes)

    @property
    def has_room(self) -> bool:
        """Whether a session waits for a candidate."""
        return sum(lane.is_ready for lane in self._lanes) > len(self._waiting)

    @property
    def connections(self) -> list[Any]:
        """What becomes readable when a session or a candidate can go on."""
        return [connection for lane in self._lanes for connection in lane.connections]

    @property
    def left_s(self) -> float:
        """Seconds until a session or a candidate goes on in any case."""
        return min((lane.left_s for lane in self._lanes), default=math.inf)

    def begin(self, candidate: Built) -> None:
        """Start running a built candidate."""
        self._waiting.append(_Call([candidate]))
        self._dispatch()

    def collect(self, readable: Container[Any]) -> list[tuple[int, Measurement]]:
        """Return positions and measurements of the candidates that have ended; raises as `LocalRunner.collect`."""
        done = self._advance(readable)
        return [(call.candidates[0].position, self._measurement(call.candidates[0], ended)) for call, ended in done]

    def run_each(self, candidates: Sequence[Built]) -> list[Measurement]:
        """Run candidates one after another and return their measurements, all from one server where they worked."""
        able = [at for at, candidate in enumerate(candidates) if candidate.failure is None]
        found: dict[int, Ended] = {}
        left, last = able, ""
        for _ in range(_MAX_PASSES):
            for at in left:
                found[at] = self._run(_Call([candidates[at]]))
                last = found[at].server if found[at].error is None else last
            # A failure ends its session, and a tracker lends any server next.
            left = [at for at in able if found[at].error is None and found[at].server != last]
            if not left:
                break
        else:
            logger.warning("the rivals ran on several servers, so their latencies may not compare")
        return [candidate.failure or self._measurement(candidate, found[at]) for at, candidate in enumerate(candidates)]

    def compare(self, candidates: Sequence[Built], seconds: float) -> list[Measurement]:
        """Run rivals in turns for some seconds on one server; return and raise as `LocalRunner.compare`."""
        ended = self._run(_Call([candidate for candidate in candidates if candidate.failure is None], seconds))
        if ended.error is not None:
            raise ended.error
        return self._results.of_rivals(candidates, ended.value, ended.run_s)

    def abandon(self) -> None:
        """Abandon what runs."""
        self._end(self._running)

    def compare_devices(self, candidate: Built | None) -> None:
        """Let a candidate that worked run on all servers at hand, until it is known whether they are alike."""
        ready = {lane.server: lane for lane in self._lanes if lane.is_ready}
        if candidate is None or not self._site.likeness.wants(frozenset(ready)):
            return
        for lane in ready.values():
            self._submit(lane, _Call([candidate], _COMPARED_S))
        latencies_s: dict[str, float] = {}
        while self._running:
            for _, ended in self._advance(self._wait()):
                timed: list[Timed] = ended.value or []
                for each in timed:
                    if each.timing is not None:
                        latencies_s[ended.server] = each.timing.latency_s
            # What loses its server here is of no interest any more.
            self._waiting.clear()
        self._site.likeness.add(latencies_s)

    def _measurement(self, candidate: Built, ended: Ended) -> Measurement:
        return self._results.of_one(candidate, ended.value if ended.error is None else ended.error, ended.run_s)

    def _run(self, call: _Call) -> Ended:
        """Run a call while nothing else runs, and returns how it ended."""
        self._waiting.append(call)
        self._dispatch()
        while not (ended := self._advance(self._wait())):
            pass
        return ended[0][1]

    def _wait(self) -> list[Any]:
        return wait(self.connections, min(self.left_s, _LONGEST_WAIT_S))

    def _advance(self, readable: Container[Any]) -> list[tuple[_Call, Ended]]:
        """Let each lane go on, and return the calls that have ended for good."""
        done: list[tuple[_Call, Ended]] = []
        for lane in self._lanes:
            tried = lane.failure
            others = [other for other in self._lanes if other is not lane]
            ended = lane.advance(readable, may_queue=not any(other.holds for other in others))
            if lane.failure is not None and lane.failure is not tried:
                self._tell_absent(lane, others)
            if ended is None:
                continue
            if isinstance(ended.error, DeviceLostError):
                done += self._again(lane, ended, others)
            else:
                self._site.absent.discard(ended.server)
                done.append((self._running.pop(lane), ended))
        self._dispatch()
        return done

    def _again(self, lane: RemoteWorker, ended: Ended, others: Sequence[RemoteWorker]) -> list[tuple[_Call, Ended]]:
        """Let a call run again that lost its server; returns it if it did so too often."""
        call = self._running.pop(lane)
        call.losses += 1
        if call.losses == _MAX_LOSSES:
            error = DeviceLostError(f"its device was lost {call.losses} times while it ran: {ended.error}")
            return [(call, Ended(ended.server, ended.run_s, error=error))]
        goes_on = any(map(_has_session, others))
        what = "another server runs its candidate" if goes_on else "running the candidate again"
        logger.warning("%s: %s; %s", ended.server, ended.error, what)
        if goes_on:
            self._site.absent.add(ended.server)
        self._waiting.appendleft(call)
        return []

    def _tell_absent(self, lane: RemoteWorker, others: Sequence[RemoteWorker]) -> None:
        """Tell why a lane has no server: at each try while no lane has one, and otherwise once.

        Raises:
            MeasureError: no lane has one, and all of them have given up.
        """
        if all(each.state is WorkerState.GONE for each in self._lanes):
            raise MeasureError(f"{lane.failure}; gave up after {self._options.retries.total_s:g} s") from lane.failure
        if any(map(_has_session, others)):
            if lane.failed_at not in self._site.absent:
                logger.warning("%s; the other servers go on without it", lane.failure)
            self._site.absent.add(lane.failed_at)
        elif lane.state is not WorkerState.GONE:
            told = f"{lane.failure}; trying again in {lane.wait_s:g} s"
            if told not in self._describe:
                logger.warning("%s", told)
            self._describe.add(told)

    def _dispatch(self) -> None:
        for lane in self._lanes:
            if self._waiting and lane.is_ready and self._submit(lane, self._waiting[0]):
                self._waiting.popleft()

    def _submit(self, lane: RemoteWorker, call: _Call) -> bool:
        loadables = [candidate.loadable for candidate in call.candidates]
        if is_taken := lane.submit(loadables, self._results.best_s, call.seconds):
            self._running[lane] = call
        return is_taken

    def _give_back(self) -> None:
        self._end(self._lanes)
        self._lanes = []

    def _end(self, lanes: Iterable[RemoteWorker]) -> None:
        """End lanes, after all of them were told to give their servers back, and forget all calls."""
        for end in (RemoteWorker.release, RemoteWorker.end):
            for lane in lanes:
                end(lane)
        self._running.clear()
        self._waiting.clear()


def places_of_workers(remote: Remote, n: int, absent: Container[str] = ()) -> list[list[Remote]]:
    """Return where each lane finds its servers: as many lanes as there are servers, at least one and at most `n`.

    Of a tracker's servers, those in use count, too; `absent` ones are tried after all others.
    """
    n = max(1, n)
    if remote.key is None:
        places = sorted(remote.places, key=lambda place: str(place) in absent)
        return [places[first::n] for first in range(min(n, len(places)))]
    try:
        n_servers, _ = count_servers(remote)
    except DeviceLostError:
        # The lane tells it, and waits for the tracker or for a server.
        n_servers = 1
    return [[remote]] * min(n, n_servers, remote.servers or n)


def _has_session(lane: RemoteWorker) -> bool:
    return lane.state in (WorkerState.READY, WorkerState.RUNNING)
