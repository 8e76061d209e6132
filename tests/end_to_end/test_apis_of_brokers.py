"""The table of APIs fits the brokers of each release, and the newest client sends nothing that is not in it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from kafka_quota_proxy.protocol.api import API_NAMES, HIGHEST_VERSION, ApiKey
from tests.end_to_end.support.artifacts import KAFKA_2_8, KAFKA_3_9, KAFKA_4, KAFKA_4_3
from tests.end_to_end.support.clients import QUIET, Java, create_topic
from tests.end_to_end.support.frames import API_VERSIONS, RawClient, raw_client
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.old_kafka import OldKafka
from tests.end_to_end.support.processes import free_ports
from tests.end_to_end.support.proxy import Proxy

# A broker offers the version only if it has `unstable.api.versions.enable`.
_UNSTABLE: Final = {ApiKey.INIT_PRODUCER_ID: 6}
_UNKNOWN: Final = "kafka_quota_proxy_unknown_api_total"
_NONE, _INVALID_REQUEST, _REBOOTSTRAP_REQUIRED = 0, 42, 129
_ANY_NODE: Final = -1


@pytest.mark.parametrize(
    "version",
    [
        KAFKA_4,
        *(pytest.param(version, marks=pytest.mark.long) for version in (KAFKA_4_3, KAFKA_3_9, KAFKA_2_8)),
    ],
)
def test_the_table_has_each_api_and_version_of_a_broker(version: str, request: pytest.FixtureRequest) -> None:
    with ExitStack() as stack:
        if version in (KAFKA_4, KAFKA_3_9):
            kafka: Kafka = request.getfixturevalue("kafka_4" if version == KAFKA_4 else "kafka_39")
        else:
            kafka = stack.enter_context(OldKafka() if version == KAFKA_2_8 else Kafka(version))
        offered = _offered(kafka.listener(DIRECT).port)

    assert len(offered) > 40
    assert {key: newest for key, newest in offered.items() if newest > HIGHEST_VERSION.get(key, -1)} == {}
    if version == KAFKA_4:
        wanted = {key: HIGHEST_VERSION[key] - (key in _UNSTABLE) for key in offered}
        assert offered == wanted, {API_NAMES[key] for key in offered if offered[key] != wanted[key]}


def _offered(port: int) -> dict[int, int]:
    with raw_client(port) as client:
        return {key: newest for key, (_, newest) in client.api_versions().items()}


class _Front(NamedTuple):
    kafka: Kafka
    proxy: Proxy
    cluster_id: str
    ports: dict[str, int]


@pytest.fixture(scope="module")
def front(kafka_4: Kafka) -> Iterator[_Front]:
    """A broker behind a listener of its own, and behind one that rewrites addresses."""
    endpoint, direct = kafka_4.listener(), kafka_4.listener(DIRECT)
    first = free_ports(3)
    broker_port = first + 1 + kafka_4.broker.node_id
    listeners = [
        {"name": "sidecar", "bind": endpoint.advertised_address, "upstream": endpoint.address},
        {
            "name": "cluster",
            "bind": f"127.0.0.1:{first}",
            "bootstrap_servers": direct.address,
            "broker_ports": f"{first + 1}-{broker_port}",
        },
    ]
    with Proxy({"listeners": listeners}) as proxy:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{first}", **QUIET})
        cluster_id = admin.describe_cluster(request_timeout=30).result().cluster_id
        ports = {"direct": direct.port, "sidecar": endpoint.advertised_port, "bootstrap": first, "broker": broker_port}
        yield _Front(kafka_4, proxy, cluster_id, ports)


@pytest.mark.parametrize("where", ["direct", "sidecar", "bootstrap", "broker"])
def test_a_client_that_means_another_broker_is_told_to_start_anew(front: _Front, where: str) -> None:
    """KIP-1242: the broker compares the cluster id and the node id in ApiVersions v5 with its own."""
    own_id, other_id = front.kafka.broker.node_id, front.kafka.broker.node_id + 1
    expected = {
        (None, _ANY_NODE): _NONE,
        (front.cluster_id, own_id): _NONE,
        (front.cluster_id, other_id): _REBOOTSTRAP_REQUIRED,
        ("another-cluster", own_id): _REBOOTSTRAP_REQUIRED,
        ("another-cluster", other_id): _REBOOTSTRAP_REQUIRED,
        # A client that says only one of both gets an error.
        (front.cluster_id, _ANY_NODE): _INVALID_REQUEST,
        (None, own_id): _INVALID_REQUEST,
    }
    with raw_client(front.ports[where]) as client:
        says = {key: _error_of_api_versions(client, *key) for key in expected}
        # The connection stays: after each error, the next request is answered.
        assert client.api_versions()

    assert says == expected
    assert front.proxy.metrics().total(_UNKNOWN) == 0


def _error_of_api_versions(client: RawClient, cluster_id: str | None, node_id: int) -> int:
    no_tags = b"\0"
    body = no_tags + _compact("raw") + _compact("1.0") + _compact(cluster_id) + struct.pack(">i", node_id) + no_tags
    (error_code,) = struct.unpack_from(">h", client.ask(API_VERSIONS, 5, body).body)
    return int(error_code)


def _compact(text: str | None) -> bytes:
    """Encode a compact nullable string of up to 126 bytes."""
    return b"\0" if text is None else bytes([len(text) + 1]) + text.encode()


@pytest.mark.parametrize("where", ["sidecar", "bootstrap"])
def test_the_newest_java_client_sends_nothing_unknown(front: _Front, where: str) -> None:
    """It says which broker it means, in each connection after the first."""
    topic = create_topic(front.kafka)
    address = f"127.0.0.1:{front.ports[where]}"

    client = Java(kafka=front.kafka)
    client.produce(address, topic, client_id=where, count=1_000)
    client.consume(address, topic, client_id=where, count=1_000)

    assert front.proxy.metrics().total("kafka_quota_proxy_frames_total", api="ApiVersions") > 2
    assert front.proxy.metrics().total(_UNKNOWN) == 0
