"""Tests which buckets are active, and which connections belong to them."""

from kafka_quota_proxy.config.model import DEFAULT, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.admin.clients.active import active_buckets
from kafka_quota_proxy.proxy.quota.rule_tables import QuotaChanges, RuleTables
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.throttled_clients import LISTENER, connect, server_with

NOW_MS = 86_400_000
RULE = QuotaRule(client_id=DEFAULT, producer_byte_rate=1_000.0, consumer_byte_rate=2_000.0, source="p.yaml:3")


def names(server: Server, now_ms: int = NOW_MS, kind: QuotaKind | None = None) -> list[tuple[str, str]]:
    found = active_buckets(server, now_ms=now_ms, kind=kind, rest=lambda: None)
    return [(one.bucket.kind.label, one.bucket.tags.client_id) for one in found]


async def test_charged_buckets_are_active_for_a_minute_or_while_connected() -> None:
    server = server_with(RULE)
    quotas = server.brokers.quotas[0]
    connect(server, "connected", now_ms=NOW_MS).charge(1, now_ms=NOW_MS)
    connect(server, "silent", now_ms=NOW_MS)
    quotas.bucket(QuotaKind.FETCH, principal="a", client_id="gone", now_ms=NOW_MS).charge(1, now_ms=NOW_MS)

    assert names(server) == [("produce", "connected"), ("fetch", "gone")]
    assert names(server, kind=QuotaKind.FETCH) == [("fetch", "gone")]
    assert names(server, NOW_MS + 59_999) == [("produce", "connected"), ("fetch", "gone")]
    assert names(server, NOW_MS + 60_000) == [("produce", "connected")]


async def test_a_client_that_left_is_active_while_its_throttle_time_counts() -> None:
    server = server_with(RULE)
    bucket = server.brokers.quotas[0].bucket(QuotaKind.FETCH, principal="a", client_id="gone", now_ms=NOW_MS)
    bucket.charge(1, now_ms=NOW_MS)
    bucket.throttled(25_000, now_ms=NOW_MS)

    assert names(server, NOW_MS + 84_999) == [("fetch", "gone")]
    assert names(server, NOW_MS + 85_000) == []


async def test_a_changed_rule_counts_before_the_next_request() -> None:
    server = server_with(RULE)
    connect(server, "etl", now_ms=NOW_MS).charge(4_000, now_ms=NOW_MS)
    changed = QuotaRule(client_id=DEFAULT, producer_byte_rate=800.0, source="p.yaml:9")

    rules = server.rules.tables
    quotas = server.brokers.quotas[0]
    config = ProxyConfig(listeners=(LISTENER,), quotas=(changed,))
    assert isinstance(rules, RuleTables)
    quotas.update(config, changed=rules.change(QuotaChanges({(None, DEFAULT): changed}, {})))

    (one,) = active_buckets(server, now_ms=NOW_MS, rest=lambda: None)
    assert (one.limit, one.utilisation, one.rule) == (800.0, 0.5, changed)
