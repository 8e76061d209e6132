"""Runs the two clients of the demo: a producer and a consumer, each as fast as it can, or as its quota allows."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

import aiokafka

from kafka_quota_proxy.proxy.cli.demo.measure import Flow
from kafka_quota_proxy.proxy.cli.demo.workload import (
    CONSUMER_CLIENT_ID,
    CONSUMER_TOPIC,
    PRODUCER_CLIENT_ID,
    PRODUCER_TOPIC,
)

# The bytes that Kafka charges in addition to a record's value, for a Produce request v8 and for a Fetch response v11.
# Both have one batch of one record, as aiokafka 0.14 writes and gets them. Their int32 length is not included. A varint
# may make a difference of 1.
PRODUCE_OVERHEAD_BYTES: Final = 132
FETCH_OVERHEAD_BYTES: Final = 147

# Longer than any throttle time (max_throttle_time is 25 s), so that a client does not give up a muted connection.
_REQUEST_TIMEOUT_MS: Final = 60_000
# The mock cluster always waits this long before it answers a fetch at the end of its log.
_FETCH_MAX_WAIT_MS: Final = 50
# An orderly end takes seconds on a muted connection. After this time the client is stopped without one.
_STOP_TIMEOUT_S: Final = 0.2


async def produce(bootstrap: str, *, value_bytes: int, flow: Flow, clock: Callable[[], float]) -> None:
    """Send records with values of ``value_bytes`` until cancelled, and count their bytes in ``flow``.

    Each record is sent after the previous one has been acknowledged. ``clock`` returns the time in seconds.

    Raises:
        KafkaError: A request is refused, or the proxy is unreachable.
    """
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        client_id=PRODUCER_CLIENT_ID,
        max_request_size=2 * value_bytes + 1024,
        request_timeout_ms=_REQUEST_TIMEOUT_MS,
    )
    value = bytes(value_bytes)
    try:
        await producer.start()
        while True:
            await producer.send_and_wait(PRODUCER_TOPIC, value, partition=0)
            flow.record(value_bytes + PRODUCE_OVERHEAD_BYTES, now_s=clock())
    finally:
        await _stop(producer, producer.client)


async def consume(bootstrap: str, *, max_fetch_bytes: int, flow: Flow, clock: Callable[[], float]) -> None:
    """Read the preloaded topic over and over until cancelled, and count the bytes of its records in ``flow``.

    A fetch asks for at most ``max_fetch_bytes``. ``clock`` returns the time in seconds.

    Raises:
        KafkaError: A request is refused, or the proxy is unreachable.
    """
    partition = aiokafka.TopicPartition(CONSUMER_TOPIC, 0)
    # The consumer joins no group, because the mock holds each join for three seconds and no other consumer shares the
    # topic.
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        client_id=CONSUMER_CLIENT_ID,
        request_timeout_ms=_REQUEST_TIMEOUT_MS,
        fetch_max_wait_ms=_FETCH_MAX_WAIT_MS,
        max_partition_fetch_bytes=max_fetch_bytes,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    consumer.assign([partition])
    try:
        await consumer.start()
        (first,) = (await consumer.beginning_offsets([partition])).values()
        (end,) = (await consumer.end_offsets([partition])).values()
        consumer.seek(partition, first)
        while True:
            record = await consumer.getone()
            flow.record(record.serialized_value_size + FETCH_OVERHEAD_BYTES, now_s=clock())
            if record.offset == end - 1:
                consumer.seek(partition, first)
    finally:
        await _stop(consumer, consumer._client)  # noqa: SLF001 - the consumer has no public way to drop a muted connection


async def _stop(client: Any, connections: Any) -> None:  # noqa: ANN401 - aiokafka has no types
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_STOP_TIMEOUT_S):
            await client.stop()
            return
    await connections.close()
