"""Measuring over TVM's RPC, on this machine's processor behind real servers, which are killed."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from anole.errors import DeviceLostError, MeasureError, TargetError
from anole.measure.measurer import Measurer
from anole.measure.options import Limits, MeasureOptions, Retries
from anole.measure.site import Elsewhere
from anole.record import Measurement, Status
from anole.search.evaluators.fixed import Fixed
from anole.targets import get_target
from anole.targets.cpu.device.remote_runner import remote_runner
from anole.targets.cpu.settings import describe_cpu
from anole.targets.cuda.device.runner import find_gpu
from anole.targets.rpc.address import Remote, Server
from anole.targets.rpc.sessions import open_session
from anole.task import Conv2d, Task

from .calling import CallingCpu
from .servers import HOST, LIMITS, QUICK, SHORT, START_S, Process, at, free_port, server

TASK = Task(Conv2d(1, 8, 8, 8, 16, (3, 3), padding=(1, 1, 1, 1)), describe_cpu(threads=1), 1)


@pytest.fixture(scope="module")
def configs() -> list[dict[str, Any]]:
    space = get_target(TASK.target).space(TASK.workload)
    return [space.config(vector) for vector in space.sample(4, np.random.default_rng(0))]


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """TVM's server, without a tracker."""
    process = server(tmp_path_factory.mktemp("single"))
    process.start()
    yield process
    process.kill()


@pytest.fixture(scope="module")
def lent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A server that outlives crashes."""
    serve = ("anole", "serve", "--port", "{port}", "--threads", "1")
    process = Process(tmp_path_factory.mktemp("lent"), *serve)
    process.start()
    yield process
    process.kill()


def measurer(remote: Remote, limits: Limits = LIMITS, retries: Retries = QUICK) -> Measurer:
    options = MeasureOptions(Fixed(number=2, repeats=3), limits=limits, retries=retries)
    return Measurer(TASK, options, target=CallingCpu(TASK.target), site=Elsewhere(remote))


def threads_of(process: Process) -> list[int]:
    """Returns the numbers of all threads of a process and of what it started."""
    processes = (process.process, *process.process.children(recursive=True))
    return [thread.id for each in processes for thread in each.threads()]


def statuses(measured: list[Measurement]) -> list[Status]:
    return [measurement.status for measurement in measured]


@pytest.mark.guard
def test_a_server_listens_to_its_own_machine_unless_a_host_is_given(lent: Process) -> None:
    processes = [lent.process, *lent.process.children(recursive=True)]
    listening = [each.laddr for process in processes for each in process.net_connections("tcp") if not each.raddr]
    assert {address.ip for address in listening if address.port == lent.port} == {HOST}


def test_measures_and_confirms_as_on_this_machine(single: Process, configs: list[dict[str, Any]]) -> None:
    with measurer(at([single])) as measuring:
        measured = list(measuring.measure(configs))
        confirmed = measuring.confirm(configs[:2], seconds_each=0.05)
    assert statuses(measured) == [Status.OK] * 4
    for measurement in measured:
        assert measurement.latency_s is not None and 0 < measurement.latency_s < 1e-2
        assert measurement.repeats == 3
        assert measurement.build_s > 0 and measurement.run_s > 0
    assert statuses(confirmed) == [Status.OK] * 2
    assert all(confirmation.repeats >= 5 for confirmation in confirmed)


@pytest.mark.guard
def test_a_wrong_answer_and_a_hang_cost_one_trial_each(single: Process, configs: list[dict[str, Any]]) -> None:
    first, second, third, fourth = configs
    with measurer(at([single]), Limits(run_s=1.0, lease_s=0.5)) as measuring:
        measured = list(measuring.measure([first, {**second, "calls": "getpid"}, {**third, "calls": "pause"}, fourth]))
    assert statuses(measured) == [Status.OK, Status.WRONG_ANSWER, Status.RUN_TIMEOUT, Status.OK]
    assert measured[1].error == "relative error nan; at most 0.0001 is allowed"
    assert measured[2].error == "ended by its server, because it took too long"


@pytest.mark.guard
def test_a_server_that_is_killed_and_started_again_costs_nothing(
    single: Process, configs: list[dict[str, Any]]
) -> None:
    with measurer(at([single])) as measuring:
        results = measuring.measure(configs)
        first = next(results)
        single.kill()
        restart = threading.Timer(0.5, single.start)
        restart.start()
        measured = [first, *results]
    restart.join()
    assert statuses(measured) == [Status.OK] * 4
    assert all(measurement.latency_s is not None and measurement.latency_s < 1e-2 for measurement in measured)


@pytest.mark.guard
def test_a_server_that_stays_away_ends_it(configs: list[dict[str, Any]]) -> None:
    remote = Remote(HOST, free_port())
    with (
        measurer(remote, retries=SHORT) as measuring,
        pytest.raises(MeasureError, match=f"the RPC server {HOST}:{remote.port} cannot be reached: .*; gave up after"),
    ):
        list(measuring.measure(configs))


@pytest.mark.guard
def test_a_server_that_is_deaf_ends_it(configs: list[dict[str, Any]]) -> None:
    with socket.create_server((HOST, 0)) as deaf:
        remote = Remote(HOST, deaf.getsockname()[1])
        with (
            measurer(remote, Limits(connect_s=1.0), Retries(0.1, 0.1, 0.1)) as measuring,
            pytest.raises(MeasureError, match=r"gives no answer: .*; gave up after 0.1 s"),
        ):
            list(measuring.measure(configs[:1]))


@pytest.mark.guard
def test_a_server_without_a_gpu_is_refused(single: Process) -> None:
    with pytest.raises(TargetError, match="cuda sm_90: TVM finds no GPU where candidates are to run"):
        find_gpu("sm_90", _open_patiently(single))


@pytest.mark.guard
def test_a_server_of_other_threads_is_refused(single: Process, configs: list[dict[str, Any]]) -> None:
    task = Task(TASK.workload, {**TASK.target, "threads": 3}, 1)
    with (
        Measurer(task, MeasureOptions(Fixed()), site=Elsewhere(at([single]))) as measuring,
        pytest.raises(TargetError, match="with 1 of the target's 3 threads; start it with TVM_NUM_THREADS=3"),
    ):
        list(measuring.measure(configs[:1]))


@pytest.mark.guard
def test_a_crash_costs_one_trial(lent: Process, configs: list[dict[str, Any]]) -> None:
    with measurer(at([lent])) as measuring:
        measured = list(measuring.measure([configs[0], {**configs[1], "calls": "abort"}, configs[2]]))
    assert statuses(measured) == [Status.OK, Status.RUN_ERROR, Status.OK]
    assert str(measured[1].error).startswith("its device was lost 3 times while it ran: the connection")


@pytest.mark.guard
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor")
def test_a_server_stays_on_the_processors_that_it_may_use(lent: Process) -> None:
    own = max(os.sched_getaffinity(0))
    for thread in threads_of(lent):
        os.sched_setaffinity(thread, {own})
    target = CallingCpu(TASK.target)
    session = open_session(Server(HOST, lent.port), 60.0)
    remote_runner(target.template(TASK.workload), TASK.workload, 1, session)
    assert {frozenset(os.sched_getaffinity(thread)) for thread in threads_of(lent)} == {frozenset({own})}


def _open_patiently(process: Process) -> Any:
    """Opens a session as soon as the last client of a server has left."""
    ends_s = time.monotonic() + START_S
    while True:
        try:
            return open_session(Server(HOST, process.port), 60.0)
        except DeviceLostError:
            assert time.monotonic() < ends_s
            time.sleep(0.1)
