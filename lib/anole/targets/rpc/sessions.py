"""Opens sessions with TVM's RPC servers, and tells the loss of a session from a candidate's own error."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import rpc

from anole.errors import DeviceBusyError, DeviceLostError, cause
from anole.targets.rpc.address import Remote

_REACH_S = 5.0


def open_session(remote: Remote, session_s: float) -> rpc.RPCSession:
    """Returns an exclusive session with a server.

    Args:
        remote: the tracker, or the server itself.
        session_s: seconds after which the server ends the session and whatever runs in it.

    Raises:
        DeviceBusyError: all servers of the key are in use.
        DeviceLostError: the address does not answer, or there is no server of the key.
    """
    try:
        # TVM itself would try for a minute to reach a tracker, and would not report the reason.
        socket.create_connection((remote.host, remote.port), timeout=_REACH_S).close()
        if remote.key is None:
            return rpc.connect(remote.host, remote.port, session_timeout=session_s)
        tracker = rpc.connect_tracker(remote.host, remote.port)
        _expect_free(remote, remote.key, tracker.summary())
        return tracker.request(remote.key, session_timeout=session_s, max_retry=1)
    except (DeviceBusyError, DeviceLostError):
        raise
    except (OSError, RuntimeError, ValueError, LookupError, TypeError) as error:
        raise DeviceLostError(f"{remote} cannot be reached: {cause(error)}") from error


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


def _expect_free(remote: Remote, key: str, summary: Mapping[str, Any]) -> None:
    keys = sorted({server["key"].partition(":")[2] for server in summary["server_info"]})
    if key not in keys:
        known = ", ".join(keys) or "none at all"
        raise DeviceLostError(f"{remote} has no server of the key {key!r}; it has {known}")
    if not summary["queue_info"].get(key, {}).get("free"):
        raise DeviceBusyError(f"all servers of the key {key!r} at {remote} are in use")
