"""Lone consumers of each client library, with its defaults, and how many whole batches reach their program.

Each consumer reads all partitions of its topic from the start. Those of a library share a process.
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


class Reader(NamedTuple):
    """A lone consumer: its client library, its client-id, and its topic."""

    library: str
    client_id: str
    topic: str
    partitions: int


def prefilled(kafka: Kafka, *, batch_bytes: int, partitions: int, size_bytes: int) -> str:
    """Create a topic with this many bytes, in batches of exactly ``batch_bytes``, and return its name.

    Each batch has one record. The batches of a partition are equally many.
    """
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
    return topic


def _batch_of(size_bytes: int) -> bytes:
    """Return an incompressible batch of one record with exactly this size."""
    empty = len(record_batch([b""]))
    for around in range(empty, empty + 16):  # the sizes before the record's value have one to three bytes each
        batch = record_batch([os.urandom(size_bytes - around)])
        if len(batch) == size_bytes:
            return batch
    raise ValueError(f"no batch has {size_bytes} bytes")


def read(kafka: Kafka, readers: Sequence[Reader], address: str, *, seconds: int) -> dict[str, int]:
    """Run all readers at the same time. Return the number of records that each got, by client-id."""
    found: dict[str, int] = {}
    of = {library: [one for one in readers if one.library == library] for library in (JAVA, LIBRDKAFKA, AIOKAFKA)}
    with ThreadPoolExecutor(len(readers) + 2) as pool:
        java = pool.submit(_java, kafka, of[JAVA], address, seconds)
        asyncio_clients = pool.submit(asyncio.run, _aiokafka(of[AIOKAFKA], address, seconds))
        counts = pool.map(lambda reader: _librdkafka(reader, address, seconds), of[LIBRDKAFKA])
        found |= zip((one.client_id for one in of[LIBRDKAFKA]), counts, strict=True)
        return found | java.result() | asyncio_clients.result()


def _java(kafka: Kafka, readers: Sequence[Reader], address: str, seconds: int) -> dict[str, int]:
    cells = [f"{one.client_id},{address},{one.topic},{one.partitions}" for one in readers]
    output = kafka.run_java(str(_READS), str(seconds), *cells, timeout_s=seconds + _PATIENCE_S) if cells else ""
    return {client_id: int(records) for client_id, records in map(str.split, output.splitlines())}


def _librdkafka(reader: Reader, address: str, seconds: int) -> int:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "client.id": reader.client_id, "group.id": "unused"}
    )
    begin = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([confluent_kafka.TopicPartition(reader.topic, n, begin) for n in range(reader.partitions)])
    records, end_s = 0, time.monotonic() + seconds
    while time.monotonic() < end_s:
        for message in consumer.consume(1_000, timeout=0.1):
            assert message.error() is None, message.error()
            records += 1
    consumer.close()
    return records


async def _aiokafka(readers: Sequence[Reader], address: str, seconds: int) -> dict[str, int]:
    end_s = time.monotonic() + seconds

    async def follow(reader: Reader) -> int:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=address, client_id=reader.client_id, group_id=None, auto_offset_reset="earliest"
        )
        consumer.assign([aiokafka.TopicPartition(reader.topic, number) for number in range(reader.partitions)])
        records = 0
        async with consumer:
            while time.monotonic() < end_s:
                records += sum(map(len, (await consumer.getmany(timeout_ms=100)).values()))
        return records

    counts = await asyncio.gather(*map(follow, readers))
    return {reader.client_id: records for reader, records in zip(readers, counts, strict=True)}
