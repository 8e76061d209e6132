"""Tests dials to host names with several IP addresses, over real sockets on addresses of the loopback interface."""

import asyncio
import socket
from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest

from kafka_quota_proxy.proxy.kafka_client.loop_thread import NEXT_AFTER_S
from tests.support.stub_broker import deaf_broker, free_port, on_uvloop, resolve_to

FIRST, SECOND = "127.0.0.2", "127.0.0.3"


def listening(host: str, port: int = 0) -> socket.socket:
    return socket.create_server((host, port))


def open_sockets() -> int:
    links = Path("/proc/self/fd").iterdir()
    found = 0
    for link in links:
        with suppress(OSError):
            found += str(link.readlink()).startswith("socket:")
    return found


async def dialled(port: int, source: str | None = None) -> tuple[str, float]:
    """Dial a host name. Return which IP address it has reached, and after how many seconds."""
    started_s = monotonic()
    loop, local_addr = asyncio.get_running_loop(), (source, 0) if source else None
    transport, _ = await loop.create_connection(asyncio.Protocol, "kafka.example", port, local_addr=local_addr)
    time_s = monotonic() - started_s
    host = str(transport.get_extra_info("peername")[0])
    transport.abort()
    await asyncio.sleep(0)
    return host, time_s


@on_uvloop
async def test_behind_a_silent_address_the_next_one_is_tried_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    names = resolve_to(monkeypatch, FIRST, SECOND)
    with deaf_broker(FIRST) as deaf, listening(SECOND, deaf.port):
        before = open_sockets()

        host, time_s = await dialled(deaf.port)
        again, again_s = await dialled(deaf.port)

        assert (host, again) == (SECOND, SECOND)
        assert NEXT_AFTER_S <= time_s < 1
        assert again_s < NEXT_AFTER_S / 2
        assert open_sockets() == before
    assert names == ["kafka.example"] * 2


@on_uvloop
async def test_a_slow_address_still_wins_if_the_others_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, FIRST, SECOND)
    connect = asyncio.get_running_loop().sock_connect

    async def late(attempt: socket.socket, to: tuple[str, int]) -> None:
        if to[0] == FIRST:
            await asyncio.sleep(2 * NEXT_AFTER_S)
        await connect(attempt, to)

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", late, raising=False)
    with listening(FIRST) as broker:
        host, _ = await dialled(broker.getsockname()[1])

    assert host == FIRST


@on_uvloop
async def test_a_connection_that_comes_second_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, FIRST, SECOND)
    connect = asyncio.get_running_loop().sock_connect

    async def slow(attempt: socket.socket, to: tuple[str, int]) -> None:
        await connect(attempt, to)
        if to[0] == FIRST:
            await asyncio.sleep(60)

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", slow, raising=False)
    with listening(FIRST) as first, listening(SECOND, first.getsockname()[1]):
        host, _ = await dialled(first.getsockname()[1])
        taken, _ = first.accept()

        with taken:
            assert host == SECOND
            assert taken.recv(1) == b""


@on_uvloop
async def test_all_addresses_are_dialled_from_the_given_source(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, "::1", FIRST, SECOND)  # the first has another family
    with listening(SECOND) as broker:
        await dialled(broker.getsockname()[1], "127.0.0.9")
        taken, source = broker.accept()
        taken.close()

    assert source[0] == "127.0.0.9"


@on_uvloop
async def test_the_error_names_each_address(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, FIRST, SECOND)
    before = open_sockets()

    with pytest.raises(OSError, match=f"^{FIRST}: Connection refused; {SECOND}: Connection refused$"):
        await dialled(free_port())

    assert open_sockets() == before


@on_uvloop
async def test_a_dial_that_is_given_up_leaves_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, FIRST, SECOND)
    with deaf_broker(FIRST) as deaf, deaf_broker(SECOND, deaf.port):
        before = open_sockets()

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2 * NEXT_AFTER_S):
                await dialled(deaf.port)

        assert open_sockets() == before
