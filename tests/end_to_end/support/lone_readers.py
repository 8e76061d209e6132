"""Lone consumers of each client library, with its defaults, and how long they take to read a topic.

Each consumer reads all partitions of its topic, from the start to the end. Those of a library share a process.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

import aiokafka
import confluent_kafka

from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import PRODUCE, PRODUCE_VERSION, RawClient, produce_body, record_batch
from tests.end_to_end.support.frames import read_produce as read_answer
from tests.end_to_end.support.kafka import DIRECT, Kafka

JAVA: Final = "java"
LIBRDKAFKA: Final = "librdkafka"
AIOKAFKA: Final = "aiokafka"
_READS: Final = Path(__file__).parents[1] / "java" / "Reads.java"
_PATIENCE_S: Final = 60
_PREFILL_AHEAD: Final = 32


class Topic(NamedTuple):
    """A topic whose batches have one record each, and are equally many in each partition."""

    name: str
    partitions: int
    records: int


class Reader(NamedTuple):
    """A lone consumer: its client library, its client-id, and its topic."""

    library: str
    client_id: str
    topic: Topic


def prefilled(kafka: Kafka, *, batch_bytes: int, partitions: int, size_bytes: int) -> Topic:
    """Create a topic with this many bytes or a few more, in batches of exactly ``batch_bytes``."""
    topic = create_topic(kafka, partitions=partitions)
    batch = _batch_of(batch_bytes)
    bodies = [produce_body(topic, batch, acks=1, partition=number) for number in range(partitions)]
    count = (size_bytes // batch_bytes // partitions + 1) * partitions
    client = RawClient(kafka.listener(DIRECT).port, client_id="prefill")
    for number in range(count + _PREFILL_AHEAD):
        if number < count:
            client.send(PRODUCE, PRODUCE_VERSION, bodies[number % partitions])
        if number >= _PREFILL_AHEAD:
            error_code = read_answer(client.receive().body).error_code
            assert error_code == 0, error_code
    client.close()
    return Topic(topic, partitions, count)


def _batch_of(size_bytes: int) -> bytes:
    """Return an incompressible batch of one record with exactly this size."""
    empty = len(record_batch([b""]))
    for around in range(empty, empty + 16):  # the sizes before the record's value have one to three bytes each
        batch = record_batch([os.urandom(size_bytes - around)])
        if len(batch) == size_bytes:
            return batch
    raise ValueError(f"no batch has {size_bytes} bytes")


def read(kafka: Kafka, readers: Sequence[Reader], address: str, *, within_s: int) -> dict[str, float]:
    """Run all readers at the same time. Return the seconds that each took, by client-id.

    Raises:
        Exception: If one of them has not read its topic within ``within_s`` seconds.
    """
    of = {library: [one for one in readers if one.library == library] for library in (JAVA, LIBRDKAFKA, AIOKAFKA)}
    with ThreadPoolExecutor(len(readers) + 2) as pool:
        java = pool.submit(_java, kafka, of[JAVA], address, within_s)
        asyncio_clients = pool.submit(asyncio.run, _aiokafka(of[AIOKAFKA], address, within_s))
        took = pool.map(lambda reader: _librdkafka(reader, address, within_s), of[LIBRDKAFKA])
        found = dict(zip((one.client_id for one in of[LIBRDKAFKA]), took, strict=True))
        return found | java.result() | asyncio_clients.result()


def _java(kafka: Kafka, readers: Sequence[Reader], address: str, within_s: int) -> dict[str, float]:
    cells = [f"{one.client_id},{address},{','.join(map(str, one.topic))}" for one in readers]
    output = kafka.run_java(str(_READS), str(within_s), *cells, timeout_s=within_s + _PATIENCE_S) if cells else ""
    return {client_id: float(seconds) for client_id, seconds in map(str.split, output.splitlines())}


def _librdkafka(reader: Reader, address: str, within_s: int) -> float:
    topic = reader.topic
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "client.id": reader.client_id, "group.id": "unused"}
    )
    begin = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([confluent_kafka.TopicPartition(topic.name, number, begin) for number in range(topic.partitions)])
    left, begin_s = topic.records, time.monotonic()
    while left:
        assert time.monotonic() < begin_s + within_s, f"{reader} has {left} records left"
        for message in consumer.consume(min(left, 1_000), timeout=0.1):
            assert message.error() is None, message.error()
            left -= 1
    took_s = time.monotonic() - begin_s
    consumer.close()
    return took_s


async def _aiokafka(readers: Sequence[Reader], address: str, within_s: int) -> dict[str, float]:
    async def follow(reader: Reader) -> float:
        topic = reader.topic
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=address, client_id=reader.client_id, group_id=None, auto_offset_reset="earliest"
        )
        consumer.assign([aiokafka.TopicPartition(topic.name, number) for number in range(topic.partitions)])
        left, begin_s = topic.records, time.monotonic()
        async with consumer, asyncio.timeout(within_s):
            while left:
                left -= sum(map(len, (await consumer.getmany(timeout_ms=100)).values()))
            return time.monotonic() - begin_s

    took = await asyncio.gather(*map(follow, readers))
    return {reader.client_id: seconds for reader, seconds in zip(readers, took, strict=True)}
