"""Opens sessions with TVM's RPC servers, and tells the loss of a session from a candidate's own error."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import tvm
from tvm import rpc

from anole.errors import DeviceLostError, cause
from anole.targets.rpc.address import Server

_REACH_S = 5.0


def open_session(server: Server, session_s: float) -> rpc.RPCSession:
    """Returns an exclusive session with a server.

    Args:
        server: the server; waits while another client has it.
        session_s: seconds after which the server ends the session and whatever runs in it.

    Raises:
        DeviceLostError: the server does not answer, or its tracker has lent it to somebody else meanwhile.
    """
    try:
        if not server.match_key:
            # TVM itself would not report the reason. A server with a tracker would take this for its client.
            socket.create_connection((server.host, server.port), timeout=_REACH_S).close()
        return rpc.connect(server.host, server.port, server.match_key, session_timeout=session_s)
    except (OSError, RuntimeError, ValueError) as error:
        raise DeviceLostError(f"the RPC server {server} cannot be reached: {cause(error)}") from error


@contextmanager
def telling_loss(session: rpc.RPCSession) -> Iterator[None]:
    """Raises errors that are due to a lost session, not to a candidate, as another type.

    Raises:
        TimeoutError: the server ended the session because its time was up.
        DeviceLostError: the session was lost.
    """
    try:
        yield
    except tvm.error.RPCSessionTimeoutError as error:
        raise TimeoutError("ended by its server, because it took too long") from error
    except RuntimeError as error:
        try:
            session.get_function("runtime.NumThreads")()
        except RuntimeError:
            raise DeviceLostError(f"the connection to the device was lost: {cause(error)}") from error
        raise
