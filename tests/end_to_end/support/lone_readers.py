"""Lone consumers of each client library, with its defaults, and the rate at which whole batches reach their program.

``python -m tests.end_to_end.support.lone_readers LIBRARY SECONDS CLIENT_ID,ADDRESS,TOPIC,PARTITIONS...`` runs those of
a Python library, all in one process. ``java/Reads.java`` and ``go/reads.go`` do the same. Each consumer reads all
partitions of its topic from the start. At the end, each has a line on standard output: its client-id, and MS:RECORDS
for each time at which records arrived. Those that arrive within 10 ms count as one.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sys
import tempfile
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple

import aiokafka
import confluent_kafka
from confluent_kafka.admin import AdminClient

from tests.end_to_end.support.artifacts import cache_directory
from tests.end_to_end.support.clients import QUIET, create_topic
from tests.end_to_end.support.frames import PRODUCE, PRODUCE_VERSION, RawClient, produce_body, record_batch
from tests.end_to_end.support.frames import read_produce as read_answer
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.processes import HarnessError, run

JAVA: Final = "java"
LIBRDKAFKA: Final = "librdkafka"
AIOKAFKA: Final = "aiokafka"
FRANZ_GO: Final = "franz-go"
_PROGRAMS: Final = Path(__file__).parents[1]
_ROOT: Final = Path(__file__).parents[3]
_STEP_MS: Final = 10
_STEP_S: Final = 0.1  # between the beginnings of windows
_PATIENCE_S: Final = 60
_PREFILL_AHEAD: Final = 32


class Reader(NamedTuple):
    """A lone consumer: its client library, its client-id, the address that it connects to, and its topic."""

    library: str
    client_id: str
    address: str
    topic: str
    partitions: int


class Arrival(NamedTuple):
    """The number of records that arrived at one time. Each record is a whole batch."""

    at_s: float
    records: int


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


def delete_topics(kafka: Kafka, topics: Iterable[str]) -> None:
    """Delete topics, some of which have gigabytes."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, **QUIET})
    for deleted in admin.delete_topics(list(topics)).values():
        deleted.result(timeout=30)


def _batch_of(size_bytes: int) -> bytes:
    """Return an incompressible batch of one record with exactly this size."""
    empty = len(record_batch([b""]))
    for around in range(empty, empty + 16):  # the sizes before the record's value have one to three bytes each
        batch = record_batch([os.urandom(size_bytes - around)])
        if len(batch) == size_bytes:
            return batch
    raise ValueError(f"no batch has {size_bytes} bytes")


def read(kafka: Kafka, readers: Sequence[Reader], *, seconds: int) -> dict[str, list[Arrival]]:
    """Run all readers at the same time, and return what arrived, by client-id. Raises HarnessError if one fails."""
    libraries = sorted({reader.library for reader in readers})
    with ThreadPoolExecutor(len(libraries)) as pool:
        outputs = pool.map(
            lambda library: _run(kafka, library, [one for one in readers if one.library == library], seconds),
            libraries,
        )
        lines = [line.split() for output in outputs for line in output.splitlines()]
    found = {client_id: [_arrival(word) for word in words] for client_id, *words in lines}
    missing = {reader.client_id for reader in readers} - found.keys()
    if missing:
        raise HarnessError(f"no results of {sorted(missing)}")
    return found


def _arrival(word: str) -> Arrival:
    ms, _, records = word.partition(":")
    return Arrival(int(ms) / 1_000, int(records))


def _run(kafka: Kafka, library: str, readers: Sequence[Reader], seconds: int) -> str:
    cells = [f"{one.client_id},{one.address},{one.topic},{one.partitions}" for one in readers]
    arguments = [str(seconds), *cells]
    timeout_s = seconds + _PATIENCE_S
    if library == JAVA:
        return kafka.run_java(str(_PROGRAMS / "java" / "Reads.java"), *arguments, timeout_s=timeout_s)
    if library == FRANZ_GO:
        return run([go_program(_PROGRAMS / "go"), *arguments], timeout_s=timeout_s)
    module = "tests.end_to_end.support.lone_readers"
    return run([sys.executable, "-m", module, library, *arguments], timeout_s=timeout_s, cwd=_ROOT)


def go_program(folder: Path) -> Path:
    """Return the program of a folder with a Go module, built if necessary. Raises HarnessError if Go is missing."""
    sources = [*sorted(folder.glob("*.go")), folder / "go.mod", folder / "go.sum"]
    digest = hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    program = cache_directory() / f"go-{digest}"
    if not program.exists():
        go = shutil.which("go")
        if go is None:
            raise HarnessError(
                "this test runs a client in Go, and `go` is not installed. Install Go 1.26 or later, for example: "
                "apt-get install golang | dnf install golang | brew install go"
            )
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".go-", dir=program.parent) as draft:
            built = Path(draft) / "program"
            run([go, "build", "-o", built, "."], timeout_s=300, cwd=folder)
            built.rename(program)
    return program


def rate(arrivals: Sequence[Arrival], *, batch_bytes: int, after_s: float, until_s: float, window_s: float) -> float:
    """Return the bytes of whole batches per second: the mean of all windows from ``after_s`` to ``until_s``.

    A window that ends just before a burst has less than one that ends just after it. So the windows should begin over
    a whole cycle of bursts.
    """
    times = [arrival.at_s for arrival in arrivals]
    up_to = [0, *accumulate(arrival.records for arrival in arrivals)]
    starts = [after_s + step * _STEP_S for step in range(int((until_s - window_s - after_s) / _STEP_S) + 1)]
    records = sum(up_to[bisect_left(times, start + window_s)] - up_to[bisect_left(times, start)] for start in starts)
    return records * batch_bytes / len(starts) / window_s


# ---- code of the processes of the Python libraries ----


def _now_ms(begin_s: float) -> int:
    return int((time.monotonic() - begin_s) * 1_000) // _STEP_MS * _STEP_MS


def _librdkafka(readers: Sequence[Reader], begin_s: float, seconds: int) -> dict[str, Counter[int]]:
    seen: dict[str, Counter[int]] = {reader.client_id: Counter() for reader in readers}

    def follow(reader: Reader) -> None:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": reader.address, "client.id": reader.client_id, "group.id": "unused"}
        )
        begin = confluent_kafka.OFFSET_BEGINNING
        consumer.assign([confluent_kafka.TopicPartition(reader.topic, n, begin) for n in range(reader.partitions)])
        while time.monotonic() < begin_s + seconds:
            for message in consumer.consume(1_000, timeout=_STEP_MS / 1_000):
                assert message.error() is None, message.error()
                seen[reader.client_id][_now_ms(begin_s)] += 1
        consumer.close()

    with ThreadPoolExecutor(len(readers)) as pool:
        list(pool.map(follow, readers))
    return seen


async def _aiokafka(readers: Sequence[Reader], begin_s: float, seconds: int) -> dict[str, Counter[int]]:
    seen: dict[str, Counter[int]] = {reader.client_id: Counter() for reader in readers}

    async def follow(reader: Reader) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=reader.address, client_id=reader.client_id, group_id=None, auto_offset_reset="earliest"
        )
        consumer.assign([aiokafka.TopicPartition(reader.topic, number) for number in range(reader.partitions)])
        async with consumer:
            while time.monotonic() < begin_s + seconds:
                for messages in (await consumer.getmany(timeout_ms=100)).values():
                    seen[reader.client_id][_now_ms(begin_s)] += len(messages)

    async with asyncio.TaskGroup() as tasks:
        for reader in readers:
            tasks.create_task(follow(reader))
    return seen


def main() -> None:
    library, seconds, *cells = sys.argv[1:]
    split = [cell.split(",") for cell in cells]
    readers = [Reader(library, client_id, address, topic, int(count)) for client_id, address, topic, count in split]
    begin_s = time.monotonic()
    if library == LIBRDKAFKA:
        seen: Mapping[str, Counter[int]] = _librdkafka(readers, begin_s, int(seconds))
    else:
        seen = asyncio.run(_aiokafka(readers, begin_s, int(seconds)))
    for client_id, counts in seen.items():
        print(client_id, *(f"{ms}:{counts[ms]}" for ms in sorted(counts)))  # noqa: T201


if __name__ == "__main__":
    main()
