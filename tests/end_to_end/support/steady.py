"""Clients with a steady rate, and a watch over in-sync replicas, while partitions move."""

from __future__ import annotations

import statistics
import threading
import time
from types import TracebackType
from typing import Final, NamedTuple, Self

import confluent_kafka
from confluent_kafka.admin import AdminClient

from tests.end_to_end.support.clients import QUIET
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.watch import Watch

_RECORD_BYTES: Final = 1_000
_PATIENCE_S: Final = 60


class Latency(NamedTuple):
    """The time of a record from when it was due until it was acknowledged, or read."""

    due_s: float  # time.monotonic
    took_s: float


class SteadyClients:
    """A producer with acks=all and a consumer of the same topic, at a fixed rate, in a ``with`` block."""

    def __init__(self, kafka: Kafka, topic: str, *, records_per_second: float) -> None:
        self.acknowledged: list[Latency] = []
        self.read: list[Latency] = []
        self.failures: list[str] = []
        self._settings: dict[str, str | int | float | bool] = {"bootstrap.servers": kafka.bootstrap_servers, **QUIET}
        self._topic = topic
        self._interval_s = 1 / records_per_second
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]

    def __enter__(self) -> Self:
        self._consumer = self._at_the_end()
        for thread in self._threads:
            thread.start()
        self.go_on()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop both clients, the consumer after it has read everything."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def go_on(self, records: int = 20) -> None:
        """Wait until this many more records are acknowledged and read."""
        sent, read = len(self.acknowledged) + records, len(self.read) + records
        wait_until(
            lambda: len(self.acknowledged) >= sent and len(self.read) >= read,
            timeout_s=_PATIENCE_S,
            what="a producer and a consumer go on",
        )

    def _produce(self) -> None:
        producer = confluent_kafka.Producer({**self._settings, "acks": "all", "linger.ms": 0})

        def delivered(error: object, message: confluent_kafka.Message) -> None:
            if error is None:
                self.acknowledged.append(_latency(message))
            else:
                self.failures.append(str(error))

        due_s = time.monotonic()
        while not self._is_over.is_set():
            while (left_s := due_s - time.monotonic()) > 0:
                producer.poll(left_s)
            producer.produce(self._topic, (b"%r " % due_s).ljust(_RECORD_BYTES, b"."), on_delivery=delivered)
            due_s += self._interval_s
        if producer.flush(_PATIENCE_S):
            self.failures.append("not everything was delivered")

    def _consume(self) -> None:
        consumer = self._consumer
        while not (self._is_over.is_set() and self._has_read_all()) and not self.failures:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.read.append(_latency(message))
        consumer.close()

    def _has_read_all(self) -> bool:
        return not self._threads[0].is_alive() and len(self.read) >= len(self.acknowledged)

    def _at_the_end(self) -> confluent_kafka.Consumer:
        """Return a consumer that starts at the end, because the topic may have gigabytes."""
        consumer = confluent_kafka.Consumer({**self._settings, "group.id": "unused", "enable.auto.commit": False})
        found = consumer.list_topics(self._topic, timeout=30).topics[self._topic].partitions
        places = [confluent_kafka.TopicPartition(self._topic, number) for number in found]
        for place in places:
            place.offset = consumer.get_watermark_offsets(place, timeout=30)[1]
        consumer.assign(places)
        return consumer


def p99_ms(latencies: list[Latency], *, since_s: float) -> float:
    """Return the 99th percentile of the latencies of records that were due from a time on, in ms."""
    took = [one.took_s for one in latencies if one.due_s >= since_s]
    return statistics.quantiles(took, n=100)[98] * 1_000


def is_in_sync(kafka: Kafka, topic: str) -> bool:
    """Return whether all replicas of a topic are in sync."""
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, **QUIET})
    partitions = client.list_topics(topic, timeout=30).topics[topic].partitions.values()
    return all(len(one.isrs) == len(one.replicas) for one in partitions)


def _latency(message: confluent_kafka.Message) -> Latency:
    due_s = float((message.value() or b"").split(b" ", 1)[0])
    return Latency(due_s, time.monotonic() - due_s)


class SyncWatch(Watch):
    """Collects topics with replicas out of sync, sampled ten times a second in a ``with`` block."""

    def __init__(self, kafka: Kafka) -> None:
        super().__init__()
        self.under_replicated: set[str] = set()
        self._client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, **QUIET})

    def _look(self) -> None:
        for name, topic in self._client.list_topics(timeout=30).topics.items():
            if any(len(one.isrs) < len(one.replicas) for one in topic.partitions.values()):
                self.under_replicated.add(name)
