"""Proof 6: fetches that wait for their quota hold no heartbeat up: no group of any client rebalances."""

import asyncio
import struct
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from tests.end_to_end.support.clients import create_topic, end_offset, run_java_program
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.load import KIB, batch_of
from tests.end_to_end.support.proxy import Proxy

_QUOTA = 28 * KIB
# A broker returns a batch whole, so each fetch is nine times the quota of a second. What a connection waits for it is
# longer than the session's timeout: 8 s and more when paced, up to 18 s with sampled windows.
_BATCH_BYTES = 256 * KIB
_SESSION_TIMEOUT_MS = 6_000  # the least that a broker allows
_HEARTBEAT_MS = 1_000
_GROUPS = ("java", "librdkafka", "aiokafka")

Report = dict[str, int]


@pytest.mark.parametrize(
    ("shape", "seconds"),
    [
        ("paced", 25),
        pytest.param("sampled", 120, marks=pytest.mark.long),
        pytest.param("paced", 120, marks=pytest.mark.long),
    ],
)
def test_a_group_under_a_tight_fetch_quota_does_not_rebalance(kafka_4: Kafka, shape: str, seconds: int) -> None:
    topic = create_topic(kafka_4)
    batch = batch_of(_BATCH_BYTES)
    with raw_client(kafka_4.listener(DIRECT).port) as client:
        for _ in range(40):
            assert client.produce(topic, batch).error_code == 0
    groups = {client_id: f"{client_id}-{topic}" for client_id in _GROUPS}
    rules = [{"client-id": "<default>", "consumer_byte_rate": _QUOTA}]

    with Proxy({"quotas": rules, "shaping": shape}, kafka_4) as proxy, ThreadPoolExecutor(len(_GROUPS)) as pool:
        running = {
            "java": pool.submit(_java_member, kafka_4, proxy.address(), topic, groups["java"], seconds),
            "librdkafka": pool.submit(_librdkafka_member, proxy.address(), topic, groups["librdkafka"], seconds),
            "aiokafka": pool.submit(_aiokafka_member, proxy.address(), topic, groups["aiokafka"], seconds),
        }
        reports = {client_id: report.result() for client_id, report in running.items()}
        metrics = proxy.metrics()

    for client_id, report in reports.items():
        assert (client_id, report["assignments"], report["revocations"]) == (client_id, 1, 0)
        assert report["size_bytes"] > 0, client_id
        waited_s = metrics.total("kafka_quota_proxy_throttle_seconds_total", kind="fetch", client_id=client_id)
        waits = metrics.total("kafka_quota_proxy_throttled_requests_total", kind="fetch", client_id=client_id)
        assert waited_s / waits > _SESSION_TIMEOUT_MS / 1_000, client_id
    # The broker counts too: 1 is the generation of the member that came, 2 that of the empty group after it left.
    assert _generations(kafka_4, groups.values()) == dict.fromkeys(groups.values(), 2)


def _java_member(kafka: Kafka, address: str, topic: str, group: str, seconds: int) -> Report:
    settings = {
        "bootstrap.servers": address,
        "client.id": "java",
        "group.id": group,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": _SESSION_TIMEOUT_MS,
        "heartbeat.interval.ms": _HEARTBEAT_MS,
    }
    pairs = (f"{name}={value}" for name, value in settings.items())
    return run_java_program(kafka, "member", topic, str(seconds), *pairs, timeout_s=seconds + 60)


def _librdkafka_member(address: str, topic: str, group: str, seconds: int) -> Report:
    report = {"assignments": 0, "revocations": 0, "size_bytes": 0}

    def assigned(consumer: object, partitions: object) -> None:
        report["assignments"] += 1

    def revoked(consumer: object, partitions: object) -> None:
        report["revocations"] += 1

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "client.id": "librdkafka",
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": _SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": _HEARTBEAT_MS,
        }
    )
    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for message in consumer.consume(100, timeout=0.2):
            report["size_bytes"] += len(message.value() or b"") if message.error() is None else 0
    final = dict(report)  # closing revokes once more, of its own will
    consumer.close()
    return final


def _aiokafka_member(address: str, topic: str, group: str, seconds: int) -> Report:
    return asyncio.run(_aiokafka_member_until(address, topic, group, seconds))


async def _aiokafka_member_until(address: str, topic: str, group: str, seconds: int) -> Report:
    report = {"assignments": 0, "revocations": 0, "size_bytes": 0}

    class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # the library ships no types
        def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
            report["assignments"] += 1

        def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
            report["revocations"] += len(revoked) > 0  # also called, with nothing, before the first assignment

    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=address,
        client_id="aiokafka",
        group_id=group,
        auto_offset_reset="earliest",
        session_timeout_ms=_SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=_HEARTBEAT_MS,
    )
    consumer.subscribe([topic], listener=Listener())
    async with consumer:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for messages in (await consumer.getmany(timeout_ms=200)).values():
                report["size_bytes"] += sum(len(message.value) for message in messages)
        return dict(report)


def _generations(kafka: Kafka, groups: Collection[str]) -> dict[str, int]:
    """Read from the topic in which a broker keeps its groups how many generations each of them has had.

    A key is int16 version (2: a group) and the group's name; a value int16 version, protocol type, int32 generation.
    """
    found = dict.fromkeys(groups, 0)
    partitions = [
        confluent_kafka.TopicPartition("__consumer_offsets", number, confluent_kafka.OFFSET_BEGINNING)
        for number in range(3)
    ]
    left = sum(end_offset(kafka, "__consumer_offsets", partition=number) for number in range(3))
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "unused"})
    try:
        consumer.assign(partitions)
        deadline = time.monotonic() + 30
        while left:
            assert time.monotonic() < deadline, f"{left} records of __consumer_offsets were not read"
            for message in consumer.consume(1_000, timeout=1):
                left -= 1
                key, value = message.key() or b"", message.value()
                version, length = struct.unpack_from(">hh", key)
                group = key[4 : 4 + length].decode()
                if version == 2 and group in found and value is not None:
                    (type_length,) = struct.unpack_from(">h", value, 2)
                    (generation,) = struct.unpack_from(">i", value, 4 + type_length)
                    found[group] = max(found[group], generation)
    finally:
        consumer.close()
    return found
