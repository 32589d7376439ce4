"""The client of TVM's RPC tracker: the protocol's constants, requests, and invalid answers."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from tvm.rpc import base

from anole.errors import DeviceLostError
from anole.targets.rpc import tracker
from anole.targets.rpc.address import Remote, Server
from anole.targets.rpc.tracker import Tracker, count_servers

HOST = "127.0.0.1"
SUMMARY = {
    "server_info": [{"key": "server:zen"}, {"key": "server:h200"}, {"key": "server:zen"}],
    "queue_info": {"zen": {"free": 1, "pending": 0}},
}


def message(value: Any) -> bytes:
    data = json.dumps(value).encode()
    return struct.pack("<i", len(data)) + data


@pytest.fixture
def answering() -> Any:
    """Start a listener that greets one client, answers each of its messages and closes the connection."""
    listeners: list[tuple[socket.socket, threading.Thread]] = []

    def start(*answers: bytes, greeting: bytes = struct.pack("<i", tracker.MAGIC)) -> Remote:
        listener = socket.create_server((HOST, 0))

        def answer() -> None:
            with closing(listener.accept()[0]) as connection:
                connection.recv(4)
                connection.sendall(greeting)
                for each in answers:
                    connection.recv(1024)
                    # In pieces, as networks may deliver them.
                    for byte in each:
                        connection.sendall(bytes([byte]))

        thread = threading.Thread(target=answer)
        thread.start()
        listeners.append((listener, thread))
        return Remote(HOST, listener.getsockname()[1], "zen")

    yield start
    for listener, thread in listeners:
        thread.join()
        listener.close()


def test_the_protocol_constants_equal_those_of_tvm() -> None:
    codes = base.TrackerCode
    expected = (base.RPC_TRACKER_MAGIC, codes.SUCCESS, codes.REQUEST, codes.SUMMARY)
    assert (tracker.MAGIC, tracker.SUCCESS, tracker.REQUEST, tracker.SUMMARY) == expected


def test_servers_with_the_key_are_counted(answering: Callable[..., Remote]) -> None:
    assert count_servers(answering(message([0, SUMMARY]))) == (2, 1)


def test_a_request_is_granted(answering: Callable[..., Remote]) -> None:
    with closing(Tracker(answering(message([0, ["10.0.0.7", 9090, "zen:0.5"]])))) as client:
        client.request()
        assert client.granted() == Server("10.0.0.7", 9090, "zen:0.5")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        struct.pack("<i", -1),
        struct.pack("<i", 1 << 30),
        struct.pack("<i", 3) + b"abc",
        message([-1, SUMMARY]),
        message([0, None]),
        message([0, {"server_info": [{}]}]),
        message({}),
        message([0, SUMMARY])[:-1],
    ],
)
def test_an_invalid_answer_is_a_lost_tracker(answering: Callable[..., Remote], answer: bytes) -> None:
    remote = answering(answer)
    with pytest.raises(DeviceLostError, match=f"^the tracker {HOST}:{remote.port} cannot be reached: "):
        count_servers(remote)


def test_another_service_is_rejected(answering: Callable[..., Remote]) -> None:
    with pytest.raises(DeviceLostError, match="cannot be reached: ValueError: this is not an RPC tracker"):
        Tracker(answering(greeting=b"SSH-"))


def test_a_closed_port_is_reported() -> None:
    with socket.socket() as closed:
        closed.bind((HOST, 0))
        with pytest.raises(DeviceLostError, match="cannot be reached: ConnectionRefusedError"):
            Tracker(Remote(HOST, closed.getsockname()[1], "zen"))
