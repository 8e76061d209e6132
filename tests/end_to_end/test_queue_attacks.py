"""Light users keep their pace behind the fair call queue while others hold its slots without work for the broker."""

from __future__ import annotations

import asyncio
import itertools
import signal
import statistics
import struct
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import pytest

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import PRODUCE, PRODUCE_VERSION, produce_body, record_batch, request, string
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.proxy import Proxy

_USERS: Final = 10
_COPIERS: Final = 60  # more than the slots that the proxy finds for so few requests
_PAUSE_S: Final = 0.05
_WARM_UP_S: Final = 1.5
_SECONDS: Final = 5.0
_OFFSET_COMMIT: Final = 8
_HEARTBEAT: Final = 12
_QUEUE: Final[dict[str, Any]] = {"fair_call_queue": {}}
_HELD_S: Final = 1.0  # by each half-sent request
_MOST_P50_MS: Final = 300 * _HELD_S
_HANGS_S: Final = 8.0
_MOST_MS: Final = 500 * _HANGS_S


def _produce(client_id: str, topic: str, *, acks: int, record_bytes: int = 100) -> bytes:
    body = produce_body(topic, record_batch([bytes(record_bytes)]), acks=acks)
    return request(PRODUCE, PRODUCE_VERSION, 1, client_id, body)


@asynccontextmanager
async def _connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


async def _ask(port: int, frame: bytes, end_s: float, took_ms: list[float], pause_s: float = _PAUSE_S) -> None:
    """Send a request, and after its answer and a pause the next."""
    async with _connected(port) as (reader, writer):
        while (sent_s := time.monotonic()) < end_s:
            writer.write(frame)
            (size_bytes,) = struct.unpack(">i", await reader.readexactly(4))
            await reader.readexactly(size_bytes)
            took_ms.append((time.monotonic() - sent_s) * 1_000)
            await asyncio.sleep(pause_s)


async def _send_half(port: int, frame: bytes, end_s: float) -> None:
    """Send the front of a request, reset the connection after a second, and begin anew."""
    while time.monotonic() < end_s:
        async with _connected(port) as (_, writer):
            writer.write(frame[: min(80, len(frame) - 1)])
            await asyncio.sleep(_HELD_S)


async def _light(
    port: int, frames: list[bytes], others: Callable[[float], list[Coroutine[None, None, None]]], seconds: float
) -> list[list[float]]:
    """Return the latencies of each frame's user in milliseconds, after all have been connected for a while."""
    end_s = time.monotonic() + _WARM_UP_S + seconds
    took_ms: list[list[float]] = [[] for _ in frames]
    async with asyncio.TaskGroup() as tasks:
        disturbing = [tasks.create_task(one) for one in others(end_s)]
        asking = [
            tasks.create_task(_ask(port, frame, end_s, took)) for frame, took in zip(frames, took_ms, strict=True)
        ]
        await asyncio.sleep(_WARM_UP_S)
        for took in took_ms:
            took.clear()
        await asyncio.wait(asking)
        for task in disturbing:
            task.cancel()
    return took_ms


def _heartbeat(client_id: str) -> bytes:
    return request(_HEARTBEAT, 0, 1, client_id, string("no group") + struct.pack(">i", 1) + string("m"))


@pytest.mark.parametrize(("attack", "connections"), [("produce", 40), ("offset commit", 1_000)])
def test_half_sent_requests_stop_nobody(kafka_4: Kafka, attack: str, connections: int) -> None:
    topic = create_topic(kafka_4)
    users = [_produce(f"light-{number}", topic, acks=1) for number in range(_USERS)]
    users.append(_heartbeat("member"))
    half = _produce("attacker", topic, acks=1, record_bytes=10_000)
    if attack == "offset commit":
        half = request(_OFFSET_COMMIT, 2, 1, "attacker", bytes(100))

    with Proxy(_QUEUE, kafka_4) as proxy:
        port = proxy.port()
        took_ms = asyncio.run(
            _light(port, users, lambda end_s: [_send_half(port, half, end_s) for _ in range(connections)], _SECONDS)
        )

    *writes, heartbeats = took_ms
    assert statistics.median(itertools.chain(*writes)) < _MOST_P50_MS
    assert statistics.median(heartbeats) < _MOST_P50_MS


@pytest.mark.timeout(120)
def test_hanging_follower_stops_no_users_of_other_topics() -> None:
    with Kafka(KAFKA_4) as kafka, Proxy(_QUEUE, kafka) as proxy:
        kafka.add_broker()  # it is no controller, so the cluster goes on without it
        copied, alone = create_topic(kafka, replicas=(1, 2)), create_topic(kafka, replicas=(1,))
        users = [_produce(f"light-{number}", alone, acks=1) for number in range(_USERS)]
        copies = _produce("copies", copied, acks=-1)
        port, follower = proxy.port(), kafka.brokers[1].process

        def hang(end_s: float) -> list[Coroutine[None, None, None]]:
            async def stop() -> None:
                await asyncio.sleep(_WARM_UP_S)
                follower.signal(signal.SIGSTOP)

            return [*[_ask(port, copies, end_s, []) for _ in range(_COPIERS)], stop()]

        try:
            took_ms = asyncio.run(_light(port, users, hang, _HANGS_S))
        finally:
            follower.signal(signal.SIGCONT)

    assert max(itertools.chain(*took_ms)) < _MOST_MS
