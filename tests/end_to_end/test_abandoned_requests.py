"""Requests whose clients have gone while they waited for a quota are dropped, with a real Kafka.

A producer that gives up sends its records again. If the proxy forwarded both requests, the quota would go to records
that are written twice.
"""

from __future__ import annotations

import socket
import struct
import time
from contextlib import ExitStack
from typing import Final, NamedTuple

import pytest

from tests.end_to_end.support.clients import create_topic, messages
from tests.end_to_end.support.frames import PRODUCE, PRODUCE_VERSION, RawClient, produce_body, raw_client, record_batch
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import batch_of
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Metrics, Proxy

_ABANDONED: Final = "kafka_quota_proxy_abandoned_requests_total"
_BYTES: Final = "kafka_quota_proxy_bytes_total"
_CONNECTIONS: Final = "kafka_quota_proxy_connections"
_LIMIT: Final = 50_000
# The rest of these takes seven seconds to be paid. A sampled rule allows eleven seconds of its limit at once, and a
# paced one a single second.
_DEBTS: Final = {"sampled": 900_000, "paced": 400_000}
_GONE: Final = 20
_LABELLED_BYTES: Final = 10_000
_SIZE_FIELD_BYTES: Final = 4
_PATIENCE_MS: Final = 1_000
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER of no seconds: close() resets the connection


class Scene(NamedTuple):
    """What is seen of one rule after its clients have gone.

    ``after`` is a scrape shortly after they left, and ``end`` one after the debt was paid. ``labels`` are those of
    the topic's records, and ``sent_bytes`` are the bytes of the requests that should be charged.
    """

    after: Metrics
    end: Metrics
    labels: list[str]
    sent_bytes: int


def _labelled(label: str) -> bytes:
    return record_batch([label.encode().ljust(_LABELLED_BYTES, b".")])


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
    with Proxy({"quotas": [rule]}, kafka) as proxy, ExitStack() as stack:
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
        wait_until(lambda: proxy.metrics().total(_ABANDONED) >= _GONE, timeout_s=20, what="their requests are dropped")
        after = proxy.metrics()
        assert time.monotonic() < paid_s

        # This request waits behind all others, so none of them waits any more when its answer comes.
        last = stack.enter_context(raw_client(proxy.port(), client_id="c"))
        assert last.produce(topic, _labelled("last")).error_code == 0
        time.sleep(max(0.0, paid_s - time.monotonic()) + 2)

        values = [message.value() or b"" for message in messages(kafka, topic)]
        return Scene(
            after=after,
            end=proxy.metrics(),
            labels=[value.rstrip(b".").decode() for value in values if len(value) == _LABELLED_BYTES],
            sent_bytes=sum(client.sent_bytes - _SIZE_FIELD_BYTES for client in (debtor, kept, last)),
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
