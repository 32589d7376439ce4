"""The address of a remote device: TVM's RPC tracker, or one RPC server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from anole.node import Node

_MOST_PORT = 65_535


@dataclass(frozen=True)
class Remote:
    """Where a remote device is reached; the target's description says what it is.

    Attributes:
        host: host of the tracker or, without a key, of the server itself.
        port: port of the same.
        key: the name by which the tracker knows the servers of such a device.
    """

    host: str
    port: int
    key: str | None = None

    @classmethod
    def read(cls, node: Node) -> Self:
        """Reads a mapping of ``rpc`` (``host:port``) and, optionally, ``key``.

        Raises:
            SpecError: the mapping holds something else.
        """
        entry = node.mapping(allowed=("rpc", "key"), required=("rpc",))
        address = entry["rpc"].text()
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) <= _MOST_PORT:
            raise entry["rpc"].error(f"found {address!r}; `host:port` of a tracker or a server is expected")
        return cls(host, int(port), entry["key"].text() if "key" in entry else None)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self | None:
        """Reads the value of the option ``--measure``; returns None if it is empty.

        Raises:
            SpecError: the value is not what `read` allows.
        """
        return cls.read(Node(dict(plain), "", "--measure")) if plain else None

    def to_json(self) -> dict[str, str]:
        """Returns the plain form, as in models.yaml."""
        return {"rpc": f"{self.host}:{self.port}", **({"key": self.key} if self.key is not None else {})}

    def __str__(self) -> str:
        address = f"{self.host}:{self.port}"
        return f"the RPC server {address}" if self.key is None else f"the tracker {address}"
