"""Producers and members of a group that run until they are stopped, and count what their application would notice.

``java/Records.java`` does the same with Kafka's own clients.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import aiokafka
import confluent_kafka

from tests.end_to_end.support.records import key, value

_PATIENCE_S: Final = 120


class LiveProducer(ABC):
    """Sends the numbered records of ``records.py``, in turn to each partition. ``run`` returns after ``stop``."""

    def __init__(self, address: str, topic: str, *, partitions: int = 1, every_s: float) -> None:
        self.acknowledged: set[int] = set()
        self.failures: list[str] = []
        self.longest_s = 0.0  # from the call that sends a record until its acknowledgement
        self._address = address
        self._topic = topic
        self._partitions = partitions
        self._every_s = every_s
        self._stopped = threading.Event()

    @abstractmethod
    def run(self) -> None:
        """Send until stopped, and wait until each record is acknowledged or has failed."""

    def stop(self) -> None:
        self._stopped.set()

    def _ended(self, number: int, sent_s: float, error: object) -> None:
        self.longest_s = max(self.longest_s, time.monotonic() - sent_s)
        if error is None:
            self.acknowledged.add(number)
        else:
            self.failures.append(f"record {number}: {error!r}")


class LibrdkafkaProducer(LiveProducer):
    """librdkafka with its default settings, but for those that are given. Without ``every_s`` it never pauses.

    ``sent`` is the number of records so far.
    """

    def __init__(
        self,
        address: str,
        topic: str,
        *,
        partitions: int = 1,
        every_s: float = 0,
        settings: Mapping[str, str | int | bool] = {},
    ) -> None:
        super().__init__(address, topic, partitions=partitions, every_s=every_s)
        self.sent = 0
        common = {"bootstrap.servers": address, "client.id": "librdkafka", "error_cb": self._failed, "log_level": 0}
        self._producer = confluent_kafka.Producer({**common, **settings})

    def run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                self._send(self.sent)
                self.sent += 1
            except BufferError:
                self._producer.poll(0.02)
        left = self._producer.flush(_PATIENCE_S)
        if left:
            self.failures.append(f"{left} records were never answered")
        self._producer.close()  # otherwise its threads keep dialling a port that the next test uses

    def _send(self, number: int) -> None:
        sent_s = time.monotonic()

        def delivered(error: object, message: object) -> None:
            self._ended(number, sent_s, error)

        partition = number % self._partitions
        self._producer.produce(self._topic, value(number), key(number), partition=partition, on_delivery=delivered)
        self._producer.poll(0)

    def _failed(self, error: confluent_kafka.KafkaError) -> None:
        # An error that is not fatal, such as a closed connection, is not a failed request.
        if error.fatal():
            self.failures.append(str(error))


class AiokafkaProducer(LiveProducer):
    """aiokafka with its default settings, so without idempotence, and ``acks``."""

    def __init__(self, address: str, topic: str, *, partitions: int = 1, every_s: float, acks: int | str = 1) -> None:
        super().__init__(address, topic, partitions=partitions, every_s=every_s)
        self._acks = acks

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        async with (
            aiokafka.AIOKafkaProducer(
                bootstrap_servers=self._address, client_id="aiokafka", acks=self._acks
            ) as producer,
            asyncio.TaskGroup() as tasks,
        ):
            number = 0
            while not self._stopped.is_set():
                tasks.create_task(self._send(producer, number))
                number += 1
                await asyncio.sleep(self._every_s)

    async def _send(self, producer: aiokafka.AIOKafkaProducer, number: int) -> None:
        sent_s = time.monotonic()
        error: object = None
        try:
            await producer.send_and_wait(self._topic, value(number), key(number), partition=number % self._partitions)
        except aiokafka.errors.KafkaError as refusal:
            error = refusal
        self._ended(number, sent_s, error)


class LibrdkafkaMember:
    """A member of a group, with librdkafka's default settings. It commits once a second."""

    def __init__(self, address: str, topics: Sequence[str], group: str) -> None:
        self.seen: Counter[tuple[str, int, int]] = Counter()  # topic, partition, offset
        self.failures: list[str] = []
        self._address = address
        self._topics = list(topics)
        self._group = group
        self._stopped = threading.Event()

    def run(self) -> None:
        """Read until stopped."""
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._address,
                "client.id": "librdkafka-member",
                "group.id": self._group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 1_000,
                "fetch.min.bytes": 2_000,  # fewer requests, for a machine with few cores
                "error_cb": self._failed,
                "log_level": 0,
            }
        )
        consumer.subscribe(self._topics)
        while not self._stopped.is_set():
            for message in consumer.consume(1_000, timeout=0.2):
                if message.error() is None:
                    self.seen[message.topic() or "", message.partition() or 0, message.offset() or 0] += 1
                else:
                    self.failures.append(str(message.error()))
        consumer.close()

    def stop(self) -> None:
        self._stopped.set()

    def _failed(self, error: confluent_kafka.KafkaError) -> None:
        if error.fatal():
            self.failures.append(str(error))
