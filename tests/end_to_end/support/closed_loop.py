"""Clients that each send a request as soon as the last one is answered, in a process of their own.

A request costs its sender nothing and the broker some milliseconds: a kilobyte of Produce that holds a megabyte of
zeros, which the broker unpacks to look at each record. So with one thread the broker is busy long before anybody else.

``python -m tests.end_to_end.support.closed_loop PORT TOPIC SECONDS RECORD_BYTES CLIENT_ID:CONNECTIONS…`` prints a JSON
object: for each client-id the answers, as pairs of ``time.monotonic`` and the time that it took, in seconds.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

import uvloop
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from tests.end_to_end.support.frames import PRODUCE, PRODUCE_VERSION, produce_body, read_produce, request
from tests.end_to_end.support.processes import HarnessError, Process, scratch, wait_until

_ROOT: Final = Path(__file__).parents[3]
_GZIP: Final = 1


class Crowd(NamedTuple):
    """A client-id with so many connections."""

    client_id: str
    connections: int = 1


class Served(NamedTuple):
    """A request that was answered."""

    at_s: float
    took_s: float


def dear_batch(record_bytes: int) -> bytes:
    """A record batch that is much larger when it is unpacked."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=_GZIP, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=record_bytes + 1_000,
    )  # fmt: skip
    builder.append(0, timestamp=None, key=None, value=bytes(record_bytes), headers=[])
    return bytes(builder.build())


class Load:
    """Some crowds at one port, for the length of a ``with`` block at the most."""

    def __init__(self, port: int, topic: str, *crowds: Crowd, seconds: float, record_bytes: int) -> None:
        self._words = [str(port), topic, str(seconds), str(record_bytes)]
        self._words += [f"{crowd.client_id}:{crowd.connections}" for crowd in crowds]
        self._seconds = seconds

    def __enter__(self) -> Load:
        self._scratch = scratch("load")
        directory = self._scratch.__enter__()
        command = [sys.executable, "-m", "tests.end_to_end.support.closed_loop", *self._words]
        self._process = Process(command, log=directory / "load.log", cwd=_ROOT)
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._scratch.__exit__(None, None, None)

    def served(self) -> dict[str, list[Served]]:
        """Wait for the end; return the answers of each client-id."""
        process = self._process
        wait_until(lambda: not process.is_running, timeout_s=self._seconds + 60, what="clients in a loop end")
        if process.exit_status:
            raise HarnessError(f"clients in a loop: exit status {process.exit_status}\n{process.log_tail()}")
        found = json.loads(process.output())
        return {client_id: [Served(*one) for one in answers] for client_id, answers in found.items()}


async def _client(number: int, port: int, frame: bytes, end_s: float, served: list[Served]) -> None:
    await asyncio.sleep(number * 0.002)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (begin_s := time.monotonic()) < end_s:
        writer.write(frame)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        answer = read_produce((await reader.readexactly(size))[4:])
        if answer.error_code:
            raise SystemExit(f"error {answer.error_code}")
        now_s = time.monotonic()
        served.append(Served(now_s, now_s - begin_s))
        if answer.throttle_time_ms:
            await asyncio.sleep(answer.throttle_time_ms / 1_000)
    writer.close()


async def _all(port: int, topic: str, seconds: float, record_bytes: int, crowds: list[Crowd]) -> None:
    end_s = time.monotonic() + seconds
    batch = dear_batch(record_bytes)
    served: dict[str, list[Served]] = {crowd.client_id: [] for crowd in crowds}
    number = 0
    async with asyncio.TaskGroup() as clients:
        for crowd in crowds:
            frame = request(
                PRODUCE, PRODUCE_VERSION, 1, crowd.client_id, produce_body(topic, batch, acks=1)
            )
            for _ in range(crowd.connections):
                clients.create_task(_client(number, port, frame, end_s, served[crowd.client_id]))
                number += 1
    print(json.dumps(served))


def main() -> None:
    port, topic, seconds, record_bytes, *names = sys.argv[1:]
    crowds = [Crowd(name, int(connections)) for name, connections in (one.split(":") for one in names)]
    uvloop.run(_all(int(port), topic, float(seconds), int(record_bytes), crowds))


if __name__ == "__main__":
    main()
