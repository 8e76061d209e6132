"""Tests of ``proxy.admin.testing_api``."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from kafka_quota_proxy.config.model import ProxyConfig, QuotaRule
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.session.testing.observed import ON_DEMAND
from kafka_quota_proxy.proxy.session.testing.orders import OnDemandThrottles
from tests.support.quota_page import FILED, LISTENER, Answer, Page, page
from tests.support.stub_broker import on_uvloop

PRODUCE = int(ApiKey.PRODUCE)
ORDER = {"api": "Produce", "throttle_time_ms": 300, "count": 5, "client_id": "app"}


class Control:
    """Sends requests to ``/testing``."""

    def __init__(self, one: Page) -> None:
        self._page = one
        assert one.server.testing is not None
        self.testing: OnDemandThrottles = one.server.testing

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
        return await asyncio.to_thread(self._page.ask, method, f"/testing/{path}", data, sent)


@asynccontextmanager
async def control(path: Path) -> AsyncIterator[Control]:
    async with page(path, config=ProxyConfig(listeners=(LISTENER,), quotas=(FILED,), testing=True)) as one:
        yield Control(one)


@on_uvloop
async def test_without_the_key_the_paths_do_not_exist(tmp_path: Path) -> None:
    async with page(tmp_path) as one:
        for method, path in (("POST", "throttles"), ("GET", "observed"), ("PUT", "quotas"), ("POST", "reset")):
            answer = await asyncio.to_thread(one.ask, method, f"/testing/{path}", b"{}", {})
            assert answer.status == 404, path


@on_uvloop
async def test_orders_are_added_and_removed(tmp_path: Path) -> None:
    async with control(tmp_path) as one:
        assert (await one.ask("POST", "throttles", ORDER)).json == {"id": 1}
        assert (await one.ask("POST", "throttles", {"throttle_time_ms": 0})).json == {"id": 2}
        assert one.testing.take(PRODUCE, 7, user="u", client_id="app", frame=b"") == 300
        assert one.testing.orders[1].left == 4
        assert (await one.ask("DELETE", "throttles/1")).status == 200
        assert list(one.testing.orders) == [2]
        for gone in ("1", "x", "-1", "9" * 30, ""):
            assert (await one.ask("DELETE", f"throttles/{gone}")).status == 404
        assert (await one.ask("DELETE", "throttles")).status == 200
        assert one.testing.orders == {}


@on_uvloop
async def test_what_was_observed_is_read_and_reset(tmp_path: Path) -> None:
    async with control(tmp_path) as one:
        for client_id in ("app", "other"):
            one.testing.observed.add(
                PRODUCE, 7, user="u", client_id=client_id, throttle_time_ms=300, size_bytes=99, reason=ON_DEMAND
            )
            one.testing.observed.see(PRODUCE, user="u", client_id=client_id)

        (found,) = (await one.ask("GET", "observed?client_id=app")).json
        time_ms = found.pop("time_ms")
        assert time_ms > 1_700_000_000_000
        assert found == {
            "api": "Produce",
            "version": 7,
            "user": "u",
            "client_id": "app",
            "broker": None,
            "throttle_time_ms": 300,
            "bytes": 99,
            "reason": "testing",
        }
        assert len((await one.ask("GET", "observed")).json) == 2
        assert (await one.ask("GET", "observed?client_id=")).json == []
        assert (await one.ask("GET", "clients")).json == [
            {"user": "u", "client_id": client_id, "responses": {"Produce": 1}} for client_id in ("app", "other")
        ]
        assert (await one.ask("POST", "reset")).status == 200
        assert (await one.ask("GET", "observed")).json == (await one.ask("GET", "clients")).json == []


@on_uvloop
async def test_quotas_are_replaced_removed_and_restored(tmp_path: Path) -> None:
    async with control(tmp_path) as one:
        server = one._page.server

        def rules() -> list[tuple[object, object]]:
            return [(rule.client_id, rule.limits.get("producer_byte_rate")) for rule in server.config.quotas]

        before = rules()
        rule = {"client-id": "app", "producer_byte_rate": "100KiB"}
        assert (await one.ask("PUT", "quotas", [rule])).status == 200
        assert rules() == [("app", 102_400.0)]
        assert (await one.ask("PUT", "quotas", [])).status == 200
        assert rules() == []
        assert (await one.ask("POST", "reset")).status == 200
        assert rules() == before

        reloaded = QuotaRule(client_id="new", producer_byte_rate=1.0)
        server.apply(replace(server.config, quotas=(reloaded,)))
        assert (await one.ask("PUT", "quotas", [rule])).status == 200
        assert (await one.ask("POST", "reset")).status == 200
        assert rules() == [("new", 1.0)]


@on_uvloop
async def test_faults_say_what_to_send(tmp_path: Path) -> None:
    async with control(tmp_path) as one:
        for method, path, body, status, text in (
            ("POST", "throttles", b"{", 400, "not JSON"),
            ("POST", "throttles", [], 400, "send an object"),
            ("PUT", "quotas", {}, 400, "send a list"),
            ("PUT", "quotas", [{"client-id": "a", "producer_byte_rat": 1}], 400, "quotas[0].producer_byte_rat"),
            ("PATCH", "quotas", None, 404, "not found: PATCH /testing/quotas"),
            ("GET", "nothing", None, 404, "not found: GET /testing/nothing"),
        ):
            answer = await one.ask(method, path, body)
            assert (answer.status, text in answer.body.decode()) == (status, True), answer.body
        assert (await one.ask("POST", "throttles", ORDER, Content_Type="text/plain")).status == 415
        assert (await one.ask("POST", "reset", Host="evil.example")).status == 421
        assert one.testing.orders == {}
