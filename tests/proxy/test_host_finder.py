"""Hosts that have a limit are looked for until they are found."""

import asyncio
from collections.abc import Iterable

import pytest

from proxy import host_finder
from proxy.host_finder import HostFinder, find_hosts
from proxy.quota_store import hosts as hosts_module
from proxy.quota_store.addresses import Addresses
from tests.support.stub_broker import eventually, on_uvloop


@pytest.fixture(autouse=True)
def hurries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts_module, "FIRST_DELAY_MS", 1)
    monkeypatch.setattr(hosts_module, "LONGEST_DELAY_MS", 2)


@on_uvloop
async def test_the_system_is_asked_for_any_number() -> None:
    found = await find_hosts(["localhost", *(f"127.0.0.{number}" for number in range(1, 151)), "no such host"])

    assert "127.0.0.1" in found["localhost"]
    assert found["127.0.0.150"] == ("127.0.0.150",)
    assert "no such host" not in found


@on_uvloop
async def test_who_is_not_there_is_said_once_and_found_when_he_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[list[str]] = []
    known: dict[str, tuple[str, ...]] = {}
    missing = {f"host-{number:02}" for number in range(12)}

    async def look(hosts: Iterable[str]) -> Addresses:
        asked.append(sorted(hosts))
        return {host: known[host] for host in asked[-1] if host in known}

    def find(addresses: Addresses) -> None:
        found.append(addresses)
        missing.difference_update(addresses)
        finder.follow(missing)
        if len(found) == 1:
            raise ValueError("a fault")

    monkeypatch.setattr(host_finder, "find_hosts", look)
    found: list[Addresses] = []
    finder = HostFinder(on_found=find)
    running = asyncio.ensure_future(finder.run())
    finder.follow(missing)
    await eventually(lambda: len(asked) > 3)
    assert [record.getMessage() for record in caplog.records] == [
        "no address is known of host-00, host-01, host-02, host-03, host-04, host-05, host-06, host-07, host-08, "
        "host-09 and 2 more: the quotas of these hosts do not hold; they are looked for again"
    ]
    known["host-07"] = ("192.0.2.7",)
    await eventually(lambda: len(found) == 1)
    known |= dict.fromkeys(sorted(missing), ("192.0.2.8",))
    await eventually(lambda: not missing)

    assert found[0] == {"host-07": ("192.0.2.7",)}
    assert "host-07" not in asked[-1]
    assert finder._missing.next_ms is None
    assert "could not be put in force" in caplog.text
    running.cancel()
    await asyncio.wait([running])
