"""Tests the metrics of connections and of quotas on them, the proxy's own and Kafka's."""

from kafka_quota_proxy.config.model import (
    DEFAULT,
    Address,
    Enforcement,
    IpRule,
    KafkaSettings,
    Listener,
    ProxyConfig,
    QuotaRule,
)
from kafka_quota_proxy.proxy.admin.metrics.connections import connection_metrics
from kafka_quota_proxy.proxy.quota.open_connections import Identity
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.scrape import Scrape, scraped
from tests.support.stub_broker import upstream_of

UPSTREAM, OTHER_UPSTREAM = (Address(host="127.0.0.1", port=port) for port in (19092, 19093))
ANY = Address(host="127.0.0.1", port=0)
NOW_MS = 86_400_000
PREFIX = "kafka_quota_proxy_"
KAFKA = "kafka_server_socket_server_metrics_"
AT = (("listener", "clients"), ("upstream", "127.0.0.1:19092"))
AT_BROKER = (("upstream", "127.0.0.1:19092"),)


def scrape_of(server: Server) -> Scrape:
    return scraped(connection_metrics(server.brokers.quotas_by_name, server.listeners, NOW_MS))


def server_of(
    *rules: QuotaRule, rate: int | None = 5, enforcement: Enforcement = Enforcement.RESPOND, broker: int = 2**31 - 1
) -> Server:
    return Server(
        ProxyConfig(
            listeners=tuple(
                Listener(name=name, bind=ANY, upstream=upstream, max_connection_creation_rate=rate)
                for name, upstream in (("clients", UPSTREAM), ("others", OTHER_UPSTREAM))
            ),
            kafka=KafkaSettings(max_connection_creation_rate=broker),
            quotas=rules,
            ip_quotas=(
                IpRule(ip="10.0.0.7", connection_creation_rate=1.0),
                IpRule(ip=DEFAULT, connection_creation_rate=9),
            ),
            enforcement=enforcement,
        )
    )


def enter(server: Server, upstream: Address, identity: Identity) -> None:
    connections = upstream_of(server, upstream).quotas.connections
    connections.enter(identity, connections.check(identity))


def test_rates_pauses_and_refused_connections_are_shown() -> None:
    server = server_of(broker=7)
    quota = upstream_of(server, UPSTREAM).quotas.arrivals.listener("clients")
    for _ in range(51):
        quota.record(now_ms=NOW_MS)
    for _ in range(11):
        quota.record_address("10.0.0.7", served_ms=NOW_MS, now_ms=NOW_MS)

    found = scrape_of(server)

    of_proxy = {
        "connection_creation_rate": 5.0,
        "connection_creation_limit": 5.0,
        "connection_pauses_total": 1,
        "connection_pause_seconds_total": 0.2,
        "throttled_connections_total": 1,
        "observed_throttled_connections_total": 0,
    }
    assert {name: found[PREFIX + name, AT] for name in of_proxy} == of_proxy
    of_broker = {
        "broker_connection_creation_rate": 5.0, "broker_connection_creation_limit": 7.0, "connection_addresses": 1,
    }  # fmt: skip
    assert {name: found[PREFIX + name, AT_BROKER] for name in of_broker} == of_broker
    assert found[KAFKA + "connection_accept_rate", AT] == 5.0
    assert found[PREFIX + "ip_connection_creation_limit", (("ip", "10.0.0.7"),)] == 1
    assert found[PREFIX + "ip_connection_creation_limit", (("ip", "<default>"),)] == 9
    assert found[PREFIX + "kept_connections", (("listener", "clients"),)] == 0
    without = {name for name, _ in scrape_of(server_of(rate=None))}
    assert without.isdisjoint({PREFIX + "connection_creation_limit", PREFIX + "broker_connection_creation_limit"})


def test_open_connections_are_those_of_the_broker_with_most() -> None:
    server = server_of(QuotaRule(user="alice", connections=10))
    for upstream, count in ((UPSTREAM, 2), (OTHER_UPSTREAM, 3)):
        for _ in range(count):
            enter(server, upstream, Identity("alice", "etl"))
    enter(server, UPSTREAM, Identity("bob", "etl"))
    server.listeners[1].counters.observed_connections = 4

    found = scrape_of(server)

    of_users = {labels: value for (name, labels), value in found.items() if name == PREFIX + "quota_connections"}
    assert of_users == {(("user", "alice"), ("client_id", "")): 3}
    assert found[PREFIX + "observed_connections_total", (("listener", "others"),)] == 4
