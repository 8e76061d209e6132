"""Tests of ``proxy.admin.status.document``."""

import asyncio
import json
import re
import time
from pathlib import Path
from typing import cast
from zipfile import ZipFile

import pytest

from kafka_quota_proxy.config.errors import Fault
from kafka_quota_proxy.config.model import DEFAULT, QuotaRule
from kafka_quota_proxy.proxy.admin.clients.rows import Overview, Section
from kafka_quota_proxy.proxy.admin.http_server import Health
from kafka_quota_proxy.proxy.admin.status.document import (
    MAX_NEAR,
    MAX_THROTTLED,
    StatusReader,
    encoded,
    faults_of,
    page_files,
    verdict,
)
from kafka_quota_proxy.proxy.replication.config_watcher import ReplicationWatcher
from kafka_quota_proxy.proxy.rules.source import RuleSource
from kafka_quota_proxy.proxy.server.config_reloader import LastRead
from kafka_quota_proxy.proxy.server.server import Server
from tests.proxy.admin.test_http_server import admin_of, ask, ready_server
from tests.support.reloads import Reloads
from tests.support.throttled_clients import connect, server_with
from tests.support.wheels import built_wheel

FILES = {"/": "page.html", "/status.css": "page.css", "/status.js": "page.js"}
FOLDER = Path("proxy/admin/status")
KINDS = {"/": "text/html", "/status.css": "text/css", "/status.js": "text/javascript"}


async def test_the_admin_port_serves_the_page_and_its_files() -> None:
    async with admin_of(ready_server()) as admin:
        answers = {path: await asyncio.to_thread(ask, admin.port, path) for path in FILES}
        posted = await asyncio.to_thread(ask, admin.port, "/", method="POST")

    for path, answer in answers.items():
        assert answer.status == 200
        assert answer.headers["Content-Type"] == f"{KINDS[path]}; charset=utf-8"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.body == (Path(__file__).parents[4] / FOLDER / FILES[path]).read_bytes()
    assert (posted.status, posted.headers["Allow"]) == (405, "GET")


def test_a_browser_may_load_only_the_files_of_the_proxy() -> None:
    policy = dict(page_files()["/"].headers)["Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))

    assert rules["default-src"] == "'none'"
    assert {rules[key] for key in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert "unsafe" not in policy
    assert "*" not in policy


def test_the_page_needs_nothing_that_the_policy_forbids() -> None:
    html = b"".join(page_files()["/"].body).decode()
    script = b"".join(page_files()["/status.js"].body).decode()

    assert set(re.findall(r'(?:src|href)="([^"]*)"', html)) <= {
        "data:,", "status.css", "status.js", "clients", "readyz", "quotas",
    }  # fmt: skip
    assert not re.search(r"\son\w+=|\sstyle=|<style|<script(?![^>]*src)", html)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://", script)


@pytest.mark.kafka
def test_the_wheel_contains_the_page(tmp_path: Path) -> None:
    with ZipFile(built_wheel(tmp_path)) as wheel:
        packed = {name: wheel.read(f"kafka_quota_proxy/{FOLDER}/{name}") for name in FILES.values()}

    assert packed == {name: (Path(__file__).parents[4] / FOLDER / name).read_bytes() for name in FILES.values()}


READ = LastRead(0.0, "config_loaded", "proxy.yaml was read at the start")
REACHED = {"addresses": ["b:1"], "reached": True}


def away(number: int) -> dict[str, object]:
    return {"addresses": [f"away:{number}"], "reached": False, "reason": "refused"}


def overview(clients: int, throttled: int) -> Overview:
    return Overview("t", clients, clients, Section(throttled, throttled, []), Section(0, 0, []))


def test_a_proxy_without_a_fault_is_well() -> None:
    assert (
        verdict("ready", [], overview(12, 3), [REACHED, REACHED]) == "Well: 12 clients, 3 throttled, 2 brokers reached"
    )
    assert verdict("ready", [], overview(1, 0), [REACHED]) == "Well: 1 client, 0 throttled, 1 broker reached"


def test_brokers_that_cannot_be_reached_are_named() -> None:
    found = faults_of([REACHED, away(1)], READ, None, None)
    many = faults_of([away(number) for number in range(5)], READ, None, None)

    assert verdict("degraded", found, overview(2, 1), [REACHED, away(1)]) == (
        "Not well: broker away:1 (refused) cannot be reached. 2 clients, 1 throttled, 1 of 2 brokers reached"
    )
    assert many == ["brokers away:0 (refused), away:1 (refused), away:2 (refused) and 2 others cannot be reached"]


def test_a_refused_file_is_a_fault() -> None:
    refused = LastRead(
        0.0, "config_refused", "proxy.yaml is not valid", (Fault(file="f", line=1, key="k", message="m"),)
    )

    assert faults_of([REACHED], refused, None, None) == ["proxy.yaml is not valid"]


class Source:
    def __init__(self, name: str, *, is_connected: bool, key: str = "topic", is_store: bool = False) -> None:
        self.name = name
        self.is_connected = is_connected
        self.writer = self if is_store else None
        self._key = key

    def status(self) -> dict[str, object]:
        return {self._key: self.name}


class Watcher:
    def __init__(self, *, is_successful: bool = True, is_orphaned: bool = False) -> None:
        self.is_successful, self.is_orphaned = is_successful, is_orphaned


DIRECTORY = Source("d", is_connected=False, key="directory", is_store=True)
TOPIC = Source("t", is_connected=False, is_store=True)
FOLLOWED = Source("kafka://b:1/quotas", is_connected=False)


@pytest.mark.parametrize(
    ("source", "watcher", "said"),
    [
        (Source("d", is_connected=True, key="directory", is_store=True), Watcher(), []),
        (FOLLOWED, None, ["the quotas of quotas_from (kafka://b:1/quotas) cannot be read"]),
        (DIRECTORY, None, ["the store of quotas d cannot be written"]),
        (TOPIC, None, ["the store of quotas in the topic t cannot be reached"]),
        (None, Watcher(is_successful=False), ["the cluster does not say which replication it throttles"]),
        (None, Watcher(is_orphaned=True), ["the cluster throttles replication while nothing is being reassigned"]),
    ],
)
def test_where_quotas_come_from_and_replication_count_too(source: object, watcher: object, said: list[str]) -> None:
    found = faults_of([REACHED], READ, cast(RuleSource, source), cast(ReplicationWatcher, watcher))

    assert found == said


RULE = QuotaRule(client_id=DEFAULT, producer_byte_rate=1_000.0, source="p.yaml:7")
HOSTILE = '</script><img src=x onerror="alert(1)">\u202e\x1b[2J\n\u2028é'
MOST_ROW_BYTES = 6_000  # two names of 256 characters, of which JSON may write each with 12, and a few hundred more


def reader(server: Server) -> StatusReader:
    reloads = Reloads()
    return StatusReader(server, reloads, Health(server, reloads).readiness)


def throttle(server: Server, client_id: str, *, user: str = "ANONYMOUS") -> None:
    now_ms = time.monotonic_ns() // 1_000_000
    bucket = connect(server, client_id, now_ms=now_ms, user=user)
    bucket.charge(2_000, now_ms=now_ms)
    bucket.throttled(5_000, now_ms=now_ms)


async def test_the_document_has_the_verdict_and_every_section() -> None:
    server = server_with(RULE)
    server.is_listening = True
    for upstream in server.brokers.upstreams:
        upstream.fault = None
    throttle(server, HOSTILE)

    found = json.loads(encoded(reader(server).read()))

    assert (found["state"], found["well"]) == ("ready", True)
    assert found["verdict"] == "Well: 1 client, 1 throttled, 1 broker reached"
    (row,) = found["clients"]["throttled"]["rows"]
    assert (row["client_id"], row["throttled"], row["rule"]["source"]) == (HOSTILE, True, "p.yaml:7")
    assert found["clients"]["near"] == {"clients": 0, "total": 0, "rows": []}
    (broker,) = found["brokers"]
    assert (broker["node_id"], broker["addresses"], broker["reached"]) == (1, ["127.0.0.1:19092"], True)
    assert found["reload"]["event"] == "config_loaded"
    assert (found["changes"], found["queues"]) == (None, None)


async def test_a_proxy_that_clients_are_sent_past_is_not_well() -> None:
    server = server_with(RULE)
    server.is_listening = True
    (upstream,) = server.brokers.upstreams
    upstream.reached()
    upstream.advertises(upstream.address, ())

    found = reader(server).read()

    assert found["verdict"].startswith(
        "Not well: the broker 127.0.0.1:19092 sends clients past the proxy, to 127.0.0.1:19092. 0 clients"
    )
    assert [row["bypass"] for row in found["brokers"]] == ["127.0.0.1:19092"]


async def test_an_event_is_bounded_whatever_clients_call_themselves() -> None:
    user = chr(0x10FFFF) * 30_000
    server = server_with(QuotaRule(user=user, client_id=DEFAULT, producer_byte_rate=1_000.0, source="p.yaml:7"))
    for number in range(2 * MAX_THROTTLED):
        throttle(server, f"{number}{chr(0x10FFFF) * 8_000}", user=user)

    document = reader(server).read()
    event = encoded(document)

    assert (document["clients"]["throttled"]["total"], len(document["clients"]["throttled"]["rows"])) == (
        2 * MAX_THROTTLED,
        MAX_THROTTLED,
    )
    assert len(document["clients"]["throttled"]["rows"][0]["rule"]["user"]) == 256
    assert len(event) < (MAX_THROTTLED + MAX_NEAR) * MOST_ROW_BYTES
    assert event.isascii()
    assert b"\n" not in event
