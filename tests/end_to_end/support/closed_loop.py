"""Clients in a separate process, which send a request as soon as the previous one is answered.

A Produce (``Writes``) has zeros that the broker decompresses, so a large one takes some milliseconds. A Fetch
(``Polls``) waits at the end of an empty partition. Refused requests do not count. The process fails if a response is
out of order or arrives twice.

``python -m tests.end_to_end.support.closed_loop PORT TOPIC SECONDS {writes|polls} AMOUNT CLIENT_ID:CONNECTIONS:AHEAD…``
prints a JSON object: for each client-id, pairs of the time (``time.monotonic``) and the latency in seconds.
"""

from __future__ import annotations

import asyncio
import json
import signal
import struct
import sys
import time
from collections import deque
from pathlib import Path
from typing import Final, NamedTuple, Self

import uvloop
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from tests.end_to_end.support.frames import (
    FETCH,
    FETCH_VERSION,
    PRODUCE,
    PRODUCE_VERSION,
    fetch_body,
    produce_body,
    read_fetch,
    read_produce,
    request,
)
from tests.end_to_end.support.processes import HarnessError, Process, scratch, wait_until

_ROOT: Final = Path(__file__).parents[3]
_GZIP: Final = 1
_NOT_ENOUGH_REPLICAS: Final = 19  # the error code of a refused write
_BETWEEN_CONNECTS_S: Final = 0.002


class Crowd(NamedTuple):
    """Connections of one client-id. ``ahead`` is the number of requests in flight on each."""

    client_id: str
    connections: int = 1
    ahead: int = 1


class Writes(NamedTuple):
    """Produce requests with one record of this many zeros, compressed."""

    record_bytes: int = 100


class Polls(NamedTuple):
    """Fetch requests for an empty partition. The broker waits this long before it answers."""

    max_wait_ms: int


class Served(NamedTuple):
    """An answered request: the time of the response (``time.monotonic``), and the latency."""

    at_s: float
    took_s: float


def dear_batch(record_bytes: int) -> bytes:
    """Return a small record batch that has ``record_bytes`` bytes when it is decompressed."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=_GZIP, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=record_bytes + 1_000,
    )  # fmt: skip
    builder.append(0, timestamp=None, key=None, value=bytes(record_bytes), headers=[])
    return bytes(builder.build())


class Load:
    """Runs crowds against one port, until the end of the ``with`` block at the latest."""

    def __init__(self, port: int, topic: str, *crowds: Crowd, seconds: float, kind: Writes | Polls) -> None:
        self._words = [str(port), topic, str(seconds), type(kind).__name__.lower(), str(kind[0])]
        self._words += [":".join(map(str, crowd)) for crowd in crowds]
        self._seconds = seconds

    def __enter__(self) -> Self:
        self._scratch = scratch("load")
        directory = self._scratch.__enter__()
        command = [sys.executable, "-m", "tests.end_to_end.support.closed_loop", *self._words]
        self._process = Process(command, log=directory / "load.log", cwd=_ROOT)
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._scratch.__exit__(None, None, None)

    def end(self) -> None:
        """Stop sending early."""
        if not self._process.is_running:
            raise HarnessError("clients in a loop ended too early")
        self._process.signal(signal.SIGTERM)

    def served(self) -> dict[str, list[Served]]:
        """Wait until the process ends, and return the answered requests of each client-id."""
        process = self._process
        wait_until(lambda: not process.is_running, timeout_s=self._seconds + 60, what="clients in a loop end")
        if process.exit_status:
            raise HarnessError(f"clients in a loop: exit status {process.exit_status}\n{process.log_tail()}")
        found = json.loads(process.output())
        return {client_id: [Served(*one) for one in answers] for client_id, answers in found.items()}


def _frame(kind: str, amount: int, client_id: str, topic: str) -> bytes:
    if kind == "polls":
        body = fetch_body(topic, offset=0, max_bytes=1_000_000, max_wait_ms=amount)
        return request(FETCH, FETCH_VERSION, 1, client_id, body)
    return request(PRODUCE, PRODUCE_VERSION, 1, client_id, produce_body(topic, dear_batch(amount), acks=1))


class _End:
    """The time at which sending stops. SIGTERM sets it to now."""

    def __init__(self, seconds: float) -> None:
        self.at_s = time.monotonic() + seconds
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._now)

    def _now(self) -> None:
        self.at_s = time.monotonic()


class _Client:
    def __init__(self, frame: bytes, ahead: int, end: _End, served: list[Served]) -> None:
        self._frame = frame
        self._end = end
        self._ahead = ahead
        self._served = served
        self._read = read_produce if frame[4:6] == PRODUCE.to_bytes(2) else read_fetch
        self._sent: deque[tuple[int, float]] = deque()
        self._last_id = 0

    async def run(self, number: int, port: int) -> None:
        await asyncio.sleep(number * _BETWEEN_CONNECTS_S)
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        while time.monotonic() < self._end.at_s:
            while len(self._sent) < self._ahead:
                self._send()
            await self._receive()
        while self._sent:
            await self._receive()
        self._writer.write_eof()
        if await self._reader.read():
            raise SystemExit("an answer came twice")
        self._writer.close()

    def _send(self) -> None:
        self._last_id += 1
        self._writer.write(self._frame[:8] + self._last_id.to_bytes(4) + self._frame[12:])
        self._sent.append((self._last_id, time.monotonic()))

    async def _receive(self) -> None:
        size, found_id = struct.unpack(">ii", await self._reader.readexactly(8))
        answer = self._read(await self._reader.readexactly(size - 4))
        sent_id, sent_s = self._sent.popleft()
        if found_id != sent_id or answer.error_code not in (0, _NOT_ENOUGH_REPLICAS):
            raise SystemExit(f"answer {found_id} with error {answer.error_code} came for request {sent_id}")
        if not answer.error_code:
            now_s = time.monotonic()
            self._served.append(Served(now_s, now_s - sent_s))
        if answer.throttle_time_ms:
            await asyncio.sleep(answer.throttle_time_ms / 1_000)


async def _all(frames: dict[Crowd, bytes], port: int, seconds: float) -> dict[str, list[Served]]:
    end = _End(seconds)
    served: dict[str, list[Served]] = {crowd.client_id: [] for crowd in frames}
    number = 0
    async with asyncio.TaskGroup() as clients:
        for crowd, frame in frames.items():
            for _ in range(crowd.connections):
                client = _Client(frame, crowd.ahead, end, served[crowd.client_id])
                clients.create_task(client.run(number, port))
                number += 1
    return served


def main() -> None:
    port, topic, seconds, kind, amount, *names = sys.argv[1:]
    crowds = [Crowd(name, int(count), int(ahead)) for name, count, ahead in (one.split(":") for one in names)]
    frames = {crowd: _frame(kind, int(amount), crowd.client_id, topic) for crowd in crowds}
    json.dump(uvloop.run(_all(frames, int(port), float(seconds))), sys.stdout)


if __name__ == "__main__":
    main()
