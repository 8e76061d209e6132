"""Fetch v0 to v2 have no limit for all partitions, so a response may be larger than the quota.

Their limits are not lowered, because a broker would cut even the first message. The next fetch waits for longer.
"""

from __future__ import annotations

import struct
import threading
import time
from contextlib import ExitStack, suppress
from typing import Final

import pytest

from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import FETCH, RawClient, raw_client, record_batch, string
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.load import KIB, MIB, Answer, batch_of
from tests.end_to_end.support.proxy import Proxy

PARTITIONS: Final = 4
PARTITION_BYTES: Final = 128 * KIB
QUOTA: Final = 2 * MIB
CONNECTIONS: Final = 12
SECONDS: Final = 12
FIRST_SECONDS: Final = 4  # the first window, with its burst and the silence after it


def fetch_body(topic: str, *, max_bytes: int, partitions: int = 1) -> bytes:
    """Build the body of a Fetch v0 to v2 request from the start of each partition."""
    fetched = b"".join(struct.pack(">iqi", partition, 0, max_bytes) for partition in range(partitions))
    return struct.pack(">iiii", -1, 500, 1, 1) + string(topic) + struct.pack(">i", partitions) + fetched


def fetch(client: RawClient, version: int, body: bytes) -> Answer:
    """Send a Fetch request. Return the response and its charged bytes."""
    frame = client.ask(FETCH, version, body)
    throttle_time_ms = int.from_bytes(frame.body[:4]) if version >= 1 else 0
    return Answer(time.monotonic(), frame.size_bytes - 4, throttle_time_ms)


def messages_of(client: RawClient, version: int, body: bytes) -> bytes:
    """Fetch one partition of a topic, and return its messages."""
    frame = client.ask(FETCH, version, body).body[4 if version >= 1 else 0 :]
    at = 4 + 2 + int.from_bytes(frame[4:6]) + 4
    _, error_code, _, size_bytes = struct.unpack_from(">ihqi", frame, at)
    assert error_code == 0
    return frame[at + 18 : at + 18 + size_bytes]


@pytest.fixture(scope="module")
def topic(kafka_39: Kafka) -> str:
    """A topic with partitions that hold more than a fetch asks for."""
    name = create_topic(kafka_39, partitions=PARTITIONS)
    with raw_client(kafka_39.listener(DIRECT).port) as producer:
        for partition in range(PARTITIONS):
            for _ in range(20):
                assert producer.produce(name, batch_of(8 * KIB), partition=partition).error_code == 0
    return name


@pytest.mark.long
@pytest.mark.parametrize("shaping", ["paced", "sampled"])
def test_old_fetches_of_many_connections_stay_within_their_quota(kafka_39: Kafka, topic: str, shaping: str) -> None:
    body = fetch_body(topic, max_bytes=PARTITION_BYTES, partitions=PARTITIONS)
    answers: list[Answer] = []
    end = time.monotonic() + SECONDS

    def flood(client: RawClient, version: int) -> None:
        with suppress(TimeoutError):
            while (left := end - time.monotonic()) > 0:
                client.socket.settimeout(left)
                answers.append(fetch(client, version, body))

    rule = {"client-id": "old", "consumer_byte_rate": QUOTA}
    settings = {"quotas": [rule], "shaping": shaping, "kafka": {"quota.window.num": 3}}
    with Proxy(settings, kafka_39) as proxy, ExitStack() as stack:
        clients = [stack.enter_context(raw_client(proxy.port(), client_id="old")) for _ in range(CONNECTIONS)]
        floods = [threading.Thread(target=flood, args=(client, at % 3)) for at, client in enumerate(clients)]
        for one in floods:
            one.start()
        for one in floods:
            one.join()

    answers.sort()
    assert max(answer.size_bytes for answer in answers) > 0.9 * PARTITIONS * PARTITION_BYTES, "nothing is lowered"
    start = answers[0].at_s
    late = [answer for answer in answers if answer.at_s >= start + FIRST_SECONDS]
    rate = sum(answer.size_bytes for answer in late[1:]) / (late[-1].at_s - late[0].at_s)
    print(f"{shaping}: {rate / QUOTA:.3f} of the quota, {len(answers)} answers")  # noqa: T201
    assert 0.8 * QUOTA < rate < 1.2 * QUOTA  # a response is worth an eighth of a second, a sample is a second


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_consumer_gets_a_message_larger_than_its_quota(kafka_39: Kafka, version: int) -> None:
    """With a lowered limit, the broker would cut the message and the consumer would retry for ever."""
    topic = create_topic(kafka_39)
    with raw_client(kafka_39.listener(DIRECT).port) as direct:
        direct.produce(topic, record_batch([b"m" * 50_000]))
        assert len(messages_of(direct, version, fetch_body(topic, max_bytes=10_000))) <= 10_000

    rule = {"client-id": "old", "consumer_byte_rate": 1_000}
    with Proxy({"quotas": [rule]}, kafka_39) as proxy, raw_client(proxy.port(), client_id="old") as client:
        assert b"m" * 50_000 in messages_of(client, version, fetch_body(topic, max_bytes=MIB))
