"""Requests whose clients have gone while they waited for a quota are dropped, with a real Kafka.

A producer that gives up sends its records again. If the proxy forwarded both requests, the quota would go to records
that are written twice.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import confluent_kafka
import pytest

from tests.end_to_end.support.clients import QUIET, create_topic, end_offset
from tests.end_to_end.support.frames import PRODUCE, PRODUCE_VERSION, RawClient, produce_body, raw_client, record_batch
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import batch_of
from tests.end_to_end.support.proxy import Metrics, Proxy

_ABANDONED: Final = "kafka_quota_proxy_abandoned_requests_total"
_BYTES: Final = "kafka_quota_proxy_bytes_total"
_CONNECTIONS: Final = "kafka_quota_proxy_connections"
_LIMIT: Final = 50_000
# The rest of these takes seven seconds to be paid. A sampled rule allows eleven seconds of its limit at once, and a
# paced one a single second.
_DEBTS: Final = {"sampled": 900_000, "paced": 400_000}
_GONE: Final = 40
_LABELLED_BYTES: Final = 10_000
_SIZE_FIELD_BYTES: Final = 4
_PATIENCE_MS: Final = 1_000
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER of no seconds: close() resets the connection

_STORMERS: Final = 40
# Together they send 2 or 8 times what the limit allows. A retry has the records of the 20 s until a record expires: 50
# or 200 kB. The proxy reads a request of 200 kB to its end only after a second.
_STORM_RECORD_BYTES: Final = 1_000
_STORM_EVERY_S: Final = (0.4, 0.1)
_STORM_PATIENCE_MS: Final = 5_000
_STORM_S: Final = 60
# The proxy looks once a second for clients that have gone, and the broker still answers what it has.
_UNTIL_DROPPED_S: Final = 3
_SILENT_S: Final = 57
# Measured while the proxy forwarded all waiting requests: 0.70 (paced) and 0.76 (sampled) duplicates of each record,
# and over 2,700 records after the clients had left, which is what the limit allows. Since it drops them: 0.06 to 0.10
# duplicates, and no record more than three seconds after the clients had left.
_MOST_LATE: Final = 5
_MOST_DUPLICATES: Final = 0.3


class Scene(NamedTuple):
    """What is seen of one rule after its clients have gone.

    ``after`` is a scrape shortly after they left, and ``end`` one after the debt was paid. ``labels`` are those of
    the topic's records, and ``sent_bytes`` are the bytes of the requests that should be charged.
    """

    after: Metrics
    end: Metrics
    labels: list[str]
    sent_bytes: int
    warnings: list[dict[str, Any]]


def _labelled(label: str) -> bytes:
    return record_batch([label.encode().ljust(_LABELLED_BYTES, b".")])


def _records(kafka: Kafka, topic: str) -> list[tuple[bytes, bytes]]:
    """Return the key and the value of each record of a topic."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "unused", **QUIET})
    found: list[tuple[bytes, bytes]] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        count = end_offset(kafka, topic)
        until_s = time.monotonic() + 30
        while len(found) < count:
            assert time.monotonic() < until_s, f"only {len(found)} of {count} records were read"
            for message in consumer.consume(1_000, timeout=1):
                assert message.error() is None, message.error()
                found.append((message.key() or b"", message.value() or b""))
    finally:
        consumer.close()
    return found


def _wait_in_line(stack: ExitStack, proxy: Proxy, topic: str, label: str, *, acks: int = 1) -> RawClient:
    """Connect, and send a Produce that waits. The connection to the broker is open by then."""
    client = stack.enter_context(raw_client(proxy.port(), client_id="c"))
    client.api_versions()
    before_bytes = client.sent_bytes
    body = produce_body(topic, _labelled(label), acks=acks, timeout_ms=_PATIENCE_MS)
    client.send(PRODUCE, PRODUCE_VERSION, body)
    client.sent_bytes -= before_bytes
    return client


def _played(kafka: Kafka, shape: str) -> Scene:
    topic = create_topic(kafka)
    rule = {"client-id": "c", "producer_byte_rate": _LIMIT, "shaping": shape}
    with Proxy({"quotas": [rule], "log": {"format": "json"}}, kafka) as proxy, ExitStack() as stack:
        debtor = stack.enter_context(raw_client(proxy.port(), client_id="c"))
        debt = debtor.produce(topic, batch_of(_DEBTS[shape]))
        paid_s = time.monotonic() + debt.throttle_time_ms / 1_000
        assert debt.throttle_time_ms > 5_000

        gone = [_wait_in_line(stack, proxy, topic, f"gone {number}") for number in range(_GONE)]
        kept = _wait_in_line(stack, proxy, topic, "kept", acks=0)
        for _ in range(2):
            assert proxy.metrics().total(_CONNECTIONS) == _GONE + 2  # by the second, the proxy has read the requests
        for number, client in enumerate((*gone, kept)):
            if number % 2:
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            client.close()
        time.sleep(3)
        after = proxy.metrics()
        assert time.monotonic() < paid_s

        # This request waits behind all others, so none of them waits any more when its answer comes.
        last = stack.enter_context(raw_client(proxy.port(), client_id="c"))
        assert last.produce(topic, _labelled("last")).error_code == 0
        time.sleep(max(0.0, paid_s - time.monotonic()) + 2)

        events = (json.loads(line) for line in proxy.log.splitlines() if line.startswith("{"))
        return Scene(
            after=after,
            end=proxy.metrics(),
            labels=[
                value.rstrip(b".").decode() for _, value in _records(kafka, topic) if len(value) == _LABELLED_BYTES
            ],
            sent_bytes=sum(client.sent_bytes - _SIZE_FIELD_BYTES for client in (debtor, kept, last)),
            warnings=[event for event in events if event.get("event") == "wait_exceeds_patience"],
        )


@pytest.fixture(scope="module", params=["paced", pytest.param("sampled", marks=pytest.mark.long)])
def scene(request: pytest.FixtureRequest, kafka_4: Kafka) -> Scene:
    return _played(kafka_4, request.param)


def test_waiting_requests_of_clients_that_have_gone_are_dropped_and_counted(scene: Scene) -> None:
    assert scene.after.total(_ABANDONED) == scene.end.total(_ABANDONED) == _GONE
    # The debtor, and the connection whose record is still to be written.
    assert scene.after.total(_CONNECTIONS) == 2


def test_only_records_without_an_answer_are_written_for_clients_that_have_gone(scene: Scene) -> None:
    assert scene.labels == ["kept", "last"]


def test_dropped_requests_are_not_charged(scene: Scene) -> None:
    assert scene.end.total(_BYTES, kind="produce", client_id="c") == scene.sent_bytes


def test_one_line_of_the_log_names_the_rule_whose_clients_give_up(scene: Scene) -> None:
    (warning,) = scene.warnings
    assert warning["level"] == "warning"
    assert "requests wait for longer than their clients do" in warning["message"]
    assert (warning["kind"], warning["client_id"], warning["limit"]) == ("produce", "c", _LIMIT)
    assert warning["patience_ms"] == _PATIENCE_MS
    assert warning["wait_ms"] > 5_000


class Storm(NamedTuple):
    """What producers wrote that gave up and sent again. ``late`` counts the records written long after they left."""

    written: Counter[bytes]
    acknowledged: int
    abandoned: float
    late: int

    @property
    def duplicates(self) -> float:
        """How many records were written again, for each distinct record."""
        return (self.written.total() - len(self.written)) / len(self.written)

    def __str__(self) -> str:
        return (
            f"{self.written.total()} records were written, {len(self.written)} of them distinct: {self.duplicates:.2f} "
            f"duplicates of each; {self.acknowledged} were acknowledged; {self.abandoned:.0f} requests were dropped; "
            f"{self.late} were written over 3 s after the clients left"
        )


class _Stormer:
    """A producer with librdkafka's defaults, but a sixth of their timeouts or less."""

    def __init__(self, proxy: Proxy, topic: str, number: int) -> None:
        self.acknowledged = 0
        self._topic = topic
        self._number = number
        self._sent = 0
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": proxy.address(),
                "client.id": "c",
                "request.timeout.ms": _STORM_PATIENCE_MS,
                "socket.timeout.ms": 2 * _STORM_PATIENCE_MS,
                "message.timeout.ms": 4 * _STORM_PATIENCE_MS,
                "log_level": 0,
            }
        )

    def send(self) -> None:
        key = b"%d %d" % (self._number, self._sent)
        self._producer.produce(self._topic, bytes(_STORM_RECORD_BYTES), key, on_delivery=self._delivered)
        self._producer.poll(0)
        self._sent += 1

    def leave(self) -> None:
        """Close the connections, and forget what is not acknowledged."""
        self._producer.purge()
        self._producer.close()

    def _delivered(self, error: object, message: object) -> None:
        self.acknowledged += error is None


def _stormed(kafka: Kafka, shape: str, every_s: float) -> Storm:
    topic = create_topic(kafka)
    rule = {"client-id": "c", "producer_byte_rate": _LIMIT, "shaping": shape}
    with Proxy({"quotas": [rule]}, kafka) as proxy:
        producers = [_Stormer(proxy, topic, number) for number in range(_STORMERS)]
        until_s = time.monotonic() + _STORM_S
        while time.monotonic() < until_s:
            for producer in producers:
                producer.send()
            time.sleep(every_s)
        for producer in producers:
            producer.leave()
        time.sleep(_UNTIL_DROPPED_S)
        dropped_at = end_offset(kafka, topic)
        time.sleep(_SILENT_S)
        records = _records(kafka, topic)
        abandoned = proxy.metrics().total(_ABANDONED)
    return Storm(
        written=Counter(key for key, _ in records),
        acknowledged=sum(producer.acknowledged for producer in producers),
        abandoned=abandoned,
        late=len(records) - dropped_at,
    )


@pytest.mark.long
@pytest.mark.parametrize("every_s", _STORM_EVERY_S)
@pytest.mark.parametrize("shape", _DEBTS)
def test_storm_of_retries_ends_with_its_clients(kafka_4: Kafka, shape: str, every_s: float) -> None:
    storm = _stormed(kafka_4, shape, every_s)

    print(f"{shape}, a record every {every_s} s: {storm}")  # noqa: T201
    assert storm.late <= _MOST_LATE
    assert storm.duplicates < _MOST_DUPLICATES
