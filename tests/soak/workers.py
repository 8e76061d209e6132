"""The Python libraries in a soak, each client in a process of its own.

``python -m tests.soak.workers LIBRARY produce|consume ADDRESS TOPIC CLIENT_ID STOP_FILE`` runs until the file exists.
``LIBRARY`` may be ``visitors``: short-lived clients of librdkafka, which come and go.

Each line of standard output is a JSON object with the Unix time ``t``:

* each second ``records`` and ``bytes``, acknowledged or read so far;
* of a consumer ``jump``, ``fault`` and ``again_at``, as in ``records.Notes``;
* ``error``, for a record or a visit that failed;
* at last ``end``, with ``sent`` and ``unacknowledged`` of a producer, ``next`` (the offset) of a consumer.

The number of unacknowledged records is bounded, so a throttled producer waits in ``send``.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple

import aiokafka
import confluent_kafka
import kafka as kafka_python

from tests.end_to_end.support.clients import QUIET
from tests.end_to_end.support.frames import API_VERSIONS, raw_client, request
from tests.soak.clients import VISITOR_IDS
from tests.soak.records import VALUE_BYTES, Notes, key, value

_AHEAD: Final = 200
_PAUSE_S: Final = 0.02
_LINGER_MS: Final = 5
_PATIENCE_S: Final = 900
_CLOSE_S: Final = 150
_VISIT_EVERY_S: Final = 4
_VISIT_RECORDS: Final = 10


class Settings(NamedTuple):
    address: str
    topic: str
    client_id: str
    stop: Path

    @property
    def is_over(self) -> bool:
        return self.stop.exists()


def say(**fields: object) -> None:
    print(json.dumps({"t": time.time(), **fields}), flush=True)  # noqa: T201 - the output is the protocol


class Report:
    """Says each second how much was acknowledged or read."""

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        threading.Thread(target=self._say_each_second, daemon=True).start()

    def _say_each_second(self) -> None:
        while True:
            time.sleep(1)
            say(records=self.records, bytes=self.bytes)


class Sending(Report):
    """The records that a producer sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0
        self._answered = 0
        self._left: set[int] = set()

    @property
    def is_full(self) -> bool:
        """Return whether so many records are on their way that the producer should wait."""
        return self.sent - self._answered >= _AHEAD

    def next_number(self) -> int:
        number, self.sent = self.sent, self.sent + 1
        self._left.add(number)
        return number

    def done(self, number: int, error: object) -> None:
        """Note the answer to a record. A failed one stays unacknowledged."""
        self._answered += 1
        if error is None:
            self._left.discard(number)
            self.records += 1
            self.bytes += len(key(number)) + VALUE_BYTES
        else:
            say(error=f"record {number}: {error!r}"[:300])

    def end(self) -> None:
        say(end=True, records=self.records, bytes=self.bytes, sent=self.sent, unacknowledged=sorted(self._left))


class Reading(Report):
    """The records that a consumer read."""

    def __init__(self) -> None:
        super().__init__()
        self._notes = Notes()
        self._was_new = True

    def take(self, offset: int | None, got_key: bytes | None, got_value: bytes | None) -> None:
        is_new = self._notes.take(offset or 0, got_key, got_value)
        if not is_new and self._was_new:
            say(again_at=offset)
        self._was_new = is_new
        self.records = self._notes.read
        self.bytes += len(got_key or b"") + len(got_value or b"")
        for jump in self._notes.jumps:
            say(jump=jump)
        for fault in self._notes.faults:
            say(fault=fault)
        self._notes.jumps.clear()
        self._notes.faults.clear()

    def end(self) -> None:
        notes = self._notes
        say(end=True, records=notes.read, bytes=self.bytes, again=notes.again, next=notes.next_offset)


def produce_librdkafka(to: Settings) -> None:
    sending = Sending()
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": to.address,
            "client.id": to.client_id,
            "enable.idempotence": True,
            "linger.ms": _LINGER_MS,
            "batch.size": 16_384,
            "message.timeout.ms": _PATIENCE_S * 1_000,
            **QUIET,
        }
    )
    while not to.is_over:
        if sending.is_full:
            producer.poll(_PAUSE_S)
            continue
        number = sending.next_number()

        def delivered(error: object, message: object, number: int = number) -> None:
            sending.done(number, error)

        producer.produce(to.topic, value(number), key(number), partition=0, on_delivery=delivered)
    producer.flush(_CLOSE_S)
    sending.end()


def consume_librdkafka(to: Settings) -> None:
    reading = Reading()
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": to.address, "client.id": to.client_id, "group.id": "unused", **QUIET}
    )
    consumer.assign([confluent_kafka.TopicPartition(to.topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    while not to.is_over:
        for message in consumer.consume(500, timeout=0.5):
            if message.error() is None:
                reading.take(message.offset(), message.key(), message.value())
    consumer.close()
    reading.end()


def produce_kafka_python(to: Settings) -> None:
    sending = Sending()
    producer = kafka_python.KafkaProducer(
        bootstrap_servers=to.address,
        client_id=to.client_id,
        acks="all",
        linger_ms=_LINGER_MS,
        delivery_timeout_ms=_PATIENCE_S * 1_000,
        max_block_ms=_PATIENCE_S * 1_000,
        reconnect_backoff_max_ms=1_000,
    )
    while not to.is_over:
        if sending.is_full:
            time.sleep(_PAUSE_S)
            continue
        number = sending.next_number()
        future = producer.send(to.topic, value(number), key(number), partition=0)
        future.add_callback(lambda _, number=number: sending.done(number, None))
        future.add_errback(lambda error, number=number: sending.done(number, error))
    producer.flush(_CLOSE_S)
    producer.close()
    sending.end()


def consume_kafka_python(to: Settings) -> None:
    reading = Reading()
    consumer = kafka_python.KafkaConsumer(
        bootstrap_servers=to.address,
        client_id=to.client_id,
        group_id=None,
        auto_offset_reset="earliest",
        reconnect_backoff_max_ms=1_000,
    )
    partition = kafka_python.TopicPartition(to.topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    while not to.is_over:
        for messages in consumer.poll(timeout_ms=500).values():
            for message in messages:
                reading.take(message.offset, message.key, message.value)
    consumer.close()
    reading.end()


def produce_aiokafka(to: Settings) -> None:
    asyncio.run(_produce_aiokafka(to))


async def _produce_aiokafka(to: Settings) -> None:
    sending = Sending()
    # In aiokafka the request timeout also bounds the time that a record waits for its turn.
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=to.address,
        client_id=to.client_id,
        enable_idempotence=True,
        linger_ms=_LINGER_MS,
        request_timeout_ms=_CLOSE_S * 1_000,
    ) as producer:
        while not to.is_over:
            if sending.is_full:
                await asyncio.sleep(_PAUSE_S)
                continue
            number = sending.next_number()
            future = await producer.send(to.topic, value(number), key(number), partition=0)
            future.add_done_callback(lambda future, number=number: sending.done(number, future.exception()))
        await producer.flush()
    sending.end()


def consume_aiokafka(to: Settings) -> None:
    asyncio.run(_consume_aiokafka(to))


async def _consume_aiokafka(to: Settings) -> None:
    reading = Reading()
    async with aiokafka.AIOKafkaConsumer(
        to.topic,
        bootstrap_servers=to.address,
        client_id=to.client_id,
        group_id=to.client_id,
        auto_offset_reset="earliest",
    ) as consumer:
        while not to.is_over:
            for messages in (await consumer.getmany(timeout_ms=500)).values():
                for message in messages:
                    reading.take(message.offset, message.key, message.value)
    reading.end()


def visit(to: Settings) -> None:
    """Send visitors, one after the other: a producer, and a connection that ends within a request."""
    report = Report()
    for client_id in itertools.cycle(VISITOR_IDS):
        if to.is_over:
            break
        started = time.monotonic()
        try:
            _send_some(to, client_id)
            report.records += _VISIT_RECORDS
            _leave_within_a_request(to, client_id)
        except Exception as error:  # noqa: BLE001 - reported, and judged by its time
            say(error=f"visit: {error!r}"[:300])
        while not to.is_over and time.monotonic() < started + _VISIT_EVERY_S:
            time.sleep(0.1)
    say(end=True, records=report.records, bytes=0)


def _send_some(to: Settings, client_id: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": to.address, "client.id": client_id, "enable.idempotence": True, **QUIET}
    )
    for number in range(_VISIT_RECORDS):
        producer.produce(to.topic, value(number), key(number))
    left = producer.flush(_CLOSE_S)
    if left:
        raise TimeoutError(f"{left} records were not acknowledged")
    producer.close()


def _leave_within_a_request(to: Settings, client_id: str) -> None:
    port = to.address.rsplit(":", 1)[1]
    with raw_client(int(port), client_id=client_id) as client:
        client.api_versions()
        client.send_bytes(request(API_VERSIONS, 0, 2, client_id, b"")[:9])


_ROLES: Final = {
    ("librdkafka", "produce"): produce_librdkafka,
    ("librdkafka", "consume"): consume_librdkafka,
    ("kafka-python", "produce"): produce_kafka_python,
    ("kafka-python", "consume"): consume_kafka_python,
    ("aiokafka", "produce"): produce_aiokafka,
    ("aiokafka", "consume"): consume_aiokafka,
    ("visitors", "produce"): visit,
}

if __name__ == "__main__":
    library, role, address, topic, client_id, stop = sys.argv[1:]
    _ROLES[library, role](Settings(address, topic, client_id, Path(stop)))
