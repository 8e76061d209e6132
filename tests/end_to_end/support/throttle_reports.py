"""What each client library reports of throttle times, by its own metrics, events and log."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import aiokafka
import confluent_kafka
import kafka as kafka_python

from tests.end_to_end.support.kafka import Kafka

_JAVA: Final = Path(__file__).parents[1] / "java" / "Throttles.java"
_PATIENCE_S: Final = 30
_STATISTICS_MS: Final = 100
_DEBUG_LOG: Final = re.compile(r"Response .*: (?:Produce|Fetch)Response_v\d+\(.*\bthrottle_time_ms=(\d+)")
_WARNING: Final = re.compile(r"(?:Produce|Fetch)Response throttled by broker \((\d+) ms\)")


@dataclass
class Report:
    """What a client reports.

    Attributes:
        times_ms: The throttle times above 0 that it tells one by one, in order.
        metrics: Its metrics, by name.
        last_request_ms: The time from the last request of a Java producer to its response.
    """

    times_ms: list[int] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    last_request_ms: float = field(default=0, compare=False)

    @property
    def max_ms(self) -> int:
        """The longest throttle time."""
        return max(self.times_ms, default=0) or int(max(self.metrics.values()))


class Client(Protocol):
    """A client library."""

    def produce(self, address: str, topic: str, client_id: str, sizes_bytes: Sequence[int]) -> Report:
        """Produce a record of each size to partition 0, each by a request of its own."""

    def fetch(self, address: str, topic: str, client_id: str, count: int) -> Report:
        """Read this many records from the start of partition 0, each by a fetch of its own."""


@dataclass(frozen=True)
class Java:
    """Kafka's own client, of the release that ``kafka`` runs. It tells no single times."""

    kafka: Kafka

    def produce(self, address: str, topic: str, client_id: str, sizes_bytes: Sequence[int]) -> Report:
        return self._run("produce", address, topic, client_id, *map(str, sizes_bytes))

    def fetch(self, address: str, topic: str, client_id: str, count: int) -> Report:
        return self._run("fetch", address, topic, client_id, str(count))

    def _run(self, *arguments: str) -> Report:
        out = self.kafka.run_java(str(_JAVA), *arguments, timeout_s=60)
        metrics = json.loads(out.splitlines()[-1])
        return Report(last_request_ms=metrics.pop("last_request_ms"), metrics=metrics)


class Librdkafka:
    """``confluent-kafka``, with its throttle events, and the window ``throttle`` of the broker in its statistics."""

    def produce(self, address: str, topic: str, client_id: str, sizes_bytes: Sequence[int]) -> Report:
        report = Report()
        producer = confluent_kafka.Producer(self._settings(address, client_id, report))
        for size in sizes_bytes:
            producer.produce(topic, bytes(size), partition=0)
            assert producer.flush(_PATIENCE_S) == 0
        end_s = time.monotonic() + 3 * _STATISTICS_MS / 1_000
        while time.monotonic() < end_s:
            producer.poll(_STATISTICS_MS / 1_000)
        return report

    def fetch(self, address: str, topic: str, client_id: str, count: int) -> Report:
        report = Report()
        settings = self._settings(address, client_id, report)
        # fetch.max.bytes must not be below message.max.bytes, but a partition's limit may.
        consumer = confluent_kafka.Consumer({**settings, "group.id": "unused", "max.partition.fetch.bytes": 1})
        with closing(consumer):
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
            for _ in range(count):
                message = consumer.poll(_PATIENCE_S)
                assert message is not None
                assert message.error() is None
            consumer.poll(3 * _STATISTICS_MS / 1_000)
        return report

    def _settings(self, address: str, client_id: str, report: Report) -> dict[str, Any]:
        metrics = report.metrics = {"cnt": 0, "sum": 0, "min": float("inf"), "max": 0}

        def keep(text: str) -> None:
            for window in (broker["throttle"] for broker in json.loads(text)["brokers"].values()):
                if window["cnt"]:
                    metrics["cnt"] += window["cnt"]
                    metrics["sum"] += window["sum"]
                    metrics["min"] = min(metrics["min"], window["min"])
                    metrics["max"] = max(metrics["max"], window["max"])

        def throttled(event: confluent_kafka.ThrottleEvent) -> None:
            if event.throttle_time:
                report.times_ms.append(round(event.throttle_time * 1_000))

        return {
            "bootstrap.servers": address,
            "client.id": client_id,
            "throttle_cb": throttled,
            "stats_cb": keep,
            "statistics.interval.ms": _STATISTICS_MS,
        }


class KafkaPython:
    """``kafka-python``, with its metrics, and its warning for each throttled response."""

    def produce(self, address: str, topic: str, client_id: str, sizes_bytes: Sequence[int]) -> Report:
        with _log("kafka.net.connection", logging.WARNING, _WARNING) as report:
            producer = kafka_python.KafkaProducer(bootstrap_servers=address, client_id=client_id)
            with closing(producer):
                for size in sizes_bytes:
                    producer.send(topic, bytes(size), partition=0).get(_PATIENCE_S)
                report.metrics["throttle-time-max"] = producer.metrics()["producer-metrics"]["throttle-time-max"]
        return report

    def fetch(self, address: str, topic: str, client_id: str, count: int) -> Report:
        with _log("kafka.net.connection", logging.WARNING, _WARNING) as report:
            consumer = kafka_python.KafkaConsumer(
                bootstrap_servers=address, client_id=client_id, max_partition_fetch_bytes=1
            )
            with closing(consumer):
                partition = kafka_python.TopicPartition(topic, 0)
                consumer.assign([partition])
                consumer.seek_to_beginning(partition)
                for _ in range(count):
                    next(consumer)
                report.metrics["throttle-time-max"] = consumer.metrics()["consumer-metrics"]["throttle-time-max"]
        return report


class Aiokafka:
    """``aiokafka``. It reports throttle times only within the responses that it logs on the level DEBUG."""

    def produce(self, address: str, topic: str, client_id: str, sizes_bytes: Sequence[int]) -> Report:
        async def send() -> None:
            async with aiokafka.AIOKafkaProducer(bootstrap_servers=address, client_id=client_id) as producer:
                for size in sizes_bytes:
                    await producer.send_and_wait(topic, bytes(size), partition=0)

        with _log("aiokafka.conn", logging.DEBUG, _DEBUG_LOG) as report:
            asyncio.run(send())
        return report

    def fetch(self, address: str, topic: str, client_id: str, count: int) -> Report:
        async def read() -> None:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=address, client_id=client_id, max_partition_fetch_bytes=1
            )
            async with consumer:
                partition = aiokafka.TopicPartition(topic, 0)
                consumer.assign([partition])
                consumer.seek(partition, 0)
                for _ in range(count):
                    await asyncio.wait_for(consumer.getone(), _PATIENCE_S)

        with _log("aiokafka.conn", logging.DEBUG, _DEBUG_LOG) as report:
            asyncio.run(read())
        return report


@contextmanager
def _log(name: str, level: int, wanted: re.Pattern[str]) -> Iterator[Report]:
    """Read the throttle times from a log."""
    report = Report()

    class Reader(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if (found := wanted.search(record.getMessage())) and int(found[1]):
                report.times_ms.append(int(found[1]))

    logger, reader = logging.getLogger(name), Reader()
    before = logger.level
    logger.setLevel(level)
    logger.addHandler(reader)
    try:
        yield report
    finally:
        logger.removeHandler(reader)
        logger.setLevel(before)
