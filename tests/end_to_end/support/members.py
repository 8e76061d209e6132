"""Group members of each client library, which count their rebalances."""

import asyncio
import time
from collections.abc import Collection
from typing import Any, Final

import aiokafka
import confluent_kafka

from tests.end_to_end.support.clients import run_java_program
from tests.end_to_end.support.kafka import Kafka

SESSION_TIMEOUT_MS: Final = 6_000  # the broker's minimum
_HEARTBEAT_MS: Final = 1_000

Report = dict[str, int]


def java_member(kafka: Kafka, address: str, topic: str, group: str, seconds: int) -> Report:
    """Run a member for this time, and return ``assignments``, ``revocations`` and ``size_bytes``."""
    settings = {
        "bootstrap.servers": address,
        "client.id": "java",
        "group.id": group,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": SESSION_TIMEOUT_MS,
        "heartbeat.interval.ms": _HEARTBEAT_MS,
    }
    pairs = (f"{name}={value}" for name, value in settings.items())
    return run_java_program(kafka, "member", topic, str(seconds), *pairs, timeout_s=seconds + 60)


def librdkafka_member(address: str, topic: str, group: str, seconds: int) -> Report:
    """Do the same as ``java_member``."""
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
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": _HEARTBEAT_MS,
        }
    )
    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for message in consumer.consume(100, timeout=0.2):
            report["size_bytes"] += len(message.value() or b"") if message.error() is None else 0
    final = dict(report)  # closing causes one more revocation
    consumer.close()
    return final


def aiokafka_member(address: str, topic: str, group: str, seconds: int) -> Report:
    """Do the same as ``java_member``."""
    return asyncio.run(_until(address, topic, group, seconds))


async def _until(address: str, topic: str, group: str, seconds: int) -> Report:
    report = {"assignments": 0, "revocations": 0, "size_bytes": 0}

    class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # the library ships no types
        def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
            report["assignments"] += 1

        def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
            report["revocations"] += len(revoked) > 0  # the first call has no partitions

    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=address,
        client_id="aiokafka",
        group_id=group,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=_HEARTBEAT_MS,
    )
    consumer.subscribe([topic], listener=Listener())
    async with consumer:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for messages in (await consumer.getmany(timeout_ms=200)).values():
                report["size_bytes"] += sum(len(message.value) for message in messages)
        return dict(report)
