"""TVM's RPC server for this machine's devices, restarted after a candidate crashes."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
from typing import Any

from anole.errors import TargetError, cause
from anole.targets.rpc.address import Remote

logger = logging.getLogger(__name__)

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def serve(host: str, port: int, tracker: Remote | None, threads: int) -> None:
    """Serve until interrupted.

    When a signal ends a session, such as a candidate's crash, TVM's server stops listening but keeps running. The
    server's process is therefore made to exit, and replaced.

    The server registers under the tracker's key, if there is a tracker; otherwise clients must know its address.
    Kernels run in `threads` CPU threads.

    Raises:
        TargetError: the port is taken.
    """
    if host in _LOOPBACK:
        logger.info("serving clients on this machine only; use --host 0.0.0.0 to serve all that can reach this machine")
    os.environ.update(dict.fromkeys(("ANOLE_NUM_THREADS", "TVM_NUM_THREADS", "OMP_NUM_THREADS"), str(threads)))
    # TVM would bind the server to the machine's first cores, even if they are not allowed or are busy.
    os.environ["TVM_BIND_THREADS"] = "0"
    while True:
        _serve_once(host, port, tracker)
        logger.warning("the server ended, perhaps because a candidate crashed; starting it again")


def _serve_once(host: str, port: int, tracker: Remote | None) -> None:
    from tvm import rpc

    registration: dict[str, Any] = {}
    if tracker is not None:
        registration = {"key": tracker.key, "tracker_addr": (tracker.host, tracker.port)}
    try:
        server = rpc.Server(host, port, port + 1, server_init_callback=_prepare, **registration)
    except (OSError, RuntimeError, ValueError) as error:
        raise TargetError(f"cannot serve at {host}:{port}: {cause(error)}") from error
    try:
        server.proc.join()
    finally:
        server.terminate()


def _prepare() -> None:
    """Make sessions start quickly, and the server's process exit when its listening thread fails."""
    # Python 3.14 would import TVM again for every session, which takes seconds.
    multiprocessing.set_start_method("fork")
    threading.excepthook = lambda _: os._exit(1)
