"""Tests the metrics of fair call queues."""

import pytest

from kafka_quota_proxy.config.fair_call_queue import FairCallQueue
from kafka_quota_proxy.config.model import Address, Cluster, Listener, ProxyConfig
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.admin.metrics.fair_queue import fair_queue_metrics
from kafka_quota_proxy.proxy.fair_queue.dispatcher import Ticket
from kafka_quota_proxy.proxy.fair_queue.queue_stats import CONTROL_LEVEL
from kafka_quota_proxy.proxy.server.brokers.queue import ListenerPriorities
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.scrape import Scrape, scraped

UPSTREAM = Address(host="127.0.0.1", port=19092)
ANY = Address(host="127.0.0.1", port=0)
PREFIX = "kafka_quota_proxy_call_queue_"


def scrape_of(server: Server) -> Scrape:
    found = scraped(fair_queue_metrics(server.brokers.queues_by_name, server.listeners))
    return {(name.removeprefix(PREFIX), labels): value for (name, labels), value in found.items()}


def server_of(settings: FairCallQueue | None) -> Server:
    listener = Listener(name="clients", bind=ANY, upstream=UPSTREAM, fair_call_queue=settings)
    return Server(ProxyConfig(listeners=(listener,)))


def of_broker(**labels: str) -> tuple[tuple[str, str], ...]:
    return (("broker", str(UPSTREAM)), *labels.items())


def of_listener(**labels: str) -> tuple[tuple[str, str], ...]:
    return (("listener", "clients"), *labels.items())


def calls_of(server: Server) -> ListenerPriorities:
    calls = server.listeners[0].priorities
    assert calls is not None
    return calls


def test_a_broker_behind_two_listeners_has_one_queue() -> None:
    """One listener is in front of the broker, and the other is in front of the broker's cluster."""
    settings = FairCallQueue(max_in_flight=2, capacity=8)
    cluster = Cluster(bootstrap_servers=(UPSTREAM,), advertised_host="proxy.example", first_port=9300, last_port=9301)
    direct = Listener(name="direct", bind=ANY, upstream=UPSTREAM, fair_call_queue=settings)
    server = Server(ProxyConfig(listeners=(direct, Listener(name="clients", bind=ANY, cluster=cluster))))
    for upstream in server.brokers.upstreams:
        server.brokers.registry.settle(upstream)
    (known_cluster,) = server.brokers.clusters.values()
    of_cluster = known_cluster.upstream(0, UPSTREAM)
    broker_queue = of_cluster.broker.queue
    assert broker_queue is not None
    assert [one.broker.queue is broker_queue for one in server.brokers.upstreams] == [True] * 3
    for _ in range(7):
        broker_queue.dispatcher.ask(Ticket(None, level=2), 0)
    broker_queue.dispatcher.ask(Ticket(None, is_control=True), 0)

    found = scrape_of(server)

    assert [found["size", of_broker(level=level)] for level in ("1", "2", "3", "control")] == [0, 2, 2, 0]
    assert [found["capacity", of_broker(level=str(level))] for level in range(4)] == [2, 2, 2, 2]
    assert found["waiting_for_room", of_broker()] == 1
    assert found["overflows_total", of_broker(level="2")] == 3
    assert [found["in_flight", of_broker(pool=pool)] for pool in ("requests", "control")] == [2, 1]
    assert [found["max_in_flight", of_broker(pool=pool)] for pool in ("requests", "control")] == [2, 4]


def test_a_listener_counts_the_outcome_of_its_requests() -> None:
    assert scrape_of(server_of(None)) == {}
    server = server_of(FairCallQueue())
    stats = calls_of(server).stats
    stats.serve(0, 1_000, 2_000_000)
    stats.serve(0, 500_000, 2_000_000)
    stats.serve(CONTROL_LEVEL, 0, 250_000)
    stats.refuse(3, ApiKey.PRODUCE)
    stats.park(ApiKey.FETCH)
    stats.pass_by(ApiKey.FETCH)
    stats.pass_by(30_000)

    found = scrape_of(server)

    assert found["requests_total", of_listener(level="0")] == 2
    assert found["wait_seconds_total", of_listener(level="0")] == pytest.approx(0.501)
    assert found["broker_seconds_total", of_listener(level="0")] == 4
    assert found["broker_seconds_total", of_listener(level="control")] == 0.25
    assert found["refused_total", of_listener(level="3", api="Produce")] == 1
    assert found["parked_total", of_listener(api="Fetch")] == 1
    assert found["passed_by_total", of_listener(api="Fetch")] == 1
    assert found["passed_by_total", of_listener(api="other")] == 1


def test_a_listener_shows_its_costliest_users_with_their_shares_and_levels() -> None:
    server = server_of(FairCallQueue(top_user_count=2, service_users=frozenset({"etl"})))
    scheduler = calls_of(server).scheduler
    for user, cost in (("alice", 100), ("bob", 300), ("carol", 20), ("etl", 50)):
        scheduler.charge(user, cost)
    for _ in range(10):
        scheduler.add_response_time(1, queue_us=0, taken_us=3_000_000)
    scheduler.sweep()

    found = scrape_of(server)

    assert found["identities", of_listener()] == 4
    assert found["cost", of_listener()] == 420
    assert found["decayed_cost", of_listener()] == 210
    assert found["service_user_cost", of_listener()] == 50
    assert found["service_user_decayed_cost", of_listener()] == 25
    users = {labels[1][1]: value for (name, labels), value in found.items() if name == "top_user_cost"}
    assert users == {"bob": 300, "alice": 100}
    assert found["top_user_share", of_listener(user="bob")] == pytest.approx(5 / 7)
    assert found["top_user_level", of_listener(user="bob")] == 3
    assert [found["average_response_seconds", of_listener(level=str(level))] for level in range(4)] == [0, 1.5, 0, 0]
