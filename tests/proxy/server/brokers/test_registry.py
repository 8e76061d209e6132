"""Tests which upstreams share a broker and its quotas: this is settled before a client is served, and never changes."""

import logging

import pytest

from kafka_quota_proxy.config.model import Address, ProxyConfig, QuotaRule, Replication
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.replication.throttle import Throttle
from kafka_quota_proxy.proxy.server.brokers.broker import Broker, Upstream
from kafka_quota_proxy.proxy.server.brokers.identity import BrokerIdentity
from kafka_quota_proxy.proxy.server.brokers.registry import BrokerRegistry

CONFIG = ProxyConfig(listeners=(), quotas=(QuotaRule(client_id="etl", producer_byte_rate=1_000.0),))
ONE, TWO = BrokerIdentity("c", 1), BrokerIdentity("c", 2)
ADVICE = (
    " that were made with one cluster id, such as the default of the image apache/kafka, run a proxy of its own for "
    "each, or make one of them anew with another CLUSTER_ID; if not, ignore this"
)
NOW_MS = 86_400_000


def at(host: str, port: int = 9092) -> Address:
    return Address(host=host, port=port)


class Ways:
    """A ``BrokerRegistry`` with its upstreams. ``joined`` has the upstreams that got the broker of another one."""

    def __init__(self, *hosts: str) -> None:
        self.joined: list[Upstream] = []
        self.throttle = Throttle(Replication(leader_rate=1e6), CONFIG.kafka)
        self.brokers = BrokerRegistry(self.joined.append, lambda _: None)
        self.all = [self.add(host) for host in hosts]

    def add(self, host: str, *, node_id: int | None = None, has_leader: bool = True) -> Upstream:
        def make() -> Broker:
            leader = self.throttle.leader(at(host), node_id) if has_leader else None
            return Broker(BrokerQuotas(CONFIG), leader)

        return self.brokers.add(Upstream(at(host), make))

    def settle(self, *identities: BrokerIdentity | None) -> None:
        for upstream, identity in zip(self.all, identities, strict=True):
            self.brokers.settle(upstream, identity)

    def groups(self) -> list[list[int]]:
        of_brokers = [
            [at for at, one in enumerate(self.all) if one.broker is broker] for broker in self.brokers.brokers
        ]
        return [group for group in of_brokers if group]


def charge(upstream: Upstream, amount: int) -> None:
    bucket = upstream.quotas.bucket(QuotaKind.PRODUCE, principal="", client_id="etl", now_ms=NOW_MS)
    bucket.charge(amount, now_ms=NOW_MS)


def used(upstream: Upstream) -> int:
    return sum(bucket.usage.amount for bucket in upstream.quotas.produce)


def test_upstreams_of_one_node_share_its_broker_under_any_name() -> None:
    ways = Ways("a", "b", "c")

    ways.settle(ONE, TWO, ONE)

    assert ways.groups() == [[0, 2], [1]]
    assert ways.joined == [ways.all[2]]
    assert ways.brokers.first(ways.all[2].broker) is ways.all[0]
    assert [str(one.identity) for one in ways.brokers.brokers] == ["node 1 of cluster c", "node 2 of cluster c"]


def test_equal_node_ids_of_two_clusters_are_two_brokers_even_at_one_address() -> None:
    ways = Ways("a", "a", "a")
    ways.settle(ONE, BrokerIdentity("d", 1), TWO)
    assert ways.groups() == [[0], [1], [2]]


def test_a_broker_that_does_not_say_who_it_is_is_the_one_at_its_address() -> None:
    ways = Ways("localhost", "127.0.0.1", "elsewhere", "a.example", "a.example.")
    for upstream in ways.all[:2]:
        upstream.led_to(at("127.0.0.1"))

    ways.settle(None, ONE, None, None, None)

    assert ways.groups() == [[0, 1], [2], [3, 4]]
    assert ways.all[0].broker.identity == ONE


def test_a_name_that_led_to_two_places_joins_no_strangers() -> None:
    ways = Ways("10.0.0.1", "all", "10.0.0.2")
    for host in ("10.0.0.1", "10.0.0.2"):
        ways.all[1].led_to(at(host))

    ways.settle(None, None, None)

    assert ways.groups() == [[0], [1], [2]]


def test_a_broker_is_shared_only_with_what_is_settled() -> None:
    ways = Ways("a", "b")
    ways.brokers.settle(ways.all[1], ONE)
    assert ways.groups() == [[0], [1]]

    ways.brokers.settle(ways.all[0], ONE)
    assert ways.groups() == [[0, 1]]
    assert ways.joined == [ways.all[0]]

    ways.brokers.settle(ways.all[0], TWO)  # nothing is settled twice
    assert ways.groups() == [[0, 1]]


def test_usage_of_a_bootstrap_server_counts_at_the_broker_that_joins_at_its_address() -> None:
    ways = Ways()
    server = ways.add("a", has_leader=False)
    ways.brokers.settle(server)
    charge(server, 100)

    broker = ways.add("a", node_id=1)
    ways.brokers.settle(broker, ONE)
    broker.move(at("elsewhere"))

    assert used(broker) == 100
    assert broker.broker.leader is not None
    assert broker.broker.leader.node_id == 1
    other = ways.add("a", node_id=2)
    ways.brokers.settle(other, TWO)
    assert used(other) == 0


def test_a_broker_that_turns_out_to_be_another_keeps_its_usage_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ways = Ways("a", "b")
    ways.settle(ONE, TWO)
    for upstream in ways.all:
        charge(upstream, 100)

    for _ in range(2):
        ways.brokers.identify(ways.all[0], TWO)
        ways.brokers.identify(ways.all[0], ONE)

    assert [used(one) for one in ways.all] == [100, 100]
    assert ways.groups() == [[0], [1]]
    assert caplog.messages == [
        "a:9092 leads to node 2 of cluster c now: its clients are still counted with those of node 1 of cluster c for "
        "as long as the proxy runs"
    ]


def test_brokers_that_turn_out_to_be_one_stay_apart_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    ways = Ways("a", "b")
    ways.settle(None, ONE)

    ways.brokers.identify(ways.all[0], ONE)

    assert ways.groups() == [[0], [1]]
    assert caplog.messages == [
        "b:9092 and a:9092 are one broker, node 1 of cluster c, which became known after clients were served: they "
        "keep separate quotas for as long as the proxy runs"
    ]


def test_brokers_that_only_their_ids_make_one_are_a_warning_once_for_each_cluster(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They may be brokers of two clusters with one cluster id, as the default of Kafka's image is."""
    caplog.set_level(logging.INFO)
    ways = Ways("a", "b", "c", "d", "e", "f")
    ways.settle(ONE, ONE, TWO, TWO, *[BrokerIdentity("other", 1)] * 2)

    assert [
        (one.levelname, one.getMessage().partition(". If they are two clusters")[::2]) for one in caplog.records
    ] == [
        ("WARNING", ("a:9092 and b:9092 are one broker, node 1 of cluster c: they share its quotas", ADVICE)),
        ("INFO", ("c:9092 and d:9092 are one broker, node 2 of cluster c: they share its quotas", "")),
        ("WARNING", ("e:9092 and f:9092 are one broker, node 1 of cluster other: they share its quotas", ADVICE)),
    ]


def test_addresses_of_before_an_absence_are_forgotten() -> None:
    (upstream,) = Ways("a").all
    upstream.led_to(at("10.0.0.1"))
    upstream.led_to(None)
    assert upstream.places == {at("a"), at("10.0.0.1")}
    upstream.led_to(at("10.0.0.2"))
    assert upstream.places == {at("a")}
    upstream.led_to(at("10.0.0.2"), is_back=True)
    assert upstream.places == {at("a"), at("10.0.0.2")}
