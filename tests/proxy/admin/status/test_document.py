"""Tests what the status page is told, how large that is, and how long the event loop waits for it."""

import json
import time

from kafka_quota_proxy.config.model import DEFAULT, QuotaRule
from kafka_quota_proxy.proxy.admin.http_server import Health
from kafka_quota_proxy.proxy.admin.status.document import MAX_NEAR, MAX_THROTTLED, StatusReader, encoded
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.reloads import Reloads
from tests.support.throttled_clients import connect, server_with

RULE = QuotaRule(client_id=DEFAULT, producer_byte_rate=1_000.0, source="p.yaml:7")
HOSTILE = '</script><img src=x onerror="alert(1)">\u202e\x1b[2J\n\u2028é'
MOST_ROW_BYTES = 6_000  # two names of 256 characters, of which JSON may write each with 12, and a few hundred more
CLIENTS = 3_000
MOST_STEP_S = 0.005  # the event loop may wait for 10 ms


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
    assert (found["changes"], found["queues"], found["replication"]) == (None, None, None)


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


async def test_the_reader_pauses_after_every_few_rows() -> None:
    server = server_with(RULE)
    for number in range(CLIENTS):
        throttle(server, f"client-{number}")

    # Another program may take the caches in one of them.
    assert any(longest_step_s(server) < MOST_STEP_S for _ in range(6))


def longest_step_s(server: Server) -> float:
    """Return the most CPU time between two pauses."""
    since_s, steps_s = time.thread_time(), []

    def rest() -> None:
        nonlocal since_s
        now_s = time.thread_time()
        steps_s.append(now_s - since_s)
        since_s = time.thread_time()

    document = reader(server).read(rest=rest)
    encoded(document, rest=rest)
    assert document["clients"]["total"] == CLIENTS
    return max(steps_s)
