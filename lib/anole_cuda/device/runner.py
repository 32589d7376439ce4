"""The runner of candidates on a GPU of this machine or of an RPC server."""

from __future__ import annotations

import tvm
from tvm import rpc

from anole.errors import TargetError
from anole.targets.base import Template
from anole.targets.rpc.runner import Conditions, SessionRunner, convert_session_errors
from anole.task import Workload

_MAX_L2_BYTES = 128 << 20
"""Upper bound of any GPU's L2 cache, for GPUs that do not report its size."""

_WARM_UP_S = 0.5


def find_gpu(arch: str, session: rpc.RPCSession) -> tvm.runtime.Device:
    """Return the first GPU of a session.

    Raises:
        TargetError: there is none, or it has another architecture.
        DeviceLostError: the session was lost.
    """
    device = session.cuda(0)
    with convert_session_errors(session):
        try:
            version = device.compute_version if device.exist else None
        except RuntimeError as error:
            # TVM's message when it has no runtime for such devices.
            if "not enabled" not in str(error):
                raise
            version = None
    if version is None:
        raise TargetError(f"cuda {arch}: TVM finds no GPU on the machine that runs candidates")
    gpu_arch = f"sm_{str(version).replace('.', '')}"
    if gpu_arch != arch:
        raise TargetError(f"cuda {arch}: the GPU is {gpu_arch}; set `arch: {gpu_arch}` to run on it")
    return device


def cuda_runner(template: Template, workload: Workload, arch: str, session: rpc.RPCSession) -> SessionRunner:
    """Return a runner of candidates on the first GPU of a session; as in a network, their inputs are not in L2 cache.

    Raises:
        TargetError: there is no such GPU.
        DeviceLostError: the session was lost.
    """
    device = find_gpu(arch, session)
    with convert_session_errors(session):
        cache_bytes = device.l2_cache_size_bytes or _MAX_L2_BYTES
    conditions = Conditions({"cache_flush_bytes": int(cache_bytes)}, _WARM_UP_S)
    return SessionRunner(template, workload, session, device, conditions)
