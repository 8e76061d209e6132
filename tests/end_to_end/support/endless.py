"""A producer and a consumer of librdkafka that run until an event is set."""

from __future__ import annotations

import os
import time
from threading import Event
from typing import Final

import confluent_kafka

from tests.end_to_end.support.clients import QUIET
from tests.end_to_end.support.load import KIB, MIB

RECORD_BYTES: Final = 1_000
# A producer's buffer. In the larger default buffer, records of a throttled client expire before they are sent.
BUFFER_BYTES: Final = 4 * MIB


def produce_endlessly(
    address: str,
    topic: str,
    client_id: str,
    end: Event,
    *,
    bytes_a_second: float = 0,
    record_bytes: int = RECORD_BYTES,
) -> None:
    """Write at this rate, or as fast as possible if the rate is 0."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": address,
            "client.id": client_id,
            "queue.buffering.max.kbytes": BUFFER_BYTES // KIB,
            **QUIET,
        }
    )
    record = os.urandom(record_bytes)
    began_s, sent = time.monotonic(), 0
    while not end.is_set():
        if bytes_a_second and sent > (time.monotonic() - began_s) * bytes_a_second:
            producer.poll(0.05)
            continue
        try:
            producer.produce(topic, record)
            sent += len(record)
        except BufferError:
            producer.poll(0.1)
    producer.purge()


def consume_endlessly(address: str, topic: str, client_id: str, end: Event) -> None:
    """Read a topic in a group, as fast as possible."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "client.id": client_id,
            "group.id": client_id,
            "auto.offset.reset": "earliest",
            **QUIET,
        }
    )
    consumer.subscribe([topic])
    while not end.is_set():
        consumer.consume(1_000, timeout=0.5)
    consumer.close()
