"""Run candidates on remote servers: one per server in parallel, or interleaved on a single server."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from typing import Any

from anole.errors import DeviceLostError, MeasureError
from anole.measure.builders import Built
from anole.measure.device_access import RemoteDevices
from anole.measure.options import MeasureOptions
from anole.measure.results import Results
from anole.measure.runners.remote_worker import Ended, RemoteWorker, WorkerState
from anole.measure.worker_functions import Timed, make_remote_run_function
from anole.record import Measurement
from anole.targets.base import Device
from anole.targets.rpc.address import Remote
from anole.targets.rpc.tracker import count_servers
from anole.task import Workload

logger = logging.getLogger(__name__)

_MAX_LOSSES = 3
_MAX_PASSES = 3
_MAX_WAIT_S = 60.0
_COMPARISON_S = 0.1
"""Seconds to run a kernel on each server when their speed is compared."""


@dataclass
class _Call:
    """Candidates to run in one call, and how often a server was lost while they ran."""

    candidates: Sequence[Built]
    seconds: float | None = None
    losses: int = 0


class RemoteRunner(AbstractContextManager["RemoteRunner"]):
    """A runner of a workload's candidates on servers; a context manager that gives the servers back.

    A candidate whose server is lost runs again on another server, or on the same one when it is back. A candidate
    whose server is lost several times is assumed to crash it.
    """

    def __init__(
        self, access: RemoteDevices, target: Device, workload: Workload, options: MeasureOptions, results: Results
    ) -> None:
        self._access, self._target, self._options, self._results = access, target, options, results
        self._start: Callable[[], Callable[..., Any]] = partial(
            make_remote_run_function, target, workload, options.evaluator, options.limits.session_s
        )
        self._workers: list[RemoteWorker] = []
        self._waiting, self._running = deque[_Call](), dict[RemoteWorker, _Call]()
        self._logged: set[str] = set()

    def __exit__(self, *_: object) -> None:
        self._give_back()

    @contextmanager
    def hold_devices(self, n: int) -> Iterator[None]:
        """Hold all servers that exist now, but at most `n`."""
        self._logged.clear()
        self._access.absent.discard(str(self._access.remote))
        self._workers = [
            RemoteWorker(addresses, self._start, self._target, self._options)
            for addresses in assign_addresses(self._access.remote, n, self._access.absent)
        ]
        try:
            self._advance(())
            yield
        finally:
            self._give_back()

    @property
    def n_workers(self) -> int:
        """Maximum number of candidates that run in parallel."""
        return len(self._workers)

    @property
    def has_room(self) -> bool:
        """Whether an open session has no candidate to run."""
        return sum(worker.is_ready for worker in self._workers) > len(self._waiting)

    @property
    def connections(self) -> list[Any]:
        """Connections that become readable when a worker can make progress."""
        return [connection for worker in self._workers for connection in worker.connections]

    @property
    def left_s(self) -> float:
        """Seconds until a worker must be advanced even if no connection is readable."""
        return min((worker.left_s for worker in self._workers), default=math.inf)

    def begin(self, candidate: Built) -> None:
        """Start running a built candidate."""
        self._waiting.append(_Call([candidate]))
        self._dispatch()

    def collect(self, readable: Container[Any]) -> list[tuple[int, Measurement]]:
        """Return positions and measurements of the candidates that have ended; raise as `LocalRunner.collect` does."""
        done = self._advance(readable)
        return [(call.candidates[0].position, self._measurement(call.candidates[0], result)) for call, result in done]

    def run_each(self, candidates: Sequence[Built]) -> list[Measurement]:
        """Run candidates one after another and return their measurements, if possible all successes from one server."""
        built = [i for i, candidate in enumerate(candidates) if candidate.failure is None]
        results: dict[int, Ended] = {}
        pending, server = built, ""
        for _ in range(_MAX_PASSES):
            for i in pending:
                results[i] = self._run(_Call([candidates[i]]))
                server = results[i].server if results[i].error is None else server
            # A failure ends its session, and the tracker may then grant another server.
            pending = [i for i in built if results[i].error is None and results[i].server != server]
            if not pending:
                break
        else:
            logger.warning("the candidates ran on different servers; their latencies may not be comparable")
        return [candidate.failure or self._measurement(candidate, results[i]) for i, candidate in enumerate(candidates)]

    def compare(self, candidates: Sequence[Built], seconds: float) -> list[Measurement]:
        """Time candidates interleaved on one server; return and raise as `LocalRunner.compare` does."""
        result = self._run(_Call([candidate for candidate in candidates if candidate.failure is None], seconds))
        if result.error is not None:
            raise result.error
        return self._results.interleaved_measurements(candidates, result.value, result.run_s)

    def abandon(self) -> None:
        """Kill the running candidates."""
        self._end(self._running)

    def compare_devices(self, candidate: Built | None) -> None:
        """Compare the speed of all connected servers with a candidate that worked, unless no comparison is needed."""
        ready = {worker.server: worker for worker in self._workers if worker.is_ready}
        if candidate is None or not self._access.consistency.wants(frozenset(ready)):
            return
        for worker in ready.values():
            self._submit(worker, _Call([candidate], _COMPARISON_S))
        latencies_s: dict[str, float] = {}
        while self._running:
            for _, result in self._advance(self._wait()):
                timings: list[Timed] = result.value or []
                for timed in timings:
                    if timed.timing is not None:
                        latencies_s[result.server] = timed.timing.latency_s
            # A comparison whose server is lost is not repeated.
            self._waiting.clear()
        self._access.consistency.add(latencies_s)

    def _measurement(self, candidate: Built, result: Ended) -> Measurement:
        return self._results.of_one(candidate, result.value if result.error is None else result.error, result.run_s)

    def _run(self, call: _Call) -> Ended:
        """Run a call while nothing else runs, and return its result."""
        self._waiting.append(call)
        self._dispatch()
        while not (results := self._advance(self._wait())):
            pass
        return results[0][1]

    def _wait(self) -> list[Any]:
        return wait(self.connections, min(self.left_s, _MAX_WAIT_S))

    def _advance(self, readable: Container[Any]) -> list[tuple[_Call, Ended]]:
        """Advance each worker, and return the calls that have ended and will not be repeated."""
        done: list[tuple[_Call, Ended]] = []
        for worker in self._workers:
            failure_before = worker.failure
            peers = [peer for peer in self._workers if peer is not worker]
            result = worker.advance(readable, may_queue=not any(peer.holds for peer in peers))
            if worker.failure is not None and worker.failure is not failure_before:
                self._report_absent(worker, peers)
            if result is None:
                continue
            if isinstance(result.error, DeviceLostError):
                done += self._retry(worker, result, peers)
            else:
                self._access.absent.discard(result.server)
                done.append((self._running.pop(worker), result))
        self._dispatch()
        return done

    def _retry(self, worker: RemoteWorker, result: Ended, peers: Sequence[RemoteWorker]) -> list[tuple[_Call, Ended]]:
        """Repeat a call whose server was lost; return it as failed if its server was lost too often."""
        call = self._running.pop(worker)
        call.losses += 1
        if call.losses == _MAX_LOSSES:
            error = DeviceLostError(f"the device was lost {call.losses} times while running it: {result.error}")
            return [(call, Ended(result.server, result.run_s, error=error))]
        has_another = any(map(_has_session, peers))
        action = "running its candidate on another server" if has_another else "running the candidate again"
        logger.warning("%s: %s; %s", result.server, result.error, action)
        if has_another:
            self._access.absent.add(result.server)
        self._waiting.appendleft(call)
        return []

    def _report_absent(self, worker: RemoteWorker, peers: Sequence[RemoteWorker]) -> None:
        """Log why a worker has no server: each new message while no worker has a session, otherwise once.

        Raises:
            MeasureError: all workers have given up.
        """
        if all(peer.state is WorkerState.GONE for peer in self._workers):
            raise MeasureError(
                f"{worker.failure}; gave up after {self._options.retries.total_s:g} s"
            ) from worker.failure
        if any(map(_has_session, peers)):
            if worker.failed_at not in self._access.absent:
                logger.warning("%s; continuing with the other servers", worker.failure)
            self._access.absent.add(worker.failed_at)
        elif worker.state is not WorkerState.GONE:
            message = f"{worker.failure}; trying again in {worker.wait_s:g} s"
            if message not in self._logged:
                logger.warning("%s", message)
            self._logged.add(message)

    def _dispatch(self) -> None:
        for worker in self._workers:
            if self._waiting and worker.is_ready and self._submit(worker, self._waiting[0]):
                self._waiting.popleft()

    def _submit(self, worker: RemoteWorker, call: _Call) -> bool:
        loadables = [candidate.loadable for candidate in call.candidates]
        if is_accepted := worker.submit(loadables, self._results.best_s, call.seconds):
            self._running[worker] = call
        return is_accepted

    def _give_back(self) -> None:
        self._end(self._workers)
        self._workers = []

    def _end(self, workers: Iterable[RemoteWorker]) -> None:
        """Ask all workers to give their servers back, end them, and forget all calls."""
        for end in (RemoteWorker.release, RemoteWorker.end):
            for worker in workers:
                end(worker)
        self._running.clear()
        self._waiting.clear()


def assign_addresses(remote: Remote, n: int, absent: Container[str] = ()) -> list[list[Remote]]:
    """Return the addresses that each worker may use: one worker per server, at least one and at most `n`.

    A tracker's servers count even if they are in use; `absent` ones come last.
    """
    n = max(1, n)
    if remote.key is None:
        addresses = sorted(remote.places, key=lambda address: str(address) in absent)
        return [addresses[first::n] for first in range(min(n, len(addresses)))]
    try:
        n_servers, _ = count_servers(remote)
    except DeviceLostError:
        # The worker logs the error, and waits for the tracker or for a server.
        n_servers = 1
    return [[remote]] * min(n, n_servers, remote.servers or n)


def _has_session(worker: RemoteWorker) -> bool:
    return worker.state in (WorkerState.READY, WorkerState.RUNNING)
