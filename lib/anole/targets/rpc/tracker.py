"""A client of TVM's RPC tracker that speaks its protocol directly, without importing TVM."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from anole.errors import DeviceLostError, cause
from anole.targets.rpc.address import Remote, Server

MAGIC, SUCCESS, REQUEST, SUMMARY = 0x2F271, 0, 4, 6
"""The protocol's constants, from `tvm.rpc.base`."""

_CONNECT_TIMEOUT_S = 5.0
_MAX_MESSAGE_BYTES = 1 << 20

_KEEPALIVE_OPTIONS = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
"""Keepalive settings, which make a request fail if the tracker's machine disappears."""


class Tracker:
    """A connection to a tracker, for servers with one key.

    Its methods raise DeviceLostError if the tracker cannot be reached or gives an invalid answer.
    """

    def __init__(self, remote: Remote) -> None:
        self._remote, self._key = remote, remote.key or ""
        with self._convert_errors():
            self.connection = socket.create_connection((remote.host, remote.port), timeout=_CONNECT_TIMEOUT_S)
            """The socket, which becomes readable when a request is granted."""
            try:
                self._greet()
            except BaseException:
                self.connection.close()
                raise

    def close(self) -> None:
        """Close the connection; a request that was not granted lapses."""
        self.connection.close()

    def count(self) -> tuple[int, int]:
        """Return the number of servers with the key, and how many of them are free.

        Raises:
            DeviceLostError: no server has the key, or the tracker does not answer.
        """
        with self._convert_errors():
            self._send([SUMMARY])
            summary = self._receive()
            keys = [str(server["key"]).partition(":")[2] for server in summary["server_info"]]
            n_free = int(summary["queue_info"].get(self._key, {}).get("free", 0))
        if self._key not in keys:
            key_names = ", ".join(sorted(set(keys))) or "none"
            raise DeviceLostError(f"{self._remote} has no server with the key {self._key!r}; its keys are: {key_names}")
        return keys.count(self._key), n_free

    def request(self) -> None:
        """Ask for a server; requests are granted in the order in which the tracker received them."""
        with self._convert_errors():
            self._send([REQUEST, self._key, "", 1])

    def granted(self) -> Server:
        """Wait until the request is granted, and return the server."""
        with self._convert_errors():
            host, port, match_key = self._receive()
            return Server(str(host), int(port), str(match_key))

    def _greet(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE_OPTIONS.items():
            self.connection.setsockopt(socket.IPPROTO_TCP, option, value)
        self.connection.sendall(struct.pack("<i", MAGIC))
        if self._receive_integer() != MAGIC:
            raise ValueError("this is not an RPC tracker")

    def _send(self, message: Any) -> None:
        data = json.dumps(message).encode()
        self.connection.sendall(struct.pack("<i", len(data)) + data)

    def _receive(self) -> Any:
        size = self._receive_integer()
        if not 0 < size <= _MAX_MESSAGE_BYTES:
            raise ValueError(f"found a message of {size} bytes")
        code, value = json.loads(self._receive_exactly(size))
        if code != SUCCESS:
            raise ValueError(f"the tracker answered {code}")
        return value

    def _receive_integer(self) -> int:
        return int(struct.unpack("<i", self._receive_exactly(4))[0])

    def _receive_exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self.connection.recv(size - len(data))
            if not chunk:
                raise ConnectionResetError("the connection was closed")
            data += chunk
        return data

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
            raise DeviceLostError(f"{self._remote} cannot be reached: {cause(error)}") from error


def count_servers(remote: Remote) -> tuple[int, int]:
    """Return the number of servers with a key at a tracker, and how many of them are free.

    Raises:
        DeviceLostError: no server has the key, or the tracker does not answer.
    """
    with closing(Tracker(remote)) as tracker:
        return tracker.count()
