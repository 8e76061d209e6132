"""Sockets that are kept unserved: closed in time, and no more of them than may be."""

import asyncio
import socket

import pytest

from kafka_quota_proxy.proxy.server import refused_sockets as late_close_module
from kafka_quota_proxy.proxy.server.refused_sockets import LateClose
from tests.support.stub_broker import eventually, on_uvloop


def pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(5)
    return ours, theirs


@on_uvloop
async def test_each_is_closed_at_its_time() -> None:
    late_close = LateClose()
    (late, _late), (soon, _soon), (now, _now) = pair(), pair(), pair()
    started_s = asyncio.get_running_loop().time()

    late_close.keep(late, 200)
    late_close.keep(soon, 50)
    late_close.keep(now, 0)

    assert (now.fileno(), len(late_close)) == (-1, 2)
    await eventually(lambda: soon.fileno() == -1)
    assert late.fileno() >= 0
    await eventually(lambda: late.fileno() == -1)
    assert asyncio.get_running_loop().time() - started_s >= 0.19
    assert (len(late_close), late_close.hurried) == (0, 0)
    for other in (_late, _soon, _now):
        assert other.recv(1) == b""
        other.close()


@on_uvloop
async def test_of_too_many_the_oldest_is_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_close_module, "MAX_KEPT", 2)
    late_close = LateClose()
    pairs = [pair() for _ in range(4)]

    for ours, _ in pairs:
        late_close.keep(ours, 60_000)

    assert [ours.fileno() >= 0 for ours, _ in pairs] == [False, False, True, True]
    assert (len(late_close), late_close.hurried) == (2, 2)
    late_close.close()
    assert [ours.fileno() for ours, _ in pairs] == [-1] * 4
    for _, theirs in pairs:
        theirs.close()


@on_uvloop
async def test_behind_a_close_none_is_kept() -> None:
    late_close = LateClose()
    late_close.close()
    ours, theirs = pair()

    late_close.keep(ours, 60_000)

    assert (ours.fileno(), len(late_close)) == (-1, 0)
    theirs.close()
