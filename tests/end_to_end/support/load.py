"""Floods of raw frames. Sizes are those that Kafka charges, without the size field of a frame."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from tests.end_to_end.support.frames import (
    FETCH,
    FETCH_VERSION,
    PRODUCE,
    PRODUCE_VERSION,
    RawClient,
    fetch_body,
    produce_body,
    read_produce,
    record_batch,
)

KIB: Final = 1024
MIB: Final = 1024 * 1024
_RECORD_BYTES: Final = 16 * KIB


class Answer(NamedTuple):
    """A response: its time (``time.monotonic``), the charged bytes, and the throttle time."""

    at_s: float
    size_bytes: int
    throttle_time_ms: int


def batch_of(size_bytes: int) -> bytes:
    """Return a record batch of about this size, in incompressible records of at most 16 KiB."""
    record = min(size_bytes, _RECORD_BYTES)
    return record_batch([os.urandom(record) for _ in range(max(1, size_bytes // record))])


def is_throttled(client: RawClient, topic: str) -> bool:
    """Produce 64 KiB, and return whether the response has a throttle time."""
    return client.produce(topic, batch_of(64 * KIB)).throttle_time_ms > 0


def produce_flood(
    port: int,
    topic: str,
    *,
    client_id: str,
    request_bytes: int,
    seconds: float,
    obeys: bool = True,
) -> list[Answer]:
    """Write to partition 0 as fast as possible, and return the responses.

    ``obeys`` says whether the client waits for ``throttle_time_ms``.
    """
    body = produce_body(topic, batch_of(request_bytes), acks=1)
    client = RawClient(port, client_id=client_id)
    answers: list[Answer] = []
    charged = 8 + 2 + len(client_id) + len(body)
    end = time.monotonic() + seconds
    with suppress(TimeoutError):
        client.send(PRODUCE, PRODUCE_VERSION, body)
        while (left := end - time.monotonic()) > 0:
            client.socket.settimeout(left)
            answer = read_produce(client.receive().body)
            if answer.error_code != 0:
                raise AssertionError(f"the broker answered Produce with error {answer.error_code}")
            answers.append(Answer(time.monotonic(), charged, answer.throttle_time_ms))
            if obeys and answer.throttle_time_ms:
                time.sleep(min(answer.throttle_time_ms / 1_000, max(0, end - time.monotonic())))
            client.socket.settimeout(max(0.001, end - time.monotonic()))
            client.send(PRODUCE, PRODUCE_VERSION, body)
    client.close()
    return answers


def fetch_flood(
    port: int, topic: str, *, client_id: str, max_bytes: int, seconds: float, obeys: bool = True
) -> list[Answer]:
    """Fetch the start of partition 0 again and again, as fast as possible."""
    body = fetch_body(topic, offset=0, max_bytes=max_bytes)
    client = RawClient(port, client_id=client_id)
    answers: list[Answer] = []
    end = time.monotonic() + seconds
    with suppress(TimeoutError):
        while (left := end - time.monotonic()) > 0:
            client.socket.settimeout(left)
            frame = client.ask(FETCH, FETCH_VERSION, body)
            throttle_time_ms = int.from_bytes(frame.body[:4], "big")
            answers.append(Answer(time.monotonic(), frame.size_bytes - 4, throttle_time_ms))
            if obeys and throttle_time_ms:
                time.sleep(min(throttle_time_ms / 1_000, max(0, end - time.monotonic())))
    client.close()
    return answers


def throttled_s(answers: Iterable[Answer]) -> float:
    """Return the sum of the throttle times in seconds."""
    return sum(answer.throttle_time_ms for answer in answers) / 1_000
