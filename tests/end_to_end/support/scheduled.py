"""Runs loads by a fixed schedule, all from the same moment. A throttled client sends later than scheduled."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import aiokafka
import confluent_kafka

from tests.end_to_end.support.clients import QUIET, create_topic
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.processes import HarnessError, scratch

RECORD_BYTES: Final = 10_000
JAVA_PROGRAM: Final = Path(__file__).parents[1] / "java" / "Scheduled.java"
# On a busy machine a Java client takes seconds to connect.
_HEAD_START_S: Final = 10
# The timeout of requests, longer than any throttle time.
_PATIENCE_S: Final = 300
_POLL_S: Final = 0.01


class Due(NamedTuple):
    """A number of records that are due ``at_s`` seconds after the start."""

    at_s: float
    records: int


def every(tick_s: float, seconds: float, records_per_second: Callable[[float], float]) -> list[Due]:
    """Return the schedule of a rate that varies over time. Each tick has a whole number of records."""
    found, left = list[Due](), 0.0
    for tick in range(round(seconds / tick_s)):
        at_s = round(tick * tick_s, 3)
        left += records_per_second(at_s) * tick_s
        whole = int(left + 1e-9)
        left -= whole
        if whole:
            found.append(Due(at_s, whole))
    return found


class Start(NamedTuple):
    """The start of all loads, on the monotonic and on the wall clock."""

    monotonic_s: float
    wall_ms: int

    @property
    def age_s(self) -> float:
        """Return the seconds since the start, negative before it."""
        return time.monotonic() - self.monotonic_s


# When each record was acknowledged, or read, in seconds after the start.
Passed = list[float]


class Client(Protocol):
    """A client of some library. ``run`` executes a schedule, and returns when all records have passed."""

    def run(self, address: str, topic: str, client_id: str, schedule: Sequence[Due], start: Start) -> Passed:
        """Produce to partition 0 of a topic, or consume from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Librdkafka:
    """A producer, or several that take turns. Each has a connection of its own."""

    settings: Mapping[str, str | int]
    connections: int = 1

    def run(self, address: str, topic: str, client_id: str, schedule: Sequence[Due], start: Start) -> Passed:
        passed: Passed = []
        failures: list[object] = []

        def delivered(error: object, message: object) -> None:
            if error is None:
                passed.append(start.age_s)
            else:
                failures.append(error)

        settings = {
            "bootstrap.servers": address, "client.id": client_id, "message.timeout.ms": 1_000 * _PATIENCE_S,
            "socket.timeout.ms": 1_000 * _PATIENCE_S, "queue.buffering.max.kbytes": 1_000_000, **QUIET, **self.settings,
        }  # fmt: skip
        producers = [confluent_kafka.Producer(settings) for _ in range(self.connections)]
        for producer in producers:
            producer.list_topics(topic, timeout=30)
        sent, value = 0, bytes(RECORD_BYTES)
        for due in schedule:
            while start.age_s < due.at_s:
                for producer in producers:
                    producer.poll(_POLL_S / len(producers))
            for _ in range(due.records):
                producers[sent % len(producers)].produce(topic, value, partition=0, on_delivery=delivered)
                sent += 1
        while any(len(producer) for producer in producers) and start.age_s < schedule[-1].at_s + _PATIENCE_S:
            for producer in producers:
                producer.poll(_POLL_S / len(producers))
        assert (len(passed), failures[:3]) == (sent, [])
        return passed


@dataclass(frozen=True, slots=True, kw_only=True)
class LibrdkafkaConsumer:
    """A consumer that reads due records as fast as it can, and prefetches little."""

    fetch_bytes: int

    def run(self, address: str, topic: str, client_id: str, schedule: Sequence[Due], start: Start) -> Passed:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address, "client.id": client_id, "group.id": "unused", **QUIET,
                "enable.auto.commit": False, "queued.min.messages": 1, "fetch.queue.backoff.ms": 5,
                "max.partition.fetch.bytes": self.fetch_bytes, "socket.timeout.ms": 1_000 * _PATIENCE_S,
            }
        )  # fmt: skip
        passed: Passed = []
        wanted = 0
        try:
            consumer.list_topics(topic, timeout=30)
            time.sleep(max(0, -start.age_s))
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
            for due in schedule:
                time.sleep(max(0, due.at_s - start.age_s))
                wanted += due.records
                while len(passed) < wanted:
                    for message in consumer.consume(min(wanted - len(passed), 10), timeout=1):
                        assert message.error() is None, message.error()
                        passed.append(start.age_s)
                    assert start.age_s < schedule[-1].at_s + _PATIENCE_S, f"{len(passed)} of {wanted} were read"
        finally:
            consumer.close()
        return passed


@dataclass(frozen=True, slots=True, kw_only=True)
class Aiokafka:
    """A producer with a maximum batch size."""

    batch_bytes: int

    def run(self, address: str, topic: str, client_id: str, schedule: Sequence[Due], start: Start) -> Passed:
        return asyncio.run(self._run(address, topic, client_id, schedule, start))

    async def _run(self, address: str, topic: str, client_id: str, schedule: Sequence[Due], start: Start) -> Passed:
        passed: Passed = []
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=address, client_id=client_id, acks=1, max_batch_size=self.batch_bytes,
            max_request_size=2 * self.batch_bytes, request_timeout_ms=1_000 * _PATIENCE_S,
        )  # fmt: skip
        futures, value = [], bytes(RECORD_BYTES)
        async with producer, asyncio.timeout(schedule[-1].at_s + _PATIENCE_S):
            await producer.partitions_for(topic)
            for due in schedule:
                await asyncio.sleep(max(0, due.at_s - start.age_s))
                for _ in range(due.records):
                    future = await producer.send(topic, value, partition=0)
                    future.add_done_callback(lambda _: passed.append(start.age_s))
                    futures.append(future)
            await asyncio.gather(*futures)
        return passed


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """Kafka's own producer, of the release that ``kafka`` runs."""

    kafka: Kafka
    settings: Mapping[str, str | int]

    def run(self, address: str, topic: str, client_id: str, schedule: Sequence[Due], start: Start) -> Passed:
        settings = {
            "bootstrap.servers": address, "client.id": client_id, "delivery.timeout.ms": 1_000 * _PATIENCE_S,
            "request.timeout.ms": 1_000 * _PATIENCE_S // 2, "max.block.ms": 1_000 * _PATIENCE_S,
            "buffer.memory": 64_000_000, **self.settings,
        }  # fmt: skip
        with scratch("schedule") as directory:
            file = directory / "schedule"
            file.write_text("".join(f"{round(due.at_s * 1_000)} {due.records}\n" for due in schedule))
            out = self.kafka.run_java(
                str(JAVA_PROGRAM), topic, str(RECORD_BYTES), str(start.wall_ms), file,
                *(f"{key}={value}" for key, value in settings.items()), timeout_s=2 * _PATIENCE_S,
            )  # fmt: skip
        return [at_ms / 1_000 for at_ms in json.loads(out.splitlines()[-1])]


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one client-id."""

    client_id: str
    kind: str  # produce or fetch
    client: Client
    schedule: Sequence[Due]

    @property
    def records(self) -> int:
        """Return the number of records in the schedule."""
        return sum(due.records for due in self.schedule)


def topics_of(kafka: Kafka, loads: Sequence[Load]) -> dict[str, str]:
    """Create a topic for each load. If the load is a consumer, the topic gets the records that it will read."""
    topics = {load.client_id: create_topic(kafka) for load in loads}
    for load in loads:
        if load.kind == "fetch":
            filler = Librdkafka(settings={"batch.size": 5 * RECORD_BYTES})
            start = Start(time.monotonic(), 0)
            topic, address = topics[load.client_id], kafka.listener(DIRECT).address
            filler.run(address, topic, "filler", [Due(0, load.records + 500)], start)
    return topics


def run_all(
    loads: Sequence[Load], address: str, topics: Mapping[str, str], *, head_start_s: int = _HEAD_START_S
) -> tuple[Start, dict[str, Passed]]:
    """Run all loads at the same time. Returns the start and the results. Raises HarnessError if a client was late.

    Clients have ``head_start_s`` to connect.
    """
    # Loads start on a full second, like the intervals of a usage log.
    now_ms = time.time_ns() // 1_000_000
    wait_ms = 1_000 * head_start_s - now_ms % 1_000
    start = Start(time.monotonic() + wait_ms / 1_000, now_ms + wait_ms)
    with ThreadPoolExecutor(len(loads)) as pool:
        running = {
            load.client_id: pool.submit(
                load.client.run, address, topics[load.client_id], load.client_id, load.schedule, start
            )
            for load in loads
        }
        passed = {client_id: one.result() for client_id, one in running.items()}
    for load in loads:
        late_s = passed[load.client_id][0] - load.schedule[0].at_s
        if late_s > 1:
            raise HarnessError(f"{load.client_id} began {late_s:.1f} s late")
    return start, passed
