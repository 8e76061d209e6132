"""Tests the lookups of brokers' host names, also behind a name server that does not answer."""

import asyncio
import socket
import threading
from threading import Event
from time import sleep

import pytest

from kafka_quota_proxy.proxy.server.brokers import host_lookups
from kafka_quota_proxy.proxy.server.brokers.host_lookups import Lookups
from tests.support.stub_broker import on_uvloop


@on_uvloop
async def test_any_number_of_hosts_is_looked_up() -> None:
    found = await Lookups().find(["localhost", *(f"127.0.0.{number}" for number in range(1, 151)), "no such host"])

    assert "127.0.0.1" in found["localhost"]
    assert found["127.0.0.150"] == ("127.0.0.150",)
    assert "no such host" not in found


@on_uvloop
async def test_silent_name_server_holds_a_few_threads_of_the_lookups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_lookups, "_LOOKUP_S", 0.1)
    monkeypatch.setattr(host_lookups, "_THREADS", 3)
    is_back = Event()
    asked: list[str] = []

    def ask(host: str, port: int | None, **_: object) -> list[tuple[object, ...]]:
        assert threading.current_thread().name == "host"
        asked.append(host)
        is_back.wait()
        return [(0, 0, 0, "", (f"192.0.2.{host}", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", ask)
    lookups = Lookups()
    hosts = [str(number) for number in range(10)]
    try:
        assert await lookups.find(hosts) == {}
        first = sorted(asked)
        assert len(first) == 3
        # No running lookup is repeated, and no other begins.
        late = asyncio.ensure_future(lookups.find(hosts))
        await asyncio.sleep(0.02)
        monkeypatch.setattr(host_lookups, "_LOOKUP_S", 10.0)
        later = asyncio.ensure_future(lookups.find(hosts))
        assert await late == {}
        assert sorted(asked) == first
        # A lookup that another caller waits for is not cancelled.
        is_back.set()
        assert len(await later) == 10
    finally:
        is_back.set()
    await asyncio.sleep(0)
    assert lookups._running == {}
    assert await lookups.find(hosts) == {host: (f"192.0.2.{host}",) for host in hosts}


@on_uvloop
async def test_without_threads_no_host_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert await Lookups().find(["localhost"]) == {}
    assert await Lookups().find(["localhost"])


@on_uvloop
async def test_no_host_times_out_each_time_behind_silent_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_lookups, "_LOOKUP_S", 0.02)
    monkeypatch.setattr(host_lookups, "_THREADS", 2)

    def ask(host: str, port: int | None, **_: object) -> list[tuple[object, ...]]:
        if host != "z.here":
            sleep(0.06)
            raise OSError("nobody answers")
        return [(0, 0, 0, "", ("192.0.2.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", ask)
    lookups = Lookups()
    hosts = ["z.here", *(f"a.{number}.away" for number in range(8))]
    for _ in range(200):
        if await lookups.find(hosts):
            break
    else:
        pytest.fail("the one that can be found never had a turn")
