"""The table of APIs fits the brokers of each release, and the newest client sends nothing that is not in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final, NamedTuple

import pytest

from kafka_quota_proxy.protocol.api import API_NAMES, HIGHEST_VERSION, ApiKey
from tests.end_to_end.support.artifacts import KAFKA_2_8, KAFKA_3_9, KAFKA_4, KAFKA_4_3
from tests.end_to_end.support.clients import Java, create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.old_kafka import OldKafka
from tests.end_to_end.support.processes import free_ports
from tests.end_to_end.support.proxy import Proxy

# A broker offers the version only if it has `unstable.api.versions.enable`.
_UNSTABLE: Final = {ApiKey.INIT_PRODUCER_ID: 6}
_UNKNOWN: Final = "kafka_quota_proxy_unknown_api_total"


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
        yield _Front(kafka_4, proxy, {"sidecar": endpoint.advertised_port, "bootstrap": first})


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
