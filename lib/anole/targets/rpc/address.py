"""The addresses of remote devices: TVM's RPC tracker, or RPC servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from anole.node import Node

_MAX_PORT = 65_535


@dataclass(frozen=True)
class Server:
    """An RPC server that a session can be opened with.

    Attributes:
        match_key: the key that the tracker issued for the session; empty without a tracker.
    """

    host: str
    port: int
    match_key: str = ""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Remote:
    """Addresses of identical remote devices, whose hardware the target's description states.

    Attributes:
        host: host of the tracker or, without a key, of the first server.
        port: port of the tracker or the first server.
        key: the name under which the device's servers are registered with the tracker.
        others: hosts and ports of further servers; none with a key.
        servers: the maximum number of the tracker's servers that a run uses in parallel; None for all.
    """

    host: str
    port: int
    key: str | None = None
    others: tuple[tuple[str, int], ...] = ()
    servers: int | None = None

    @classmethod
    def read(cls, node: Node) -> Self:
        """Read a mapping of ``rpc`` and, optionally, ``key`` and ``servers``.

        ``rpc`` is the ``host:port`` of a tracker or a server, or a list of servers.

        Raises:
            SpecError: the mapping is invalid.
        """
        entry = node.mapping(allowed=("rpc", "key", "servers"), required=("rpc",))
        rpc, is_list = entry["rpc"], isinstance(entry["rpc"].value, list)
        (host, port), *extra = _distinct_addresses(rpc.items()) if is_list else [_address(rpc)]
        if is_list and "key" in entry:
            raise rpc.error(
                "found a list and a key; a key requires the address of a tracker: give one address, or omit the key"
            )
        if "servers" in entry and "key" not in entry:
            raise entry["servers"].error(
                "found without a key; it limits how many of a tracker's servers with that key are used"
            )
        key = entry["key"].text() if "key" in entry else None
        return cls(host, port, key, tuple(extra), entry["servers"].whole(least=1) if "servers" in entry else None)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self | None:
        """Read the value of the option ``--measure``; return None if it is empty.

        Raises:
            SpecError: the value is not what `read` allows.
        """
        return cls.read(Node(dict(plain), "", "--measure")) if plain else None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, the same as in models.yaml."""
        addresses = [f"{host}:{port}" for host, port in self._addresses]
        plain: dict[str, Any] = {"rpc": addresses if self.others else addresses[0]}
        if self.key is not None:
            plain["key"] = self.key
        if self.servers is not None:
            plain["servers"] = self.servers
        return plain

    @property
    def places(self) -> list[Remote]:
        """One `Remote` per address."""
        return [replace(self, host=host, port=port, others=()) for host, port in self._addresses]

    @property
    def _addresses(self) -> Sequence[tuple[str, int]]:
        return ((self.host, self.port), *self.others)

    def __str__(self) -> str:
        addresses = ", ".join(f"{host}:{port}" for host, port in self._addresses)
        if self.key is not None:
            return f"the tracker {addresses}"
        return f"the RPC server{'s' if self.others else ''} {addresses}"


def _distinct_addresses(nodes: Sequence[Node]) -> list[tuple[str, int]]:
    addresses: list[tuple[str, int]] = []
    for node in nodes:
        if (address := _address(node)) in addresses:
            raise node.error(f"found {node.value!r} a second time; list each server once")
        addresses.append(address)
    return addresses


def _address(node: Node) -> tuple[str, int]:
    address = node.text()
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) <= _MAX_PORT:
        raise node.error(f"found {address!r}; give the `host:port` of a tracker or a server")
    return host, int(port)
