"""Consumers that wait for the next record of a partition that hardly ever has one, with their library's defaults."""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Final

import aiokafka
import confluent_kafka

from tests.end_to_end.support.clients import QUIET
from tests.end_to_end.support.frames import FETCH, FETCH_VERSION, RawClient, fetch_body, read_fetch, record_batch
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.processes import wait_until

# Java's defaults: fetch.max.wait.ms and fetch.max.bytes.
MAX_WAIT_S: Final = 0.5
_MAX_BYTES: Final = 50 * 1024 * 1024
_RECONNECT_S: Final = 0.05
_POLL_S: Final = 0.1
_PATIENCE_S: Final = 40
_NEVER: Final = float("inf")


class Reader:
    """A consumer that reads one partition from its start.

    Attributes:
        arrived_s: The time of each record (``time.monotonic``).
        connected_s: The time of the last connect, as far as the reader can see it.
    """

    def __init__(self, port: int, client_id: str, topic: str, partition: int) -> None:
        self.client_id = client_id
        self.partition = partition
        self.arrived_s: list[float] = []
        self.connected_s = 0.0
        self._address = f"127.0.0.1:{port}"
        self._port = port
        self._topic = topic
        self._stopped = threading.Event()

    def run(self) -> None:
        """Read until stopped."""
        raise NotImplementedError

    def stop(self) -> None:
        self._stopped.set()

    def __str__(self) -> str:
        return f"{type(self).__name__} {self.client_id}-{self.partition}"


class RawReader(Reader):
    """One connection that sends a fetch at a time, and connects again when it is closed.

    Attributes:
        told_ms: The throttle times that it was told.
        empty_s: The time that each answer without records took.
    """

    def __init__(self, port: int, client_id: str, topic: str, partition: int) -> None:
        super().__init__(port, client_id, topic, partition)
        self.told_ms: list[int] = []
        self.empty_s: list[float] = []
        self._offset = 0

    def run(self) -> None:
        while not self._stopped.is_set():
            with suppress(OSError, EOFError):
                client = RawClient(self._port, client_id=self.client_id)
                self.connected_s = time.monotonic()
                try:
                    while not self._stopped.is_set():
                        self._fetch(client)
                finally:
                    client.close()
            self._stopped.wait(_RECONNECT_S)

    def _fetch(self, client: RawClient) -> None:
        body = fetch_body(
            self._topic,
            offset=self._offset,
            max_bytes=_MAX_BYTES,
            partition=self.partition,
            max_wait_ms=int(MAX_WAIT_S * 1_000),
        )
        asked_s = time.monotonic()
        answered = client.ask(FETCH, FETCH_VERSION, body).body
        now_s = time.monotonic()
        told_ms, topics = struct.unpack_from(">ii", answered)
        if told_ms:
            self.told_ms.append(told_ms)
        if not topics:  # a broker's answer has the topic, also without records
            self.empty_s.append(now_s - asked_s)
            return
        answer = read_fetch(answered)
        assert answer.error_code == 0, answer.error_code
        if answer.records:
            offset, _ = struct.unpack_from(">qi", answer.records)
            (last,) = struct.unpack_from(">i", answer.records, 23)
            self._offset = offset + last + 1
            self.arrived_s.append(now_s)
        else:
            self.empty_s.append(now_s - asked_s)


class LibrdkafkaReader(Reader):
    def run(self) -> None:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._address, "client.id": self.client_id, "group.id": "unused", **QUIET}
        )
        begin = confluent_kafka.OFFSET_BEGINNING
        consumer.assign([confluent_kafka.TopicPartition(self._topic, self.partition, begin)])
        while not self._stopped.is_set():
            message = consumer.poll(_POLL_S)
            if message is not None and message.error() is None:
                self.arrived_s.append(time.monotonic())
        consumer.close()


class AiokafkaReader(Reader):
    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self._address, client_id=self.client_id, group_id=None, auto_offset_reset="earliest"
        )
        consumer.assign([aiokafka.TopicPartition(self._topic, self.partition)])
        async with consumer:
            while not self._stopped.is_set():
                for messages in (await consumer.getmany(timeout_ms=int(_POLL_S * 1_000))).values():
                    self.arrived_s += [time.monotonic()] * len(messages)


KINDS: Final = (RawReader, LibrdkafkaReader, AiokafkaReader)


@contextmanager
def running(readers: Sequence[Reader]) -> Iterator[None]:
    """Run the readers during a ``with`` block. Raises what a reader raised."""
    with ThreadPoolExecutor(len(readers)) as pool:
        futures = [pool.submit(reader.run) for reader in readers]
        try:
            yield
        finally:
            for reader in readers:
                reader.stop()
        for future in futures:
            future.result()


def round_s(kafka: Kafka, topics: dict[str, str], readers: Sequence[Reader]) -> dict[Reader, float]:
    """Write a record to the partition of each reader. Return for how many seconds each of them waited for it.

    ``topics`` is by client-id. If a reader connects only later, the time counts from then on, as far as it is known.
    """
    batch = record_batch([bytes(100)])
    counts = {reader: len(reader.arrived_s) for reader in readers}
    written_s = {}
    client = RawClient(kafka.listener(DIRECT).port)
    for reader in readers:
        written_s[reader] = time.monotonic()
        assert client.produce(topics[reader.client_id], batch, partition=reader.partition).error_code == 0
    client.close()
    with suppress(Exception):
        wait_until(
            lambda: all(len(reader.arrived_s) > counts[reader] for reader in readers),
            timeout_s=_PATIENCE_S,
            what="each reader has its record",
        )
    return {reader: _waited_s(reader, counts[reader], written_s[reader]) for reader in readers}


def _waited_s(reader: Reader, count: int, written_s: float) -> float:
    if len(reader.arrived_s) <= count:
        return _NEVER
    return reader.arrived_s[count] - max(written_s, reader.connected_s)
