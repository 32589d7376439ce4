"""Measuring with real servers over TVM's RPC: which server runs what, the order of results, and lost servers."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anole.errors import DeviceLostError, MeasureError, TargetError
from anole.measure.device_access import RemoteDevices, ServerConsistency
from anole.measure.measurer import Measurer
from anole.measure.options import Limits, MeasureOptions, Retries
from anole.measure.runners.remote import assign_addresses
from anole.measure.runners.remote_worker import RemoteWorker, WorkerState
from anole.record import Measurement, Status
from anole.search.evaluators.fixed import Fixed
from anole.targets import get_target
from anole.targets.cpu.device.runner import remote_runner
from anole.targets.cpu.settings import describe_cpu
from anole.targets.rpc.address import Remote, Server
from anole.targets.rpc.runner import open_session
from anole.targets.rpc.tracker import Tracker, count_servers
from anole.task import Dense, Task
from anole_cuda.device.runner import find_gpu

from ...host.holding import make_holding
from ..faulty_cpu import CallingCpu, KeepingCpu
from ..servers import HOST, LIMITS, QUICK, SHORT, START_S, Process, at, free_port, server, tracker

Configs = list[dict[str, Any]]

TASK = Task(Dense(1, 64, 64), describe_cpu(threads=1), 1)
SPACE = get_target(TASK.target).space(TASK.workload)
CONFIGS: Configs = [SPACE.config(vector) for vector in SPACE.sample(8, np.random.default_rng(0))]
KEY = "zen"

Measuring = Callable[..., Measurer]
Processes = list[Process]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Two servers without a tracker."""
    folder = tmp_path_factory.mktemp("alone")
    yield from _running([server(folder), server(folder)])


@pytest.fixture(scope="module")
def central(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    for started in _running([tracker(tmp_path_factory.mktemp("central"))]):
        yield started[0]


@pytest.fixture(scope="module")
def known(central: Process, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    folder = tmp_path_factory.mktemp("known")
    processes = [server(folder, central.port, KEY) for _ in range(2)]
    yield processes
    kill(processes)


@pytest.fixture(scope="module")
def lent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A server that survives crashes of its sessions."""
    serve = ("anole", "serve", "--port", "{port}", "--threads", "1")
    process = Process(tmp_path_factory.mktemp("lent"), *serve)
    process.start()
    yield process
    process.kill()


@pytest.fixture
def tracked(central: Process, known: Processes) -> Processes:
    """Two servers that are registered with the tracker; a test may kill them."""
    launch(known)
    await_servers(central, 2)
    return known


def _running(processes: Processes) -> Iterator[Processes]:
    launch(processes)
    for each in processes:
        each.await_listening()
    yield processes
    kill(processes)


def launch(processes: Processes) -> None:
    """Start the servers that do not run, such as those that a test has killed."""
    for each in processes:
        if not each.is_running:
            each.launch()


def kill(processes: Processes) -> None:
    for each in processes:
        if each.is_running:
            each.kill()


def count_new_loads(processes: Processes, before: Sequence[int]) -> list[int]:
    """Return how many candidates each server has loaded since."""
    return [now - then for now, then in zip(count_loads(processes), before, strict=True)]


def lookup(central: Process, servers: int | None = None) -> Remote:
    return Remote(HOST, central.port, KEY, servers=servers)


def await_servers(central: Process, n: int) -> None:
    """Wait until the tracker knows n free servers; connecting to one of them would make it register again."""
    ends_s = time.monotonic() + START_S
    while assign_addresses(lookup(central), 99) != [[lookup(central)]] * n or count_servers(lookup(central))[1] != n:
        assert time.monotonic() < ends_s
        time.sleep(0.05)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def measurer(kept: Path) -> Measuring:
    target = KeepingCpu({**TASK.target, "kept": str(kept)})

    def measurer(remote: Remote | RemoteDevices, limits: Limits = LIMITS, retries: Retries = QUICK) -> Measurer:
        access = remote if isinstance(remote, RemoteDevices) else RemoteDevices(remote)
        options = MeasureOptions(Fixed(number=10, repeats=10), 2, limits, retries)
        return Measurer(TASK, options, target=target, access=access)

    return measurer


def measure_until_all_ran(measuring: Measurer, processes: Processes, before: Sequence[int]) -> int:
    """Measure until each server has run two candidates; return how many were measured."""
    results = measuring.measure([*CONFIGS] * 1000)
    for n, measurement in enumerate(results, 1):
        assert measurement.status is Status.OK
        if min(count_new_loads(processes, before)) >= 2:
            results.close()
            return n
    raise AssertionError(f"only some of the servers ran candidates: {count_new_loads(processes, before)}")


def statuses(measured: Sequence[Measurement]) -> list[Status]:
    return [measurement.status for measurement in measured]


def count_loads(processes: Processes) -> list[int]:
    return [process.n_loaded for process in processes]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def threads_of(process: Process) -> list[int]:
    """Return the ids of all threads of a process and its descendants."""
    processes = (process.process, *process.process.children(recursive=True))
    return [thread.id for each in processes for thread in each.threads()]


@pytest.mark.guard
def test_a_server_listens_to_its_own_machine_unless_a_host_is_given(lent: Process) -> None:
    processes = [lent.process, *lent.process.children(recursive=True)]
    listening = [each.laddr for process in processes for each in process.net_connections("tcp") if not each.raddr]
    assert {address.ip for address in listening if address.port == lent.port} == {HOST}


def test_measures_and_confirms_as_on_this_machine(measurer: Measuring, pair: Processes) -> None:
    with measurer(at(pair[:1])) as measuring:
        measured = list(measuring.measure(CONFIGS[:4]))
        confirmed = measuring.confirm(CONFIGS[:2], seconds_each=0.05)
    assert statuses(measured) == [Status.OK] * 4
    for measurement in measured:
        assert measurement.latency_s is not None and 0 < measurement.latency_s < 1e-2
        assert measurement.repeats == 10
        assert measurement.build_s > 0 and measurement.run_s > 0
    assert statuses(confirmed) == [Status.OK] * 2
    assert all(confirmation.repeats >= 5 for confirmation in confirmed)


@pytest.mark.guard
def test_a_wrong_answer_and_a_hang_cost_one_trial_each(measurer: Measuring, pair: Processes) -> None:
    first, second, third, fourth = CONFIGS[:4]
    with measurer(at(pair[:1]), Limits(connect_s=START_S, run_s=1.0, lease_s=0.5)) as measuring:
        measured = list(measuring.measure([first, {**second, "calls": "getpid"}, {**third, "calls": "pause"}, fourth]))
    assert statuses(measured) == [Status.OK, Status.WRONG_ANSWER, Status.RUN_TIMEOUT, Status.OK]
    assert measured[1].error == "relative error nan; at most 0.0001 is allowed"
    assert measured[2].error == "the server ended the session because it took too long"


@pytest.mark.guard
def test_a_server_that_is_killed_and_started_again_costs_nothing(measurer: Measuring, pair: Processes) -> None:
    with measurer(at(pair[:1])) as measuring:
        results = measuring.measure(CONFIGS[:4])
        first = next(results)
        pair[0].kill()
        restart = threading.Timer(0.5, pair[0].start)
        restart.start()
        measured = [first, *results]
    restart.join()
    assert statuses(measured) == [Status.OK] * 4
    assert all(measurement.latency_s is not None and measurement.latency_s < 1e-2 for measurement in measured)


@pytest.mark.guard
@pytest.mark.parametrize("is_deaf", [False, True])
def test_a_server_that_is_absent_or_does_not_answer_ends_measuring(measurer: Measuring, is_deaf: bool) -> None:
    with socket.create_server((HOST, 0)) as deaf:
        remote = Remote(HOST, deaf.getsockname()[1] if is_deaf else free_port())
        message = "does not answer: .*" if is_deaf else f"the RPC server {HOST}:{remote.port} cannot be reached: .*"
        with (
            measurer(remote, Limits(connect_s=1.0), SHORT) as measuring,
            pytest.raises(MeasureError, match=f"{message}; gave up after 0.5 s"),
        ):
            list(measuring.measure(CONFIGS[:1]))


@pytest.mark.guard
def test_a_server_without_a_gpu_is_refused(pair: Processes) -> None:
    with pytest.raises(TargetError, match="cuda sm_90: TVM finds no GPU on the machine that runs candidates"):
        find_gpu("sm_90", _open_patiently(pair[0]))


@pytest.mark.guard
def test_a_server_with_another_number_of_threads_is_refused(pair: Processes) -> None:
    task = Task(TASK.workload, {**TASK.target, "threads": 3}, 1)
    with (
        Measurer(task, MeasureOptions(Fixed()), access=RemoteDevices(at(pair[:1]))) as measuring,
        pytest.raises(TargetError, match="with 1 of the target's 3 threads; start it with TVM_NUM_THREADS=3"),
    ):
        list(measuring.measure(CONFIGS[:1]))


@pytest.mark.guard
def test_a_crash_costs_one_trial(measurer: Measuring, lent: Process) -> None:
    with measurer(at([lent])) as measuring:
        measured = list(measuring.measure([CONFIGS[0], {**CONFIGS[1], "calls": "abort"}, CONFIGS[2]]))
    assert statuses(measured) == [Status.OK, Status.RUN_ERROR, Status.OK]
    assert str(measured[1].error).startswith("the device was lost 3 times while running it: the connection")


@pytest.mark.guard
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor")
def test_a_server_stays_on_the_processors_that_it_may_use(lent: Process) -> None:
    own = max(os.sched_getaffinity(0))
    for thread in threads_of(lent):
        os.sched_setaffinity(thread, {own})
    target = CallingCpu(TASK.target)
    session = _open_patiently(lent)
    remote_runner(target.template(TASK.workload), TASK.workload, 1, session)
    assert {frozenset(os.sched_getaffinity(thread)) for thread in threads_of(lent)} == {frozenset({own})}


def _open_patiently(process: Process) -> Any:
    """Open a session as soon as the server's previous client has left."""
    ends_s = time.monotonic() + START_S
    while True:
        try:
            return open_session(Server(HOST, process.port), 60.0)
        except DeviceLostError:
            assert time.monotonic() < ends_s
            time.sleep(0.1)


@pytest.mark.guard
def test_both_servers_run_candidates_and_results_keep_their_order(measurer: Measuring, pair: Processes) -> None:
    before, wrong = count_loads(pair), {"calls": "getpid"}
    mixed = [{**config, **(wrong if at in (1, 4, 5) else {})} for at, config in enumerate(CONFIGS)]
    with measurer(at(pair)) as measuring:
        measured = list(measuring.measure(mixed * 4))
        measure_until_all_ran(measuring, pair, before)
    expected = [Status.WRONG_ANSWER if "calls" in config else Status.OK for config in mixed]
    assert statuses(measured) == expected * 4


@pytest.mark.guard
def test_a_confirmation_stays_on_one_server(measurer: Measuring, pair: Processes) -> None:
    with measurer(at(pair)) as measuring:
        before = count_loads(pair)
        confirmed = measuring.confirm(CONFIGS[:4], seconds_each=0.02)
    assert statuses(confirmed) == [Status.OK] * 4
    assert sorted(count_new_loads(pair, before)) == [0, 4]


@pytest.mark.guard
@pytest.mark.parametrize("hanging", [0, 2])
def test_rivals_that_cannot_run_together_run_on_one_server_where_they_work(
    measurer: Measuring, central: Process, tracked: Processes, hanging: int, caplog: pytest.LogCaptureFixture
) -> None:
    limits = Limits(connect_s=START_S, run_s=1.0, lease_s=0.5)
    rivals: Configs = [
        {**config, "calls": "pause"} if at == hanging else config for at, config in enumerate(CONFIGS[:3])
    ]
    with measurer(lookup(central), limits) as measuring:
        confirmed = measuring.confirm(rivals, seconds_each=0.02)
    assert [at for at, status in enumerate(statuses(confirmed)) if status is not Status.OK] == [hanging]
    assert warnings(caplog) == ["the best candidates could not run interleaved; measuring each on its own"]


@pytest.mark.guard
def test_the_number_of_servers_can_be_limited(measurer: Measuring, central: Process, tracked: Processes) -> None:
    assert len(assign_addresses(lookup(central), 8)) == 2
    assert assign_addresses(lookup(central, 1), 8) == [[lookup(central, 1)]]
    before = count_loads(tracked)
    with measurer(lookup(central, 1)) as measuring:
        assert statuses(list(measuring.measure(CONFIGS[:6]))) == [Status.OK] * 6
    assert sorted(count_new_loads(tracked, before)) == [0, 6]


@pytest.mark.guard
def test_a_server_that_joins_is_used_from_the_next_batch_on(
    measurer: Measuring, central: Process, tracked: Processes
) -> None:
    tracked[1].kill()
    await_servers(central, 1)
    with measurer(lookup(central)) as measuring:
        assert statuses(list(measuring.measure(CONFIGS[:4]))) == [Status.OK] * 4
        before = count_loads(tracked)
        tracked[1].launch()
        await_servers(central, 2)
        measure_until_all_ran(measuring, tracked, before)


@pytest.mark.guard
@pytest.mark.parametrize("is_tracked", [True, False], ids=["tracker", "list"])
def test_a_killed_server_loses_no_candidate_and_is_reported_once(
    measurer: Measuring,
    is_tracked: bool,
    central: Process,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    started: Processes = request.getfixturevalue("tracked" if is_tracked else "pair")
    batch = [*CONFIGS, {**CONFIGS[0], "calls": "getpid"}]
    with measurer(lookup(central) if is_tracked else at(started)) as measuring:
        before, measured = count_loads(started), list[Measurement]()
        results = measuring.measure(batch * 1000)
        while started[1].is_running:
            measured.append(next(results))
            if min(count_new_loads(started, before)) >= 1:
                started[1].kill()
        while not warnings(caplog):
            measured.append(next(results))
        measured += islice(results, 10 * len(batch) - len(measured) % len(batch))
    launch(started)
    if not is_tracked:
        started[1].await_listening()
    assert statuses(measured) == ([Status.OK] * len(CONFIGS) + [Status.WRONG_ANSWER]) * (len(measured) // len(batch))
    (message,) = warnings(caplog)
    assert f"the RPC server {HOST}:{started[1].port}" in message
    assert "running its candidate on another server" in message or "continuing with the other servers" in message


@pytest.mark.guard
def test_measuring_ends_when_all_servers_are_gone(measurer: Measuring, central: Process, tracked: Processes) -> None:
    with measurer(lookup(central), retries=SHORT) as measuring:
        results = measuring.measure(CONFIGS * 1000)
        next(results)
        kill(tracked)
        with pytest.raises(
            MeasureError, match=r"has no server with the key 'zen'; its keys are: .*; gave up after 0.5 s"
        ):
            list(results)


@pytest.mark.guard
def test_an_address_without_a_server_costs_no_candidate(
    measurer: Measuring, pair: Processes, caplog: pytest.LogCaptureFixture
) -> None:
    absent = free_port()
    remote = Remote(HOST, absent, others=((HOST, pair[0].port),))
    with measurer(remote) as measuring:
        assert statuses(list(measuring.measure(CONFIGS))) == [Status.OK] * len(CONFIGS)
        assert statuses(measuring.confirm(CONFIGS[:2], seconds_each=0.02)) == [Status.OK] * 2
        assert statuses(list(measuring.measure(CONFIGS))) == [Status.OK] * len(CONFIGS)
    messages = warnings(caplog)
    assert messages and all(f"the RPC server {HOST}:{absent} cannot be reached" in text for text in messages)
    assert sum("continuing with the other servers" in text for text in messages) <= 1


@pytest.mark.guard
def test_a_run_that_has_all_servers_gives_one_to_another_run(
    measurer: Measuring, central: Process, tracked: Processes
) -> None:
    limits, events = Limits(connect_s=START_S, lease_s=0.3), list[str]()
    is_other_done = threading.Event()

    def greedy() -> None:
        with measurer(lookup(central), limits) as measuring:
            for n, _ in enumerate(measuring.measure(CONFIGS * 1000)):
                if n == 4:
                    events.append("has both")
                if is_other_done.is_set():
                    break
            else:
                events.append("starved the other")

    thread = threading.Thread(target=greedy)
    thread.start()
    while not events:
        time.sleep(0.01)
    with measurer(lookup(central), limits) as measuring:
        assert statuses(list(measuring.measure(CONFIGS[:2]))) == [Status.OK] * 2
    is_other_done.set()
    thread.join()
    assert events == ["has both"]


@pytest.mark.guard
def test_servers_that_are_in_use_are_waited_for(
    measurer: Measuring, central: Process, tracked: Processes, caplog: pytest.LogCaptureFixture
) -> None:
    held = [_session(lookup(central)) for _ in tracked]

    def leave_when_logged() -> None:
        ends_s = time.monotonic() + START_S
        while "are in use; waiting" not in caplog.text and time.monotonic() < ends_s:
            time.sleep(0.1)
        held.clear()

    leaving = threading.Thread(target=leave_when_logged)
    leaving.start()
    with caplog.at_level("INFO"), measurer(lookup(central), Limits(connect_s=2 * START_S), SHORT) as measuring:
        assert statuses(list(measuring.measure(CONFIGS[:1]))) == [Status.OK]
    leaving.join()
    assert re.search(f"all servers of the key '{KEY}' at the tracker .* are in use; waiting", caplog.text)


def _session(remote: Remote) -> Any:
    """Open a session with a server that the tracker grants."""
    tracker = Tracker(remote)
    tracker.count()
    tracker.request()
    return open_session(tracker.granted(), 60.0)


class RecordingConsistency(ServerConsistency):
    """A `ServerConsistency` that records its comparisons."""

    def __init__(self) -> None:
        super().__init__()
        self.compared: list[dict[str, float]] = []

    def add(self, latencies_s: Mapping[str, float]) -> None:
        self.compared.append(dict(latencies_s))
        super().add(latencies_s)


@pytest.mark.guard
def test_the_same_kernel_runs_on_all_servers(measurer: Measuring, pair: Processes) -> None:
    access = RemoteDevices(at(pair))
    recording = access.consistency = RecordingConsistency()
    with measurer(access) as measuring:
        while not recording.compared:
            assert statuses(list(measuring.measure(CONFIGS))) == [Status.OK] * len(CONFIGS)
    (latencies_s,) = recording.compared
    assert set(latencies_s) == {f"the RPC server {HOST}:{process.port}" for process in pair}
    assert all(0 < latency_s < 1e-2 for latency_s in latencies_s.values())


@pytest.mark.guard
def test_a_worker_opens_another_session_when_its_lease_is_over(tmp_path: Path) -> None:
    note = tmp_path / "note"
    start, options = partial(make_holding, note), MeasureOptions(Fixed(), limits=Limits(lease_s=0.2), retries=QUICK)
    worker = RemoteWorker([Remote(HOST, free_port())], start, CallingCpu(TASK.target), options)
    states: list[WorkerState] = []
    while states.count(WorkerState.READY) < 2:
        worker.advance(wait(worker.connections, worker.left_s), may_queue=True)
        states += [worker.state] if states[-1:] != [worker.state] else []
        # TVM's server would stop listening if it sent an answer to a process that has ended.
        assert note.exists() is (WorkerState.READY in states[:-1])
    assert states[-4:] == [WorkerState.WAITING, WorkerState.STARTING, WorkerState.OPENING, WorkerState.READY]
    note.unlink()
    worker.end()
    assert note.exists()


@pytest.mark.guard
def test_no_candidate_begins_in_a_session_without_enough_time(measurer: Measuring, pair: Processes) -> None:
    limits = Limits(connect_s=START_S, run_s=2.0, lease_s=0.3)
    began_s, n = time.monotonic(), 0
    with measurer(at(pair[:1]), limits) as measuring:
        for measurement in measuring.measure(CONFIGS * 1000):
            assert measurement.status is Status.OK, measurement.error
            n += 1
            if n >= 8 and time.monotonic() > began_s + 2 * limits.session_s:
                break


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_workers_share_a_list_of_servers(n: int) -> None:
    remote = Remote("a", 1, others=(("b", 2), ("c", 3)))
    workers = assign_addresses(remote, n)
    assert len(workers) == min(n, 3)
    assert sorted(str(place) for places in workers for place in places) == [
        "the RPC server a:1",
        "the RPC server b:2",
        "the RPC server c:3",
    ]
