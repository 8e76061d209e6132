"""Tests that clients which send or read slowly keep nobody away from the admin port."""

import asyncio
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_quota_proxy.proxy.admin import admin_port
from kafka_quota_proxy.proxy.admin.admin_port import MAX_REQUESTS, MAX_TEST_REQUESTS
from kafka_quota_proxy.proxy.admin.metrics.exposition import Family
from kafka_quota_proxy.proxy.admin.metrics.registry import MetricRegistry
from kafka_quota_proxy.proxy.server.server import Server
from tests.proxy.admin.test_hostile_requests import TESTING, hold, read_all
from tests.proxy.admin.test_http_server import CONFIG, PRIVATE, admin_of, ask, fill, ready_server
from tests.support.quota_page import TOKEN, page
from tests.support.stub_broker import eventually, on_uvloop

JSON = "Content-Type: application/json\r\n"
WITH_TOKEN = f"Authorization: Bearer {TOKEN}\r\n{JSON}"


def post(path: str, headers: str = "", *, length: int = 1_000_000) -> bytes:
    """Return the head of a POST request whose body is still to come."""
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n".encode()


async def test_a_change_without_a_token_is_refused_before_its_body_arrives(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    with_file = replace(PRIVATE, quotas_token_file=str(tmp_path / "token"))
    for admin_config, status in ((PRIVATE, b"403"), (with_file, b"401")):
        async with admin_of(Server(CONFIG), admin=admin_config) as admin:
            with ExitStack() as stack:
                clients = hold(stack, admin.port, post("/quotas", JSON), MAX_REQUESTS)
                begun_s = time.perf_counter()
                answers = [await asyncio.to_thread(read_all, client) for client in clients]
                assert time.perf_counter() - begun_s < 1.0  # until the end of each connection
                assert {answer.split()[1] for answer in answers} == {status}
                assert (await asyncio.to_thread(ask, admin.port, "/metrics")).status == 200
                # The rest of the body is taken in for a while, so that no reset overtakes the answer.
                await asyncio.to_thread(clients[0].sendall, b"x" * 500_000)


@pytest.mark.parametrize("is_trickling", [False, True])
async def test_slow_bodies_give_way_to_a_scrape(tmp_path: Path, is_trickling: bool) -> None:
    async with page(tmp_path, config=TESTING) as one:
        with ExitStack() as stack:
            clients = hold(stack, one.port, post("/testing/throttles", JSON, length=99), MAX_TEST_REQUESTS)
            for _ in range(10):
                for client in clients if is_trickling else ():
                    client.sendall(b" ")
                await asyncio.sleep(0.03)
            for path in ("/metrics", "/livez", "/clients"):
                assert (await asyncio.to_thread(ask, one.port, path)).status == 200


async def test_slow_readers_give_way_to_a_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_port, "_SOCKET_TIMEOUT_S", 60.0)  # on a busy machine, no other limit ends them first
    server = ready_server()
    fill(server, 2_000)
    async with admin_of(server) as admin:
        with ExitStack() as stack:
            await asyncio.to_thread(hold, stack, admin.port, b"GET /metrics HTTP/1.0\r\n\r\n", MAX_REQUESTS)
            answered = admin._ports[0]._answered.values()
            all_wait = [True] * MAX_REQUESTS
            await eventually(lambda: [one.request.waiting_s() > 0.2 for one in answered] == all_wait, timeout_s=50)
            slow = list(answered)
            assert (await asyncio.to_thread(ask, admin.port, "/metrics")).status == 200
            assert len(set(slow) & set(answered)) == MAX_REQUESTS - 1, "only one had to go"


async def test_a_request_is_refused_while_others_wait_for_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    is_rendered = threading.Event()
    collect = MetricRegistry.collect

    def late(registry: MetricRegistry, now_ms: int) -> Iterable[Family]:
        is_rendered.wait(20)
        return collect(registry, now_ms)

    monkeypatch.setattr(MetricRegistry, "collect", late)
    async with admin_of(ready_server()) as admin:
        with ExitStack() as stack:
            clients = hold(stack, admin.port, b"GET /metrics HTTP/1.0\r\n\r\n", MAX_REQUESTS)
            await eventually(lambda: len(admin._ports[0]._answered) == MAX_REQUESTS)
            await asyncio.sleep(0.2)
            refused = await asyncio.to_thread(ask, admin.port, "/clients")
            is_rendered.set()
            answers = [await asyncio.to_thread(read_all, client) for client in clients]

    assert (refused.status, refused.body) == (503, b"8 requests are being answered; try again\n")
    assert [answer.split()[1] for answer in answers] == [b"200"] * MAX_REQUESTS


@on_uvloop
async def test_a_change_that_is_being_made_gives_way_to_nobody(tmp_path: Path) -> None:
    async with page(tmp_path, serves=False) as one:
        manager = one.server.quota_manager
        change = {"changes": [{"entity": {"user": "alice"}, "limits": {"producer_byte_rate": 1_000}}]}
        asked = asyncio.ensure_future(one.post(change))
        with ExitStack() as stack:
            # With the change, these are as many as may be read at a time.
            hold(stack, one.port, post("/quotas", WITH_TOKEN, length=99), 3)
            await asyncio.sleep(0.3)
            for _ in range(2 * MAX_REQUESTS):
                assert (await asyncio.to_thread(one.ask, "GET", "/metrics", b"", {})).status == 200
            running = asyncio.ensure_future(manager.run())
            assert (await asked).status == 200
            running.cancel()
            await asyncio.wait([running])
