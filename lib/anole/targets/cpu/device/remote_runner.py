"""The runner of candidates on another machine's CPU."""

from __future__ import annotations

from tvm import rpc

from anole.errors import TargetError
from anole.targets.base import Template
from anole.targets.rpc.runner import Conditions, SessionRunner, converting_session_errors
from anole.task import Workload

_COLD_WEIGHTS = Conditions({"f_preproc": "cache_flush_cpu_non_first_arg"})
"""As on the local CPU, data is warm and constant weights are read from memory in every run."""

_NO_CORE_PREFERENCE = 1


def remote_runner(template: Template, workload: Workload, threads: int, session: rpc.RPCSession) -> SessionRunner:
    """Return a runner of candidates on a server's CPU; raise TargetError if it has a different thread count."""
    with converting_session_errors(session):
        session.get_function("runtime.config_threadpool")(_NO_CORE_PREFERENCE, threads)
        server_threads = int(session.get_function("runtime.NumThreads")())
    if server_threads != threads:
        raise TargetError(
            f"the server runs kernels with {server_threads} of the target's {threads} threads; "
            f"start it with TVM_NUM_THREADS={threads}"
        )
    conditions = _COLD_WEIGHTS if workload.constant_weight else Conditions()
    return SessionRunner(template, workload, session, session.cpu(0), conditions)
