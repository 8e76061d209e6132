"""Kafka client libraries behind one interface, which sends numbered records, or reads and checks them."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import aiokafka
import confluent_kafka
import kafka as kafka_python
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.processes import HarnessError, wait_until
from tests.end_to_end.support.records import Checker, key, value

JAVA_PROGRAM: Final = Path(__file__).parents[1] / "java" / "Records.java"
# While a broker is away, librdkafka prints each refused connection, even of clients that are not in use.
QUIET: Final[dict[str, int]] = {"log_level": 0, "reconnect.backoff.max.ms": 1_000}
_PATIENCE_S: Final = 120


def create_topic(
    kafka: Kafka,
    *,
    partitions: int = 1,
    replicas: Sequence[int] | None = None,
    config: dict[str, str] | None = None,
) -> str:
    """Create a topic with a new name, wait until its partitions are writable, and return the name.

    ``replicas`` are the node ids of each partition, the leader first. By default the cluster chooses.
    """
    topic = f"t-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, **QUIET})
    where = (
        {"replication_factor": min(3, len(kafka.brokers))}
        if replicas is None
        else {"replica_assignment": [list(replicas)] * partitions}
    )
    wanted = NewTopic(topic, partitions, config=config or {}, **where)
    admin.create_topics([wanted])[topic].result(timeout=30)
    # The broker answers CreateTopics before it becomes the leader.
    wait_until(
        lambda: all(_has_leader(kafka, topic, partition) for partition in range(partitions)),
        timeout_s=30,
        what=f"every partition of {topic} has its leader",
    )
    return topic


def _has_leader(kafka: Kafka, topic: str, partition: int) -> bool:
    for broker in kafka.brokers:
        with raw_client(broker.listeners[DIRECT].port) as client:
            if client.fetch(topic, offset=0, max_bytes=1, partition=partition, max_wait_ms=0).error_code == 0:
                return True
    return False


def end_offset(kafka: Kafka, topic: str, *, partition: int = 0) -> int:
    """Ask the broker directly for the end offset of a partition."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "unused", **QUIET})
    until_s = time.monotonic() + 30
    try:
        while True:
            try:
                _, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, partition), timeout=30)
                return int(high)
            except confluent_kafka.KafkaException as error:
                # A new leader does not know the offset until its followers have fetched from it.
                is_new = error.args[0].code() == confluent_kafka.KafkaError.OFFSET_NOT_AVAILABLE
                if not is_new or time.monotonic() > until_s:
                    raise
                time.sleep(0.1)
    finally:
        consumer.close()


def messages(kafka: Kafka, topic: str, *, timeout_s: float = _PATIENCE_S) -> Iterator[confluent_kafka.Message]:
    """Read partition 0 of a topic from its start to its present end, from the brokers themselves."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "unused", **QUIET})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        left = end_offset(kafka, topic)
        deadline = time.monotonic() + timeout_s
        while left:
            assert time.monotonic() < deadline, f"{left} records of {topic} were not read"
            for message in consumer.consume(1_000, timeout=1):
                assert message.error() is None, message.error()
                left -= 1
                yield message
    finally:
        consumer.close()


def numbers(kafka: Kafka, topic: str) -> set[int]:
    """Return the numbers of all records in a topic. Fails if a record's bytes are wrong."""
    found: set[int] = set()
    for message in messages(kafka, topic):
        number = int(message.key() or b"")
        assert message.value() == value(number)
        found.add(number)
    return found


def run_java_program(kafka: Kafka, *arguments: str, timeout_s: float = _PATIENCE_S) -> dict[str, int]:
    """Run ``Records.java`` with the client of the broker's release, and return the JSON object that it prints."""
    out = kafka.run_java(str(JAVA_PROGRAM), *arguments, timeout_s=timeout_s)
    found: dict[str, int] = json.loads(out.splitlines()[-1])
    return found


class Client(Protocol):
    """A client library. Both methods return when all records are acknowledged, or read and checked."""

    def produce(self, address: str, topic: str, *, client_id: str, count: int) -> None:
        """Send records 0 to ``count`` - 1 to partition 0, in order."""

    def consume(self, address: str, topic: str, *, client_id: str, count: int) -> None:
        """Read partition 0 from its start and check each record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """Kafka's own client, of the release that ``kafka`` runs."""

    kafka: Kafka

    def produce(self, address: str, topic: str, *, client_id: str, count: int) -> None:
        settings = [f"bootstrap.servers={address}", f"client.id={client_id}", "batch.size=65536", "linger.ms=5"]
        done = run_java_program(self.kafka, "produce", topic, str(count), *settings)
        assert done["acknowledged"] == count

    def consume(self, address: str, topic: str, *, client_id: str, count: int) -> None:
        settings = [f"bootstrap.servers={address}", f"client.id={client_id}"]
        done = run_java_program(self.kafka, "consume", topic, str(count), *settings)
        assert done["seen"] == count


@dataclass(frozen=True, slots=True, kw_only=True)
class Librdkafka:
    """``confluent-kafka``. ``settings`` override its defaults."""

    settings: Mapping[str, str | int | bool]

    def produce(self, address: str, topic: str, *, client_id: str, count: int) -> None:
        failures: list[object] = []

        def delivered(error: object, message: object) -> None:
            if error is not None:
                failures.append(error)

        producer = confluent_kafka.Producer(
            {"bootstrap.servers": address, "client.id": client_id, "max.in.flight": 1, **self.settings}
        )
        for number in range(count):
            while True:
                try:
                    producer.produce(topic, value(number), key(number), partition=0, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
        left = producer.flush(_PATIENCE_S)
        assert (left, failures[:3]) == (0, [])

    def consume(self, address: str, topic: str, *, client_id: str, count: int) -> None:
        checker = Checker()
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": address, "client.id": client_id, "group.id": "unused", **self.settings}
        )
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
            deadline = time.monotonic() + _PATIENCE_S
            while checker.seen < count:
                _in_time(deadline, checker)
                for message in consumer.consume(1_000, timeout=0.5):
                    if message.error() is not None:
                        raise AssertionError(str(message.error()))
                    checker.take(message.key(), message.value())
        finally:
            consumer.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPython:
    """``kafka-python``. With ``api_version`` it behaves as with a broker of that release."""

    api_version: tuple[int, ...] | None = None

    def _settings(self, address: str, client_id: str) -> dict[str, Any]:
        settings: dict[str, Any] = {"bootstrap_servers": address, "client_id": client_id}
        return settings if self.api_version is None else {**settings, "api_version": self.api_version}

    def produce(self, address: str, topic: str, *, client_id: str, count: int) -> None:
        producer = kafka_python.KafkaProducer(
            **self._settings(address, client_id),
            acks="all",
            batch_size=65_536,
            linger_ms=5,
            enable_idempotence=False,
            max_in_flight_requests_per_connection=1,
        )
        try:
            futures = [producer.send(topic, value(n), key(n), partition=0) for n in range(count)]
            producer.flush(_PATIENCE_S)
            assert all(future.succeeded() for future in futures)
        finally:
            producer.close()

    def consume(self, address: str, topic: str, *, client_id: str, count: int) -> None:
        checker = Checker()
        consumer = kafka_python.KafkaConsumer(
            **self._settings(address, client_id), group_id=None, auto_offset_reset="earliest"
        )
        try:
            partition = kafka_python.TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            deadline = time.monotonic() + _PATIENCE_S
            while checker.seen < count:
                _in_time(deadline, checker)
                for messages in consumer.poll(timeout_ms=500).values():
                    for message in messages:
                        checker.take(message.key, message.value)
        finally:
            consumer.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Aiokafka:
    """``aiokafka``, which uses non-flexible request versions."""

    def produce(self, address: str, topic: str, *, client_id: str, count: int) -> None:
        asyncio.run(self._produce(address, topic, client_id, count))

    def consume(self, address: str, topic: str, *, client_id: str, count: int) -> None:
        asyncio.run(self._consume(address, topic, client_id, count))

    async def _produce(self, address: str, topic: str, client_id: str, count: int) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=address, client_id=client_id, acks="all", max_batch_size=65_536, linger_ms=5
        )
        async with producer, asyncio.timeout(_PATIENCE_S):
            futures = [await producer.send(topic, value(n), key(n), partition=0) for n in range(count)]
            await asyncio.gather(*futures)

    async def _consume(self, address: str, topic: str, client_id: str, count: int) -> None:
        checker = Checker()
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=address, client_id=client_id, group_id=None, auto_offset_reset="earliest"
        )
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        async with consumer, asyncio.timeout(_PATIENCE_S):
            while checker.seen < count:
                for messages in (await consumer.getmany(timeout_ms=500)).values():
                    for message in messages:
                        checker.take(message.key, message.value)


def _in_time(deadline: float, checker: Checker) -> None:
    if time.monotonic() > deadline:
        raise HarnessError(f"only {checker.seen} records arrived within {_PATIENCE_S} s")
