"""Tests how upstreams come to share a broker and its usage, as their cluster ids and node ids become known."""

import logging

import pytest

from kafka_quota_proxy.config.fair_call_queue import FairCallQueue
from kafka_quota_proxy.config.model import Address, ProxyConfig, QuotaRule, Replication
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.replication.throttle import Throttle
from kafka_quota_proxy.proxy.server import broker_registry
from kafka_quota_proxy.proxy.server.broker import Broker, Upstream
from kafka_quota_proxy.proxy.server.broker_identity import BrokerIdentity
from kafka_quota_proxy.proxy.server.broker_queue import BrokerQueue
from kafka_quota_proxy.proxy.server.broker_registry import BrokerRegistry

CONFIG = ProxyConfig(listeners=(), quotas=(QuotaRule(client_id="etl", producer_byte_rate=1_000.0),))
ONE, TWO = BrokerIdentity("c", 1), BrokerIdentity("c", 2)
ADVICE = (
    " that were made with one cluster id, such as the default of the image apache/kafka, run a proxy of its own for "
    "each, or make one of them anew with another CLUSTER_ID; if not, ignore this"
)
NOW_MS = 86_400_000


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_registry, "monotonic_ns", lambda: NOW_MS * 1_000_000)


def at(host: str, port: int = 9092) -> Address:
    return Address(host=host, port=port)


class Ways:
    """A ``BrokerRegistry`` with its upstreams. ``moved`` has the upstreams that changed their broker."""

    def __init__(self, *hosts: str) -> None:
        self.moved: list[Upstream] = []
        self.throttle = Throttle(Replication(leader_rate=1e6), CONFIG.kafka)
        self.brokers = BrokerRegistry(self.moved.append, lambda _: None)
        self.all = [self.add(host) for host in hosts]

    def add(self, host: str, *, is_bootstrap: bool = False) -> Upstream:
        def make() -> Broker:
            leader = None if is_bootstrap else self.throttle.leader(at(host))
            return Broker(BrokerQuotas(CONFIG), leader)

        return self.brokers.add(Upstream(at(host), make, is_bootstrap=is_bootstrap))


def charge(upstream: Upstream, amount: int) -> None:
    bucket = upstream.quotas.bucket(QuotaKind.PRODUCE, principal="", client_id="etl", now_ms=NOW_MS)
    bucket.charge(amount, now_ms=NOW_MS)


def used(upstream: Upstream) -> int:
    return sum(bucket.amount for bucket in upstream.quotas.produce)


def test_upstreams_of_one_broker_add_up_their_usage_and_are_reported() -> None:
    ways = Ways("a", "b", "c")
    a, b, c = ways.all
    for upstream in ways.all:
        charge(upstream, 100)

    ways.brokers.identify(a, ONE)
    ways.brokers.identify(c, TWO)
    ways.brokers.identify(b, ONE)

    assert (used(a), used(b), used(c)) == (200, 200, 100)
    assert len(list(ways.brokers)) == 2
    assert ways.moved == [b]
    assert ways.brokers.first(b.broker) is a


def test_brokers_that_only_their_ids_make_one_are_a_warning_once_for_each_cluster(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They may be brokers of two clusters with one cluster id, as the default of Kafka's image is."""
    caplog.set_level(logging.INFO)
    ways = Ways("a", "b", "c", "d", "e", "f")
    for upstream, identity in zip(ways.all, (ONE, ONE, TWO, TWO, *[BrokerIdentity("other", 1)] * 2), strict=True):
        ways.brokers.identify(upstream, identity)

    assert [
        (one.levelname, one.getMessage().partition(". If they are two clusters")[::2]) for one in caplog.records
    ] == [
        ("WARNING", ("a:9092 and b:9092 are one broker, node 1 of cluster c: they share its quotas", ADVICE)),
        ("INFO", ("c:9092 and d:9092 are one broker, node 2 of cluster c: they share its quotas", "")),
        ("WARNING", ("e:9092 and f:9092 are one broker, node 1 of cluster other: they share its quotas", ADVICE)),
    ]


def test_two_names_of_one_address_are_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ways = Ways("a", "b")
    for upstream in ways.all:
        ways.brokers.reached(upstream, at("10.0.0.1"))
        ways.brokers.identify(upstream, ONE)

    assert [one.levelname for one in caplog.records] == ["INFO"]


def test_a_moved_connection_looks_its_buckets_up_again() -> None:
    ways = Ways("a", "b")
    a, b = ways.all
    for _ in range(5):
        b.quotas.renew()
    before = b.quotas.generation

    ways.brokers.identify(a, ONE)
    ways.brokers.identify(b, ONE)
    assert b.quotas.generation > before

    before = b.quotas.generation
    ways.brokers.identify(b, TWO)
    assert b.quotas.generation > before


def test_an_upstream_that_leaves_a_broker_starts_with_no_usage() -> None:
    ways = Ways("a", "b")
    a, b = ways.all
    ways.brokers.identify(a, ONE)
    ways.brokers.identify(b, ONE)
    charge(b, 100)

    ways.brokers.identify(b, TWO)

    assert (used(a), used(b)) == (100, 0)


def test_a_broker_keeps_its_usage_when_its_node_id_changes() -> None:
    ways = Ways("a")
    (a,) = ways.all
    ways.brokers.identify(a, ONE)
    charge(a, 100)

    ways.brokers.identify(a, TWO)

    assert used(a) == 100
    assert ways.moved == []


def test_usage_of_a_bootstrap_server_moves_to_its_broker() -> None:
    ways = Ways()
    server = ways.add("a", is_bootstrap=True)
    charge(server, 100)
    broker = ways.add("a")
    assert server.broker is broker.broker

    ways.brokers.move(broker, at("elsewhere"))

    assert (used(server), used(broker)) == (0, 100)


def test_connection_to_another_address_separates_upstreams() -> None:
    ways = Ways("a", "b")
    a, b = ways.all
    ways.brokers.reached(a, at("10.0.0.1"))
    ways.brokers.reached(b, at("10.0.0.1"))
    ways.brokers.reached(b, None)
    assert a.broker is b.broker

    ways.brokers.reached(b, at("10.0.0.2"))
    assert a.broker is not b.broker
    ways.brokers.reached(b, at("10.0.0.1"), is_back=True)
    assert a.broker is b.broker


def test_the_limit_of_a_leader_is_one_and_so_is_the_queue() -> None:
    ways = Ways("a", "b")
    a, b = ways.all
    sides = [upstream.broker.leader for upstream in (a, b)]
    quotas = []
    for upstream, leader in zip((a, b), sides, strict=True):
        assert leader is not None
        quotas.append(leader.quota(now_ms=NOW_MS))
        quotas[-1].record(100, now_ms=NOW_MS)
        upstream.broker.queue = BrokerQueue(FairCallQueue())
        upstream.broker.queue.dispatcher.queue.overflowed[1] = 3
    generation = ways.throttle.generation

    ways.brokers.identify(a, ONE)
    ways.brokers.identify(b, ONE)

    assert ways.throttle.leaders == sides[:1]
    assert ways.throttle.generation > generation
    assert sides[1] is not None
    assert sides[1].quota(now_ms=NOW_MS) is quotas[0]
    quotas[1].record(5, now_ms=NOW_MS)  # the bytes of a fetch that was in flight
    assert (quotas[0].total, quotas[0].records, quotas[0].rate.total) == (205, 3, 205)
    assert b.broker.queue is not None
    assert b.broker.queue.dispatcher.queue.overflowed[1] == 6
