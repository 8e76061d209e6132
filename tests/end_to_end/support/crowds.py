"""Floods of raw connections under one client-id, in separate processes, without code of the product.

A consumer reads a topic from its start again and again, with the defaults of Java's client (Fetch v17). A producer
writes the same batch of 16 KiB again and again with ``acks=1`` (Produce v12). A connection has one request in flight.

``python -m tests.end_to_end.support.crowds ORDER OUTPUT`` reads the order and writes the results as JSON files.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import struct
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, cast

import uvloop
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from tests.end_to_end.support.clients import QUIET, create_topic
from tests.end_to_end.support.frames import FETCH, PRODUCE, PRODUCE_VERSION, RawClient, record_batch, string
from tests.end_to_end.support.frames import produce_body as old_produce_body
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.processes import HarnessError, Process, allow_open_files, scratch, wait_until

KIB: Final = 1024
MIB: Final = 1024 * 1024
BATCH_BYTES: Final = 16 * KIB
CONSUMERS: Final = "consumers"
PRODUCERS: Final = "producers"
_FETCH_VERSION: Final = 17
_PRODUCE_VERSION: Final = 12
MOST_BYTES: Final = 50 * MIB
_MOST_PARTITION_BYTES: Final = MIB
_MAX_WAIT_MS: Final = 500
_ROOT: Final = Path(__file__).parents[3]
_MOST_OF_A_PROCESS: Final = 500
_BETWEEN_CONNECTS_S: Final = 0.003
_START_S: Final = 3.0
_CONNECTION_OPEN_FILES: Final = 4  # descriptors of the client, of the proxy (two), and of the broker
_PREFILL_AHEAD: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic. New Fetch versions use its id."""

    name: str
    id: bytes
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Connections of one client-id to one port of this machine.

    ``role`` is ``CONSUMERS`` or ``PRODUCERS``. ``obeys`` says whether the connections wait for ``throttle_time_ms``.
    ``fetch_bytes`` is ``max_bytes`` of a Fetch.
    """

    role: str
    port: int
    topic: Topic
    client_id: str
    connections: int
    obeys: bool = True
    fetch_bytes: int = MOST_BYTES


class Answer(NamedTuple):
    """A response. ``at_s`` is its time (``time.monotonic``), and ``took_s`` its latency.

    ``size_bytes`` is the size that the quota counts, or 0 for a failed write and for a fetch without records.
    """

    at_s: float
    took_s: float
    connection: int
    size_bytes: int
    throttle_time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The results of a crowd. ``open_s`` holds the ages of the requests that were unanswered at the end."""

    begin_s: float
    end_s: float
    connections: int
    answers: Sequence[Answer]
    errors: Mapping[str, int]
    closed: int
    open_s: Sequence[float]

    @property
    def longest_s(self) -> float:
        """Return the longest latency or age of an unanswered request."""
        return max([*(answer.took_s for answer in self.answers), *self.open_s], default=0.0)

    @property
    def empty(self) -> int:
        """Return the number of responses without records."""
        return sum(not answer.size_bytes for answer in self.answers)


def topic_to_write(kafka: Kafka, *, partitions: int = 4) -> Topic:
    """Create a topic that keeps only its latest records."""
    return _topic(kafka, partitions, {"segment.bytes": str(16 * MIB), "retention.bytes": str(32 * MIB)})


def _topic(kafka: Kafka, partitions: int, config: dict[str, str]) -> Topic:
    name = create_topic(kafka, partitions=partitions, config=config)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, **QUIET})
    uuid = admin.describe_topics(TopicCollection([name]))[name].result(timeout=30).topic_id
    topic_id = struct.pack(">qq", uuid.get_most_significant_bits(), uuid.get_least_significant_bits())
    return Topic(name=name, id=topic_id, partitions=partitions)


def topic_to_read(kafka: Kafka, *, partitions: int = 4, size_bytes: int = 32 * MIB) -> Topic:
    """Create a topic with this many bytes, in batches of 16 KiB."""
    topic = _topic(kafka, partitions, {})
    batch = record_batch([os.urandom(BATCH_BYTES)])
    bodies = [old_produce_body(topic.name, batch, acks=1, partition=number) for number in range(partitions)]
    client = RawClient(kafka.listener(DIRECT).port, client_id="prefill")
    batches = size_bytes // BATCH_BYTES
    for number in range(batches + _PREFILL_AHEAD):
        if number < batches:
            client.send(PRODUCE, PRODUCE_VERSION, bodies[number % partitions])
        if number >= _PREFILL_AHEAD:
            client.receive()
    client.close()
    return topic


def flood(crowds: Mapping[str, Crowd], *, seconds: float) -> dict[str, Outcome]:
    """Run all crowds at the same time, and return the results by name. Raises HarnessError if a process fails."""
    allow_open_files(_CONNECTION_OPEN_FILES * sum(crowd.connections for crowd in crowds.values()) + 2_000)
    parts = [
        (name, part)
        for name, crowd in crowds.items()
        for part in range(math.ceil(crowd.connections / _MOST_OF_A_PROCESS))
    ]
    begin_s = time.monotonic() + _START_S + 0.5 * len(parts)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in crowds}
    with ExitStack() as stack:
        directory = stack.enter_context(scratch("crowds"))
        running: list[tuple[str, Process, Path]] = []
        for name, part in parts:
            output = directory / f"{name}-{part}.json"
            order = output.with_suffix(".order")
            order.write_text(json.dumps(_order(crowds[name], part, begin_s, begin_s + seconds)))
            command = (sys.executable, "-m", "tests.end_to_end.support.crowds", str(order), str(output))
            process = Process(command, log=output.with_suffix(".log"), cwd=_ROOT)
            stack.callback(process.kill)
            running.append((name, process, output))
        for name, process, output in running:
            wait_until(
                lambda process=process: not process.is_running,  # type: ignore[misc]
                timeout_s=max(1.0, begin_s + seconds - time.monotonic()) + 60,
                what="a crowd ends",
                poll_s=0.2,
            )
            if process.exit_status:
                raise HarnessError(f"a crowd: exit status {process.exit_status}\n{process.log_tail()}")
            found[name].append(json.loads(output.read_text()))
    return {
        name: _together(parts, crowds[name].connections, begin_s, begin_s + seconds) for name, parts in found.items()
    }


def _order(crowd: Crowd, part: int, begin_s: float, end_s: float) -> dict[str, Any]:
    first = part * _MOST_OF_A_PROCESS
    last = min(crowd.connections, first + _MOST_OF_A_PROCESS)
    whole = asdict(crowd)
    whole["topic"]["id"] = crowd.topic.id.hex()
    return {"crowd": whole, "first": first, "last": last, "begin_s": begin_s, "end_s": end_s}


def _together(parts: Sequence[dict[str, Any]], connections: int, begin_s: float, end_s: float) -> Outcome:
    errors: Counter[str] = Counter()
    for part in parts:
        errors.update(part["errors"])
    return Outcome(
        begin_s=begin_s,
        end_s=end_s,
        connections=connections,
        answers=sorted(Answer(*one) for part in parts for one in part["answers"]),
        errors=dict(errors),
        closed=sum(part["closed"] for part in parts),
        open_s=[age for part in parts for age in part["open_s"]],
    )


# ---- code of the client processes ----


class _Read(NamedTuple):
    size_bytes: int
    throttle_time_ms: int
    error_codes: tuple[int, ...]


class _Role(Protocol):
    def request(self) -> bytes: ...

    def read(self, payload: bytes) -> _Read: ...


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned varint and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _compact(data: bytes) -> bytes:
    return _as_varint(len(data) + 1) + data


def _skip_tags(data: bytes, at: int) -> int:
    count, at = _varint(data, at)
    for _ in range(count):
        _, at = _varint(data, at)
        size, at = _varint(data, at)
        at += size
    return at


def _framed(api_key: int, version: int, client_id: str, body: bytes) -> bytes:
    """Return a request frame with header version 2."""
    payload = struct.pack(">hhi", api_key, version, 1) + string(client_id) + b"\0" + body
    return struct.pack(">i", len(payload)) + payload


class _Producer:
    """Writes the same batch to one partition again and again."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        partition = struct.pack(">i", number % crowd.topic.partitions)
        records = partition + _compact(record_batch([os.urandom(BATCH_BYTES - 100)])) + b"\0"
        topic = _compact(crowd.topic.name.encode()) + b"\2" + records + b"\0"
        body = b"\0" + struct.pack(">hi", 1, 30_000) + b"\2" + topic + b"\0"
        self._frame = _framed(PRODUCE, _PRODUCE_VERSION, crowd.client_id, body)

    def request(self) -> bytes:
        return self._frame

    def read(self, payload: bytes) -> _Read:
        _, at = _varint(payload, 5)  # topics
        size, at = _varint(payload, at)
        _, at = _varint(payload, at + size - 1)  # partitions
        (error_code,) = struct.unpack_from(">h", payload, at + 4)
        at += 4 + 2 + 8 + 8 + 8
        count, at = _varint(payload, at)
        if count > 1:
            raise ValueError("a write has errors of its records")
        size, at = _varint(payload, at)
        at = _skip_tags(payload, _skip_tags(payload, at + max(0, size - 1)))
        (throttle_time_ms,) = struct.unpack_from(">i", payload, at)
        error_codes = (error_code,) if error_code else ()
        return _Read(0 if error_code else len(self._frame) - 4, throttle_time_ms, error_codes)


class _Consumer:
    """Reads all partitions, and rotates their order like real clients."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        self._crowd = crowd
        self._turn = number
        self._offsets = [0] * crowd.topic.partitions
        self._head = struct.pack(">iiibii", _MAX_WAIT_MS, 1, crowd.fetch_bytes, 0, 0, -1) + b"\2" + crowd.topic.id

    def request(self) -> bytes:
        count = len(self._offsets)
        self._turn += 1
        partitions = b"".join(
            struct.pack(">iiqiqi", one, -1, self._offsets[one], -1, -1, _MOST_PARTITION_BYTES) + b"\0"
            for one in ((self._turn + step) % count for step in range(count))
        )
        body = self._head + _as_varint(count + 1) + partitions + b"\0" + b"\1" + b"\1" + b"\0"
        return _framed(FETCH, _FETCH_VERSION, self._crowd.client_id, body)

    def read(self, payload: bytes) -> _Read:
        throttle_time_ms, error_code, _ = struct.unpack_from(">ihi", payload, 5)
        errors = [error_code]
        has_records = False
        topics, at = _varint(payload, 15)
        for _ in range(topics - 1):
            partitions, at = _varint(payload, at + 16)
            for _ in range(partitions - 1):
                number, error_code, high_watermark = struct.unpack_from(">ihq", payload, at)
                errors.append(error_code)
                aborted, at = _varint(payload, at + 30)
                at += 17 * max(0, aborted - 1) + 4
                size, at = _varint(payload, at)
                end = at + max(0, size - 1)
                if end > at:
                    has_records |= self._advance(number, payload, at, end, high_watermark)
                at = _skip_tags(payload, end)
            at = _skip_tags(payload, at)
        error_codes = tuple(code for code in errors if code)
        return _Read(len(payload) if has_records else 0, throttle_time_ms, error_codes)

    def _advance(self, partition: int, payload: bytes, at: int, end: int, high_watermark: int) -> bool:
        """Move the offset past the last complete batch, and return whether there was one."""
        has_some = False
        while at + 61 <= end:
            offset, size = struct.unpack_from(">qi", payload, at)
            if at + 12 + size > end:
                break
            (last,) = struct.unpack_from(">i", payload, at + 23)
            following = offset + last + 1
            self._offsets[partition] = following if following < high_watermark else 0
            has_some = True
            at += 12 + size
        return has_some


class _Connection(asyncio.Protocol):
    def __init__(self, role: _Role, number: int, log: _Log, *, obeys: bool) -> None:
        self._role = role
        self._number = number
        self._log = log
        self._obeys = obeys
        self._data = bytearray()
        self._asked_s = 0.0  # 0 if no request is unanswered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class is no subclass of it
        self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._log.is_over:
            self._log.closed += 1

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4:
            size = int.from_bytes(self._data[:4])
            if len(self._data) < 4 + size:
                return
            payload = bytes(self._data[4 : 4 + size])
            del self._data[: 4 + size]
            self._answered(payload)

    def open_s(self, now_s: float) -> float:
        """Return the age of the unanswered request, or 0 if there is none."""
        return now_s - self._asked_s if self._asked_s else 0.0

    def close(self) -> None:
        self._transport.abort()

    def _ask(self) -> None:
        if not self._log.is_over and not self._transport.is_closing():
            self._asked_s = time.monotonic()
            self._transport.write(self._role.request())

    def _answered(self, payload: bytes) -> None:
        now_s = time.monotonic()
        if not self._asked_s or self._log.is_over:
            if not self._log.is_over:
                raise ValueError("an answer came to no request")
            return
        read = self._role.read(payload)
        took_s = now_s - self._asked_s
        self._asked_s = 0.0
        self._log.answers.append(Answer(now_s, took_s, self._number, read.size_bytes, read.throttle_time_ms))
        self._log.errors.update(str(code) for code in read.error_codes)
        if self._obeys and read.throttle_time_ms:
            asyncio.get_running_loop().call_later(read.throttle_time_ms / 1_000, self._ask)
        else:
            self._ask()


class _Log:
    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.errors: Counter[str] = Counter()
        self.closed = 0
        self.is_over = False


async def _run(order: Mapping[str, Any]) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    topic = Topic(**{**order["crowd"]["topic"], "id": bytes.fromhex(order["crowd"]["topic"]["id"])})
    crowd = Crowd(**{**order["crowd"], "topic": topic})
    log = _Log()
    make = _Producer if crowd.role == PRODUCERS else _Consumer
    roles = [(number, make(crowd, number)) for number in range(order["first"], order["last"])]
    connections: list[_Connection] = []
    faults: list[dict[str, Any]] = []

    def failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        faults.append(context)
        loop.default_exception_handler(context)

    loop.set_exception_handler(failed)
    await asyncio.sleep(max(0.0, order["begin_s"] - time.monotonic()))
    for number, role in roles:
        connection = _Connection(role, number, log, obeys=crowd.obeys)
        await loop.create_connection(lambda connection=connection: connection, "127.0.0.1", crowd.port)  # type: ignore[misc]
        connections.append(connection)
        await asyncio.sleep(_BETWEEN_CONNECTS_S)
    await asyncio.sleep(max(0.0, order["end_s"] - time.monotonic()))
    log.is_over = True
    now_s = time.monotonic()
    open_s = [age for connection in connections if (age := connection.open_s(now_s))]
    for connection in connections:
        connection.close()
    if faults:
        raise SystemExit(f"{len(faults)} callbacks failed")
    return {"answers": log.answers, "errors": log.errors, "closed": log.closed, "open_s": open_s}


def main() -> None:
    order, output = map(Path, sys.argv[1:])
    output.write_text(json.dumps(uvloop.run(_run(json.loads(order.read_text())))))


if __name__ == "__main__":
    main()
