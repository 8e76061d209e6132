"""Clients report a throttle time that a test asks for as they report a broker's own throttle of the same length.

A broker throttles each client by its own quota, and the client reports for how long. Then the proxy is asked for the
same times, without a quota.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pytest

from kafka_quota_proxy.testing import ThrottlingProxy
from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.broker_quotas import BrokerQuotas, Entity
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import raw_client, record_batch
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.throttle_reports import Aiokafka, Client, Java, KafkaPython, Librdkafka

_QUOTA: Final = 10_000
# With two samples of a second each, a broker takes 1 to 2 s as the time in which a client has sent its first bytes. A
# throttle time is the bytes divided by the quota, less that time.
_SAMPLES: Final[dict[str, str | int]] = {"quota.window.num": 2, "quota.window.size.seconds": 1}
_PRODUCED_BYTES: Final = (10, 10, 10, 25_000)
_OTHERS: Final = ("librdkafka", "aiokafka", "kafka-python")
_FETCHED_BYTES: Final = 9_700  # a fetch of one is just below the quota, and of two above it


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with Kafka(KAFKA_4, config=_SAMPLES) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def quotas(kafka: Kafka) -> Iterator[BrokerQuotas]:
    with BrokerQuotas(kafka) as quotas:
        yield quotas


@pytest.fixture(scope="module")
def running(kafka: Kafka) -> Iterator[ThrottlingProxy]:
    with ThrottlingProxy(kafka.bootstrap_servers) as proxy:
        yield proxy


@pytest.fixture
def proxy(running: ThrottlingProxy) -> ThrottlingProxy:
    running.reset()
    return running


@pytest.fixture(params=["Java", *(pytest.param(name, marks=pytest.mark.long) for name in _OTHERS)])
def client(request: pytest.FixtureRequest, kafka: Kafka) -> Client:
    clients: dict[str, Client] = {
        "Java": Java(kafka),
        "librdkafka": Librdkafka(),
        "aiokafka": Aiokafka(),
        "kafka-python": KafkaPython(),
    }
    return clients[request.param]


def test_produce_throttles_are_reported_alike(
    kafka: Kafka, quotas: BrokerQuotas, proxy: ThrottlingProxy, client: Client
) -> None:
    topic = create_topic(kafka)
    quotas.replace({Entity(None, topic): {"producer_byte_rate": _QUOTA}})
    theirs = client.produce(kafka.bootstrap_servers, topic, topic, _PRODUCED_BYTES)
    assert 400 < theirs.max_ms < 1_600

    proxy.next(len(_PRODUCED_BYTES) - 1, api="Produce", throttle_time_ms=0)
    proxy.next(1, api="Produce", throttle_time_ms=theirs.max_ms)
    ours = client.produce(proxy.bootstrap_servers, topic, "ours", _PRODUCED_BYTES)

    assert ours == theirs
    assert [one.throttle_time_ms for one in proxy.observed("ours")] == [0, 0, 0, theirs.max_ms]


def test_fetch_throttles_are_reported_alike(
    kafka: Kafka, quotas: BrokerQuotas, proxy: ThrottlingProxy, client: Client
) -> None:
    topic = create_topic(kafka)
    with raw_client(kafka.listener(DIRECT).port) as writer:
        for _ in range(2):
            writer.produce(topic, record_batch([bytes(_FETCHED_BYTES)]))
    quotas.replace({Entity(None, topic): {"consumer_byte_rate": _QUOTA}})
    theirs = client.fetch(kafka.bootstrap_servers, topic, topic, 2)
    assert 10 < theirs.max_ms < 1_100

    wanted_ms = theirs.times_ms or [theirs.max_ms]
    for one_ms in wanted_ms:
        proxy.next(1, api="Fetch", throttle_time_ms=one_ms, client_id="ours")
    ours = client.fetch(proxy.bootstrap_servers, topic, "ours", 2)

    assert ours == theirs
    assert [one.throttle_time_ms for one in proxy.observed("ours")] == wanted_ms


def test_raw_client_gets_the_same_time_and_the_same_silence(
    kafka: Kafka, quotas: BrokerQuotas, proxy: ThrottlingProxy
) -> None:
    topic = create_topic(kafka)
    large, small = record_batch([bytes(_PRODUCED_BYTES[-1])]), record_batch([b"value"])

    def time_and_silence(port: int) -> tuple[int, float]:
        with raw_client(port, client_id=topic) as client:
            told_ms = client.produce(topic, large).throttle_time_ms
            began_s = time.monotonic()
            client.produce(topic, small)
            return told_ms, (time.monotonic() - began_s) * 1_000

    quotas.replace({Entity(None, topic): {"producer_byte_rate": _QUOTA}})
    their_ms, their_silence_ms = time_and_silence(kafka.listener(DIRECT).port)
    quotas.replace({})
    proxy.next(1, api="Produce", throttle_time_ms=their_ms)
    our_ms, our_silence_ms = time_and_silence(int(proxy.bootstrap_servers.rpartition(":")[2]))

    assert our_ms == their_ms > 400
    # The client starts its clock when it has the response, a little later than the other side.
    for silence_ms in (their_silence_ms, our_silence_ms):
        assert their_ms - 50 < silence_ms < their_ms + 300


def test_java_waits_once(kafka: Kafka, proxy: ThrottlingProxy) -> None:
    proxy.next(1, api="Produce", throttle_time_ms=1_500)
    report = Java(kafka).produce(proxy.bootstrap_servers, create_topic(kafka), "ours", (10, 10))

    assert report.max_ms == 1_500
    assert 1_450 < report.last_request_ms < 2_500
