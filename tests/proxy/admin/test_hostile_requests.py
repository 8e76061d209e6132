"""Tests that pages of other web sites and hostile bodies do no harm at the admin port."""

import asyncio
import socket
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from kafka_quota_proxy.config.model import ProxyConfig
from tests.proxy.admin.test_http_server import admin_of, ask, ready_server
from tests.support.quota_page import FILED, LISTENER, TOKEN, page
from tests.support.stub_broker import on_uvloop

TESTING = ProxyConfig(listeners=(LISTENER,), quotas=(FILED,), testing=True)
FOREIGN = ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"})


def hold(stack: ExitStack, port: int, sent: bytes, count: int) -> list[socket.socket]:
    """Open connections that send this much, and then neither read nor write."""
    clients = []
    for _ in range(count):
        client = stack.enter_context(socket.socket())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.settimeout(5)
        client.connect(("127.0.0.1", port))
        client.sendall(sent)
        clients.append(client)
    return clients


def read_all(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(65_536), b""))


# -- pages of other web sites


async def test_requests_of_other_sites_are_refused(tmp_path: Path) -> None:
    config = replace(TESTING, quotas=())
    async with page(tmp_path, config=config) as one:
        assert one.server.testing is not None
        body, kind = b'{"throttle_time_ms": 300}', {"Content-Type": "application/json"}
        assert (await asyncio.to_thread(one.ask, "POST", "/testing/throttles", body, kind)).status == 200
        for foreign in FOREIGN:
            for method, path in (("POST", "/testing/reset"), ("DELETE", "/testing/throttles"), ("GET", "/clients")):
                answer = await asyncio.to_thread(one.ask, method, path, b"", kind | foreign)
                assert (answer.status, b"another web site" in answer.body) == (403, True), (method, foreign)
            assert (await asyncio.to_thread(one.ask, "GET", "/livez", b"", foreign)).status == 200
        simple = await asyncio.to_thread(one.ask, "POST", "/testing/reset", b"", {})
        assert simple.status == 415  # a page of any site could send it without a preflight
        assert len(one.server.testing.orders) == 1

        own = {"Origin": f"http://127.0.0.1:{one.port}", "Sec-Fetch-Site": "same-origin"}
        assert (await asyncio.to_thread(one.ask, "POST", "/testing/reset", b"", kind | own)).status == 200
        assert not one.server.testing.orders


async def test_a_link_of_another_site_opens_the_status_page() -> None:
    followed = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Dest": "document"}
    async with admin_of(ready_server()) as admin:
        assert (await asyncio.to_thread(ask, admin.port, "/", **followed)).status == 200
        framed = await asyncio.to_thread(ask, admin.port, "/", **(followed | {"Sec_Fetch_Dest": "iframe"}))
        assert framed.status == 403


# -- bodies


BODIES = (
    (b"[" * 100_000, "nested too deeply"),
    (b'{"a":' * 500 + b"1" + b"}" * 500, "nested too deeply"),
    (b'{"changes": [{"entity": {"user": "\\ud800"}}]}', "has text with half of a pair of surrogates"),
    (b'{"api": "Produce", "topic": "\\ud800", "throttle_time_ms": 1}', "has text with half of a pair of surrogates"),
    (b'{"topic": "a", "topic": "b", "throttle_time_ms": 1}', "'topic' is given twice"),
    (b'{"count": ' + b"9" * 5_000 + b"}", "too many digits"),
    ('{"topic": "ü"}'.encode("latin-1"), "byte 11 is not UTF-8"),
    (b"{", "is not JSON"),
)


@on_uvloop
async def test_all_paths_refuse_the_same_bodies(tmp_path: Path) -> None:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    async with page(tmp_path, config=TESTING) as one:
        for method, path in (
            ("POST", "/testing/throttles"),
            ("PUT", "/testing/quotas"),
            ("POST", "/testing/reset"),
            ("POST", "/quotas"),
        ):
            for body, said in BODIES:
                answer = await asyncio.to_thread(one.ask, method, path, body, headers)
                assert (answer.status, said in answer.body.decode()) == (400, True), (path, body[:60], answer.body)
