"""Clients that work until they are stopped, and fail if their application gets an error.

A producer sends 0, 1, 2, … in decimal, a consumer reads a topic again and again, and an administrator creates, extends
and deletes topics. ``java/Refused.java`` does the same with Kafka's own clients.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import aiokafka
import confluent_kafka
import kafka as kafka_python
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as KafkaPythonTopic
from kafka.errors import NodeNotReadyError, ThrottlingQuotaExceededError

# Returns whether to continue. It is called between two steps.
IsWanted = Callable[[], bool]
# address, topic, partition, client_id, is_wanted -> number of acknowledged records
Producer = Callable[[str, str, int, str, IsWanted], int]
# address, topic, client_id, count, is_wanted. It reads partition 0, which has ``count`` records.
Consumer = Callable[[str, str, str, int, IsWanted], None]

_EVERY_S: Final = 0.1
_PATIENCE_S: Final = 120
_BATCH_BYTES: Final = 200


def librdkafka_producer(settings: Mapping[str, str | int | bool]) -> Producer:
    """Return a producer of ``confluent-kafka``. ``settings`` override its defaults."""

    def produce(address: str, topic: str, partition: int, client_id: str, is_wanted: IsWanted) -> int:
        failures: list[object] = []
        acknowledged = 0

        def delivered(error: object, message: object) -> None:
            nonlocal acknowledged
            if error is None:
                acknowledged += 1
            else:
                failures.append(error)

        common = {"bootstrap.servers": address, "client.id": client_id, "batch.num.messages": 50}
        producer = confluent_kafka.Producer({**common, **settings})
        number = 0
        while is_wanted():
            producer.produce(topic, b"%d" % number, partition=partition, on_delivery=delivered)
            producer.poll(_EVERY_S)
            number += 1
        left = producer.flush(_PATIENCE_S)
        assert (left, failures[:3]) == (0, [])
        return acknowledged

    return produce


def kafka_python_producer(settings: Mapping[str, Any]) -> Producer:
    """Return a producer of ``kafka-python``. ``settings`` override its defaults."""

    def produce(address: str, topic: str, partition: int, client_id: str, is_wanted: IsWanted) -> int:
        producer = kafka_python.KafkaProducer(
            bootstrap_servers=[address], client_id=client_id, acks="all", batch_size=_BATCH_BYTES, **settings
        )
        futures: list[Any] = []
        try:
            while is_wanted():
                futures.append(producer.send(topic, b"%d" % len(futures), partition=partition))
                time.sleep(_EVERY_S)
            producer.flush(_PATIENCE_S)
        finally:
            producer.close()
        return len([future.get(timeout=0) for future in futures])

    return produce


def aiokafka_producer(settings: Mapping[str, Any]) -> Producer:
    """Return a producer of ``aiokafka``. ``settings`` override its defaults."""

    async def produce(address: str, topic: str, partition: int, client_id: str, is_wanted: IsWanted) -> int:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=address, client_id=client_id, acks="all", max_batch_size=_BATCH_BYTES, **settings
        )
        futures: list[Any] = []
        async with producer:
            while is_wanted():
                futures.append(await producer.send(topic, b"%d" % len(futures), partition=partition))
                await asyncio.sleep(_EVERY_S)
            return len(await asyncio.gather(*futures))

    return lambda *arguments: asyncio.run(produce(*arguments))


class _Reader:
    """Checks that the records 0 to ``count`` - 1 arrive once each and in order."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._next = 0
        self._deadline = time.monotonic() + _PATIENCE_S

    @property
    def is_done(self) -> bool:
        assert time.monotonic() < self._deadline, f"record {self._next} has not come"
        return self._next == self._count

    def take(self, value: bytes | None, offset: int | None) -> None:
        assert value == b"%d" % self._next, f"expected record {self._next}, got {value!r}"
        assert offset == self._next
        self._next += 1
        self._deadline = time.monotonic() + _PATIENCE_S


def consume_with_librdkafka(address: str, topic: str, client_id: str, count: int, is_wanted: IsWanted) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "client.id": client_id,
            "group.id": "unused",
            "max.partition.fetch.bytes": 1,
        }
    )
    try:
        while is_wanted():
            reader = _Reader(count)
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
            while not reader.is_done and is_wanted():
                for message in consumer.consume(1_000, timeout=0.5):
                    assert message.error() is None, message.error()
                    reader.take(message.value(), message.offset())
    finally:
        consumer.close()


def consume_with_kafka_python(address: str, topic: str, client_id: str, count: int, is_wanted: IsWanted) -> None:
    consumer = kafka_python.KafkaConsumer(
        bootstrap_servers=[address], client_id=client_id, group_id=None, max_partition_fetch_bytes=1
    )
    partition = kafka_python.TopicPartition(topic, 0)
    consumer.assign([partition])
    try:
        while is_wanted():
            reader = _Reader(count)
            consumer.seek_to_beginning(partition)
            while not reader.is_done and is_wanted():
                for messages in consumer.poll(timeout_ms=500).values():
                    for message in messages:
                        reader.take(message.value, message.offset)
    finally:
        consumer.close()


def consume_with_aiokafka(address: str, topic: str, client_id: str, count: int, is_wanted: IsWanted) -> None:
    async def consume() -> None:
        partition = aiokafka.TopicPartition(topic, 0)
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=address, client_id=client_id, group_id=None, max_partition_fetch_bytes=1
        )
        consumer.assign([partition])
        async with consumer:
            while is_wanted():
                reader = _Reader(count)
                await consumer.seek_to_beginning(partition)
                while not reader.is_done and is_wanted():
                    for messages in (await consumer.getmany(timeout_ms=500)).values():
                        for message in messages:
                            reader.take(message.value, message.offset)

    asyncio.run(consume())


def manage_with_librdkafka(address: str, client_id: str, is_wanted: IsWanted) -> int:
    """Create, extend and delete topics until stopped, and return the number of rounds."""
    admin = AdminClient({"bootstrap.servers": address, "client.id": client_id})
    times = 0
    while is_wanted():
        topic = f"{client_id}-{times}"
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(timeout=_PATIENCE_S)
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(timeout=_PATIENCE_S)
        admin.delete_topics([topic])[topic].result(timeout=_PATIENCE_S)
        times += 1
    return times


def manage_with_kafka_python(address: str, client_id: str, is_wanted: IsWanted) -> int:
    """Do the same. The application has to retry, because kafka-python does not."""
    admin = KafkaAdminClient(bootstrap_servers=[address], client_id=client_id)
    times = 0
    try:
        while is_wanted():
            topic = f"{client_id}-{times}"
            _until_admitted(admin.create_topics, [KafkaPythonTopic(topic, 1, 1)])
            _until_admitted(admin.create_partitions, {topic: 2})
            _until_admitted(admin.delete_topics, [topic])
            times += 1
    finally:
        admin.close()
    return times


def _until_admitted(ask: Callable[..., object], wanted: object) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            ask(wanted)
        except (ThrottlingQuotaExceededError, NodeNotReadyError):  # NodeNotReady means that it is throttled
            assert time.monotonic() < deadline, f"{wanted} was never admitted"
            time.sleep(_EVERY_S)
        else:
            return
