"""Every client works with an unmodified cluster behind one proxy, and never connects to a broker directly.

The brokers log the source address of each request. The proxy connects from an address of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient

from tests.end_to_end.support import everything
from tests.end_to_end.support.artifacts import KAFKA_3_9, KAFKA_4, KAFKA_4_3
from tests.end_to_end.support.clients import QUIET, create_topic
from tests.end_to_end.support.everything import COMMITTED, PARTITIONS, SENT, Everything
from tests.end_to_end.support.kafka import QUICK_TO_RETURN, Kafka
from tests.end_to_end.support.processes import free_ports, wait_until
from tests.end_to_end.support.proxy import Proxy

JAVA: Final = Path(__file__).parent / "java"
CLIENTS: Final = "CLIENTS"
PROXY_HOST: Final = "127.0.0.9"
PORTS: Final = 10
SHARE_GROUPS: Final[dict[str, str | int]] = {
    "group.share.enable": "true",
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 3,
}

EVERY: Final[dict[str, Everything]] = {
    "Java": everything.java,
    "librdkafka": everything.librdkafka,
    "aiokafka": everything.aiokafka_client,
    "kafka-python": everything.kafka_python_client,
    "kafkajs": everything.kafkajs,
}
SHORT: Final = ("Java", "librdkafka")


def _proxy(kafka: Kafka) -> Proxy:
    first = free_ports(PORTS + 1)
    listener = {
        "name": "clients",
        "bind": f"127.0.0.1:{first}",
        "bootstrap_servers": kafka.addresses(CLIENTS),
        "broker_ports": f"{first + 1}-{first + PORTS}",
    }
    return Proxy({"listeners": [listener], "upstream_bind": PROXY_HOST})


@pytest.fixture(
    scope="module",
    params=[*(pytest.param(version, marks=pytest.mark.long) for version in (KAFKA_3_9, KAFKA_4_3)), KAFKA_4],
)
def cluster(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    config: dict[str, str | int] = QUICK_TO_RETURN | {"metric.reporters": "TelemetryReceiver"}
    with Kafka(
        request.param,
        nodes=3,
        proxied=(),
        unproxied=(CLIENTS,),
        config=config | (SHARE_GROUPS if request.param != KAFKA_3_9 else {}),
        logs_requests=True,
        plugins=[JAVA / "TelemetryReceiver.java"],
    ) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def proxy(cluster: Kafka) -> Iterator[Proxy]:
    with _proxy(cluster) as proxy:
        yield proxy


def _sources(kafka: Kafka) -> Counter[str]:
    """Return the source addresses of the logged requests, without the ApiVersions requests of the tests."""
    return Counter(
        request.source
        for broker in kafka.brokers
        for request in broker.requests(CLIENTS)
        if request.api != "API_VERSIONS"
    )


@pytest.mark.parametrize(
    "name", [name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in EVERY]
)
def test_client_does_everything_without_reaching_a_broker_directly(name: str, cluster: Kafka, proxy: Proxy) -> None:
    before = _sources(cluster)

    outcome = EVERY[name](cluster, proxy.address("clients"))

    assert (outcome.seen, outcome.partitions, outcome.has_group) == (SENT + COMMITTED, PARTITIONS, True)
    assert outcome.ports == {proxy.port("clients") + 1 + broker.node_id for broker in cluster.brokers}
    assert proxy.metrics().total("kafka_quota_proxy_unknown_api_total") == 0
    seen = _sources(cluster) - before
    assert set(seen) == {PROXY_HOST}
    assert seen[PROXY_HOST] > 20


def test_client_that_bypasses_the_proxy_is_detected(cluster: Kafka) -> None:
    """This shows that the test above can fail."""
    before = _sources(cluster)
    AdminClient({"bootstrap.servers": cluster.addresses(CLIENTS), **QUIET}).list_topics(timeout=30)

    assert (_sources(cluster) - before)["127.0.0.1"] > 0


@pytest.mark.long
def test_clients_push_their_telemetry_through_the_proxy(cluster: Kafka, proxy: Proxy) -> None:
    topic = create_topic(cluster)
    before = _sources(cluster)

    def is_pushed() -> bool:
        out = cluster.run_java(str(JAVA / "Telemetry.java"), proxy.address("clients"), topic)
        instance_id = out.splitlines()[-1]
        return any(f"telemetry of {instance_id}" in broker.log for broker in cluster.brokers)

    # A client that connects before its broker knows the subscription asks again only after five minutes.
    wait_until(is_pushed, timeout_s=60, what="a broker takes what a client pushes")
    assert set(_sources(cluster) - before) == {PROXY_HOST}
