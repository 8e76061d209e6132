"""A group of many consumers, or many producers, of one client library in one process.

``python -m tests.end_to_end.support.many_members {librdkafka|aiokafka} {consume|produce} TOPIC COUNT SECONDS SIZE
KEY=VALUE…`` prints the same JSON object as ``java/Members.java``:

* ``rebalances``: the times (``time.monotonic``) at which a consumer was assigned partitions;
* ``flow``: pairs of a time and the bytes of values that were read, or acknowledged, until then;
* ``errors``: pairs of a time and an error that a client reported or logged;
* ``sent``: the number of records of each producer. Their keys are ``PRODUCER:NUMBER``.

A producer's records have SIZE bytes. A consumer reads the first SIZE records of a partition again and again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import aiokafka
import confluent_kafka
import uvloop

from tests.end_to_end.support.artifacts import java
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.processes import HarnessError, Process, scratch, wait_until
from tests.end_to_end.support.quick_java import compiled

JAVA: Final = "java"
LIBRDKAFKA: Final = "librdkafka"
AIOKAFKA: Final = "aiokafka"
CONSUME: Final = "consume"
PRODUCE: Final = "produce"
_ROOT: Final = Path(__file__).parents[3]
_PROGRAM: Final = Path(__file__).parents[1] / "java" / "Members.java"
_BUFFER_BYTES: Final = 512 * 1024
_EVERY_S: Final = 0.5
_PATIENCE_S: Final = 120
# These classes of Java's client log closed connections and timeouts at info level.
_NEWS: Final = ("NetworkClient", "FetchSessionHandler", "producer.internals.Sender")
_BAD_NEWS: Final = re.compile(r"disconnect|timed out|timeout|cancelled|error|exception|WARN|ERROR", re.IGNORECASE)
# Java's client of Kafka 4.4 warns of each throttle time.
_THROTTLED: Final = re.compile(r"WARN \S+NetworkClient .* is throttled for \d+ ms until")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of all clients, as described above.

    ``errors`` starts with the last assignment of partitions, because some libraries log a warning for each rebalance
    while a group forms.
    """

    rebalances: list[float]
    flow: list[tuple[float, int]]
    errors: list[str]
    sent: list[int]

    def rate(self, from_s: float, to_s: float) -> float:
        """Return the bytes of values per second between two times."""
        return (self._up_to(to_s) - self._up_to(from_s)) / (to_s - from_s)

    def _up_to(self, at_s: float) -> int:
        return max((size for when, size in self.flow if when <= at_s), default=0)


class Members:
    """Runs clients of one library, until the end of the ``with`` block at the latest."""

    def __init__(
        self,
        library: str,
        action: str,
        kafka: Kafka,
        *,
        address: str,
        topic: str,
        client_id: str,
        count: int,
        seconds: int,
        size: int,
    ) -> None:
        self._library = library
        self._kafka = kafka
        settings = {"bootstrap.servers": address, "client.id": client_id}
        if action == CONSUME:
            settings |= {"group.id": f"{client_id}-{topic}", "auto.offset.reset": "earliest"}
        elif library == JAVA:
            settings["buffer.memory"] = str(_BUFFER_BYTES)
        elif library == LIBRDKAFKA:
            settings["queue.buffering.max.kbytes"] = str(_BUFFER_BYTES // 1024)
        pairs = [f"{name}={value}" for name, value in settings.items()]
        self._words = [action, topic, str(count), str(seconds), str(size), *pairs]
        self._seconds = seconds

    def __enter__(self) -> Self:
        self._scratch = scratch("members")
        directory = self._scratch.__enter__()
        command: list[str | Path]
        if self._library == JAVA:
            classes = compiled(_PROGRAM, self._kafka.classpath)
            logs = [f"-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients.{name}=info" for name in _NEWS]
            memory = ["-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
            quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
            command = [java(), *memory, quiet, *logs, "-cp", f"{self._kafka.classpath}:{classes}", _PROGRAM.stem]
        else:
            command = [sys.executable, "-m", "tests.end_to_end.support.many_members", self._library]
        self._process = Process([*command, *self._words], log=directory / "members.log", cwd=_ROOT)
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._scratch.__exit__(None, None, None)

    def report(self) -> Report:
        """Wait until the clients end, and return their report. Raises HarnessError if they fail or do not end."""
        process = self._process
        wait_until(
            lambda: not process.is_running,
            timeout_s=self._seconds + _PATIENCE_S,
            what=f"{self._library} ends",
            poll_s=0.5,
        )
        lines = process.output().splitlines()
        found = [line for line in lines if line.startswith('{"rebalances"')]
        if process.exit_status or not found:
            raise HarnessError(f"{self._library}: exit status {process.exit_status}\n{process.log_tail()}")
        whole = json.loads(found[0])
        logged = [line for line in lines if line != found[0] and _BAD_NEWS.search(line) and not _THROTTLED.search(line)]
        return Report(
            rebalances=whole["rebalances"],
            flow=[(when, size) for when, size in whole["flow"]],
            errors=[text for at_s, text in whole["errors"] if at_s > max(whole["rebalances"], default=0)] + logged,
            sent=whole["sent"],
        )


# ---- code of the client process ----


class _Results:
    """Collects the data that is printed at the end."""

    def __init__(self, count: int, seconds: int) -> None:
        self.end_s = time.monotonic() + seconds
        self.rebalances: list[float] = []
        self.flow: list[tuple[float, int]] = []
        self.errors: list[tuple[float, str]] = []
        self.sent = [0] * count
        self.size_bytes = 0

    def is_over(self) -> bool:
        now_s = time.monotonic()
        if not self.flow or now_s - self.flow[-1][0] >= _EVERY_S:
            self.flow.append((now_s, self.size_bytes))
        return now_s >= self.end_s

    def assigned(self, *_: object) -> None:
        self.rebalances.append(time.monotonic())

    def failed(self, error: object) -> None:
        self.errors.append((time.monotonic(), str(error)))


class _Logged(logging.Handler):
    """Records the warnings and errors that a library logs."""

    def __init__(self, results: _Results) -> None:
        super().__init__(logging.WARNING)
        self._seen = results

    def emit(self, record: logging.LogRecord) -> None:
        self._seen.failed(record.getMessage())


def _librdkafka_consumers(topic: str, records: int, settings: dict[str, Any], results: _Results) -> None:
    consumers = [
        confluent_kafka.Consumer({**settings, "error_cb": results.failed}, logger=logging.getLogger(LIBRDKAFKA))
        for _ in results.sent
    ]
    for consumer in consumers:
        consumer.subscribe([topic], on_assign=results.assigned)
    while not results.is_over():
        for consumer in consumers:
            for message in consumer.consume(500, timeout=0.01):
                if message.error() is not None:
                    results.failed(message.error())
                    continue
                results.size_bytes += len(message.value() or b"")
                if message.offset() == records - 1:
                    consumer.seek(confluent_kafka.TopicPartition(topic, message.partition() or 0, 0))
    for consumer in consumers:
        consumer.close()


def _librdkafka_producers(topic: str, record_bytes: int, settings: dict[str, Any], results: _Results) -> None:
    def delivered(error: object, _: object) -> None:
        if error is not None:
            results.failed(error)
        else:
            results.size_bytes += record_bytes

    logger = logging.getLogger(LIBRDKAFKA)
    producers = [
        confluent_kafka.Producer({**settings, "error_cb": results.failed}, logger=logger) for _ in results.sent
    ]
    value = bytes(record_bytes)
    while not results.is_over():
        for number, producer in enumerate(producers):
            with suppress(BufferError):
                while True:
                    producer.produce(topic, value, f"{number}:{results.sent[number]}", on_delivery=delivered)
                    results.sent[number] += 1
            producer.poll(0.005)
    while any(len(producer) for producer in producers):
        results.is_over()
        for producer in producers:
            producer.poll(0.005)


async def _aiokafka_consumer(topic: str, records: int, settings: dict[str, Any], results: _Results) -> None:
    class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # the library ships no types
        def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
            results.assigned()

        def on_partitions_revoked(self, revoked: Collection[Any]) -> None: ...

    consumer = aiokafka.AIOKafkaConsumer(**settings)
    consumer.subscribe([topic], listener=Listener())
    async with consumer:
        while not results.is_over():
            for partition, messages in (await consumer.getmany(timeout_ms=200)).items():
                results.size_bytes += sum(len(message.value) for message in messages)
                if messages[-1].offset == records - 1:
                    consumer.seek(partition, 0)


async def _aiokafka_producer(
    number: int, topic: str, record_bytes: int, settings: dict[str, Any], results: _Results
) -> None:
    def delivered(done: asyncio.Future[Any]) -> None:
        if done.exception() is not None:
            results.failed(done.exception())
        else:
            results.size_bytes += record_bytes

    value = bytes(record_bytes)
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        while not results.is_over():
            key = f"{number}:{results.sent[number]}".encode()
            (await producer.send(topic, value, key)).add_done_callback(delivered)
            results.sent[number] += 1
        await producer.flush()


async def _aiokafka(action: str, topic: str, size: int, settings: dict[str, Any], results: _Results) -> None:
    names = {name.replace(".", "_"): value for name, value in settings.items()}
    async with asyncio.TaskGroup() as members:
        for number in range(len(results.sent)):
            if action == CONSUME:
                members.create_task(_aiokafka_consumer(topic, size, names, results))
            else:
                members.create_task(_aiokafka_producer(number, topic, size, names, results))


def main() -> None:
    library, action, topic, count, seconds, size, *pairs = sys.argv[1:]
    settings: dict[str, Any] = dict(pair.split("=", 1) for pair in pairs)
    results = _Results(int(count), int(seconds))
    logging.getLogger().addHandler(_Logged(results))
    run: dict[str, Callable[[str, int, dict[str, Any], _Results], None]] = {
        CONSUME: _librdkafka_consumers,
        PRODUCE: _librdkafka_producers,
    }
    if library == LIBRDKAFKA:
        run[action](topic, int(size), settings, results)
    else:
        uvloop.run(_aiokafka(action, topic, int(size), settings, results))
    results.is_over()
    json.dump({name: getattr(results, name) for name in ("rebalances", "flow", "errors", "sent")}, sys.stdout)


if __name__ == "__main__":
    main()
