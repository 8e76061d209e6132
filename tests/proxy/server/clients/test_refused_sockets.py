"""Tests that the sockets of refused clients are closed in time, and that their number is bounded."""

import asyncio
import socket

import pytest

from kafka_quota_proxy.proxy.server.clients import refused_sockets as refused_sockets_module
from kafka_quota_proxy.proxy.server.clients.refused_sockets import RefusedSockets
from tests.support.stub_broker import eventually, on_uvloop


def pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(5)
    return ours, theirs


@on_uvloop
async def test_each_is_closed_at_its_time() -> None:
    refused_sockets = RefusedSockets()
    (late, _late), (soon, _soon), (now, _now) = pair(), pair(), pair()
    started_s = asyncio.get_running_loop().time()

    refused_sockets.keep(late, 200)
    refused_sockets.keep(soon, 50)
    refused_sockets.keep(now, 0)

    assert (now.fileno(), len(refused_sockets)) == (-1, 2)
    await eventually(lambda: soon.fileno() == -1)
    assert late.fileno() >= 0
    await eventually(lambda: late.fileno() == -1)
    assert asyncio.get_running_loop().time() - started_s >= 0.19
    assert (len(refused_sockets), refused_sockets.hurried) == (0, 0)
    for other in (_late, _soon, _now):
        assert other.recv(1) == b""
        other.close()


@on_uvloop
async def test_oldest_of_too_many_refused_sockets_is_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_sockets_module, "MAX_KEPT", 2)
    refused_sockets = RefusedSockets()
    pairs = [pair() for _ in range(4)]

    for ours, _ in pairs:
        refused_sockets.keep(ours, 60_000)

    assert [ours.fileno() >= 0 for ours, _ in pairs] == [False, False, True, True]
    assert (len(refused_sockets), refused_sockets.hurried) == (2, 2)
    refused_sockets.close()
    assert [ours.fileno() for ours, _ in pairs] == [-1] * 4
    for _, theirs in pairs:
        theirs.close()


@on_uvloop
async def test_closed_set_keeps_no_socket() -> None:
    refused_sockets = RefusedSockets()
    refused_sockets.close()
    ours, theirs = pair()

    refused_sockets.keep(ours, 60_000)

    assert (ours.fileno(), len(refused_sockets)) == (-1, 0)
    theirs.close()
