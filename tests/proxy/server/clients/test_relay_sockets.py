"""Tests the system calls of the relay on real sockets."""

import socket
import struct
from collections.abc import Iterator
from contextlib import closing

import pytest

from kafka_quota_proxy.proxy.server.clients.relay_sockets import Sockets, make_sockets
from tests.support.python_sockets import PythonSockets


@pytest.fixture(params=[PythonSockets, lambda: make_sockets() or PythonSockets()], ids=["python", "as built"])
def sockets(request: pytest.FixtureRequest) -> Iterator[Sockets]:
    with closing(request.param()) as found:
        yield found


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    accepted.setblocking(False)
    with client, accepted:
        yield client, accepted


def test_socket_is_ready_while_bytes_wait(sockets: Sockets, pair: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = pair
    sockets.watch(accepted.fileno())
    assert sockets.ready() == []
    assert sockets.read(accepted.fileno(), 1_000) == -1

    client.sendall(b"0123456789")

    assert sockets.ready() == [accepted.fileno()]
    assert sockets.read(accepted.fileno(), 1_000) == 10
    assert sockets.part(2, 10) == b"23456789"
    assert sockets.ready() == []


def test_end_of_the_stream_is_a_read_of_no_bytes(sockets: Sockets, pair: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = pair
    sockets.watch(accepted.fileno())
    client.shutdown(socket.SHUT_WR)
    assert sockets.ready() == [accepted.fileno()]
    assert sockets.read(accepted.fileno(), 1_000) == 0


def test_lost_connection_is_ready_and_raises(sockets: Sockets, pair: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = pair
    sockets.watch(accepted.fileno())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()  # with a reset
    assert sockets.ready() == [accepted.fileno()]
    with pytest.raises(ConnectionResetError):
        sockets.read(accepted.fileno(), 1_000)


def test_forgotten_socket_is_not_ready(sockets: Sockets, pair: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = pair
    sockets.watch(accepted.fileno())
    client.sendall(b"0")
    sockets.forget(accepted.fileno())
    assert sockets.ready() == []
    sockets.watch(accepted.fileno())
    assert sockets.ready() == [accepted.fileno()]


def test_closed_socket_can_be_forgotten(sockets: Sockets, pair: tuple[socket.socket, socket.socket]) -> None:
    _, accepted = pair
    fd = accepted.fileno()
    sockets.watch(fd)
    accepted.close()
    sockets.forget(fd)


def test_write_takes_what_the_system_has_room_for(sockets: Sockets, pair: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = pair
    client.sendall(b"0123456789")
    sockets.read(accepted.fileno(), 1_000)
    assert sockets.write(accepted.fileno(), 2, 5, has_more=False) == 3
    assert client.recv(8) == b"234"

    sent = [1]
    while sent[-1]:
        sent.append(sockets.write(accepted.fileno(), 0, 200_000, has_more=False))
    assert len(sent) > 2


def test_write_to_a_lost_connection_raises(sockets: Sockets, pair: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = pair
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    with pytest.raises(OSError, match=r"reset|Broken pipe"):
        sockets.write(accepted.fileno(), 0, 5, has_more=False)


def test_spliced_bytes_go_from_socket_to_socket(sockets: Sockets, pair: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = pair
    assert sockets.splice_in(accepted.fileno(), 8) == -1
    client.sendall(b"0123456789")

    assert sockets.splice_in(accepted.fileno(), 8) == 8
    assert sockets.splice_out(accepted.fileno(), 8) == 8
    assert client.recv(100) == b"01234567"
    assert sockets.splice_in(accepted.fileno(), 8) == 2
    assert sockets.take_spliced(2) == b"89"

    client.shutdown(socket.SHUT_WR)
    assert sockets.splice_in(accepted.fileno(), 8) == 0


def test_what_has_no_room_is_taken_out_of_the_pipe(sockets: Sockets, pair: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = pair
    data = bytes(range(200)) * 100
    stream, at, kept = b"", 0, b""
    while not kept:  # as far as there is room, without a reader
        client.sendall(data)
        stream += data
        while not kept and (count := sockets.splice_in(accepted.fileno(), len(data))) > 0:
            sent = sockets.splice_out(accepted.fileno(), count)
            kept = sockets.take_spliced(count - sent)
            assert kept == stream[at + sent : at + count]
            at += count
    assert at > len(data)


def test_splice_to_a_lost_connection_raises(sockets: Sockets, pair: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = pair
    client.sendall(b"0123456789")
    assert sockets.splice_in(accepted.fileno(), 100) == 10
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    with pytest.raises(OSError, match=r"reset|Broken pipe"):
        sockets.splice_out(accepted.fileno(), 10)
    assert sockets.take_spliced(10) == b"0123456789"
