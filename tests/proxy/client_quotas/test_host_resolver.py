"""Tests that hosts with a limit are looked up until they are found."""

import asyncio
import socket
import threading
from collections.abc import Iterable
from threading import Event
from time import sleep

import pytest

from kafka_quota_proxy.proxy.client_quotas import host_resolver as host_finder
from kafka_quota_proxy.proxy.client_quotas.host_resolver import HostResolver, Lookups
from kafka_quota_proxy.proxy.client_quotas.rules import host_retry as hosts_module
from kafka_quota_proxy.proxy.client_quotas.rules.ip_rules import Addresses
from tests.support.stub_broker import eventually, on_uvloop


@pytest.fixture(autouse=True)
def hurries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts_module, "FIRST_DELAY_MS", 1)
    monkeypatch.setattr(hosts_module, "LONGEST_DELAY_MS", 2)


@on_uvloop
async def test_any_number_of_hosts_is_looked_up() -> None:
    found = await Lookups().find(["localhost", *(f"127.0.0.{number}" for number in range(1, 151)), "no such host"])

    assert "127.0.0.1" in found["localhost"]
    assert found["127.0.0.150"] == ("127.0.0.150",)
    assert "no such host" not in found


@pytest.mark.usefixtures("has_faults")
@on_uvloop
async def test_missing_host_is_logged_once_and_found_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[list[str]] = []
    known: dict[str, tuple[str, ...]] = {}
    missing = {f"host-{number:02}" for number in range(12)}

    async def look(_: Lookups, hosts: Iterable[str]) -> Addresses:
        asked.append(sorted(hosts))
        return {host: known[host] for host in asked[-1] if host in known}

    async def find(addresses: Addresses) -> None:
        found.append(addresses)
        missing.difference_update(addresses)
        finder.follow(missing)
        if len(found) == 1:
            raise ValueError("a fault")

    monkeypatch.setattr(Lookups, "find", look)
    found: list[Addresses] = []
    finder = HostResolver(Lookups(), on_found=find)
    running = asyncio.ensure_future(finder.run())
    finder.follow(missing)
    await eventually(lambda: len(asked) > 3)
    assert [record.getMessage() for record in caplog.records] == [
        "no address is known for host-00, host-01, host-02, host-03, host-04, host-05, host-06, host-07, host-08, "
        "host-09 and 2 more: the quotas of these hosts do not apply; the proxy looks them up again"
    ]
    known["host-07"] = ("192.0.2.7",)
    await eventually(lambda: len(found) == 1)
    known |= dict.fromkeys(sorted(missing), ("192.0.2.8",))
    await eventually(lambda: not missing)

    assert found[0] == {"host-07": ("192.0.2.7",)}
    assert "host-07" not in asked[-1]
    assert finder._missing.next_ms is None
    assert "could not be applied" in caplog.text
    running.cancel()
    await asyncio.wait([running])


@on_uvloop
async def test_silent_name_server_holds_a_few_threads_of_the_lookups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_finder, "_LOOKUP_S", 0.1)
    monkeypatch.setattr(host_finder, "_THREADS", 3)
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
        monkeypatch.setattr(host_finder, "_LOOKUP_S", 10.0)
        later = asyncio.ensure_future(lookups.find(hosts))
        assert await late == {}
        assert sorted(asked) == first
        # A lookup that another caller waits for is not cancelled.
        is_back.set()
        assert len(await later) == 10
    finally:
        is_back.set()
    assert lookups._waiters == {}
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
    monkeypatch.setattr(host_finder, "_LOOKUP_S", 0.02)
    monkeypatch.setattr(host_finder, "_THREADS", 2)

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
