"""TVM's RPC server for this machine's devices, which goes on when a candidate crashes."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

from anole.errors import TargetError, cause
from anole.targets.rpc.address import Remote

logger = logging.getLogger(__name__)


def serve(host: str, port: int, tracker: Remote | None, threads: int) -> None:
    """Serves until it is interrupted.

    TVM's server stops listening, but does not end, when a session of it ends by a signal, as a crashed candidate's
    does; so its process is made to end then, and replaced.

    Args:
        host: the address that is listened on.
        port: likewise.
        tracker: where the server is known by a key; clients must know its own address when None.
        threads: that run kernels on the processor.

    Raises:
        TargetError: the port is taken.
    """
    os.environ.update({"TVM_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)})
    while True:
        _serve_once(host, port, tracker)
        logger.warning("the server was ended, as by a candidate that crashed; it starts again")


def _serve_once(host: str, port: int, tracker: Remote | None) -> None:
    from tvm import rpc

    named: dict[str, Any] = {}
    if tracker is not None:
        named = {"key": tracker.key, "tracker_addr": (tracker.host, tracker.port)}
    try:
        server = rpc.Server(host, port, port + 1, server_init_callback=_end_with_its_listener, **named)
    except (OSError, RuntimeError, ValueError) as error:
        raise TargetError(f"cannot serve at {host}:{port}: {cause(error)}") from error
    try:
        server.proc.join()
    finally:
        server.terminate()


def _end_with_its_listener() -> None:
    """Ends the server's process when its listening thread fails, instead of leaving it deaf."""
    threading.excepthook = lambda _: os._exit(1)
