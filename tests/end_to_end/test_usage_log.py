"""The usage log of a real proxy: its sums equal the forwarded bytes, also after a stop or a kill."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME
from confluent_kafka.admin import AdminClient

from tests.end_to_end.support.clients import create_topic, messages
from tests.end_to_end.support.frames import RawClient, raw_client
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import KIB, batch_of
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy

Record = dict[str, Any]

_BYTES = "kafka_quota_proxy_bytes_total"
_SIZE_FIELD = 4
_IDENTITY = ("start_ms", "cluster", "proxy", "broker", "kind", "user", "client_id", "listener")


def _usage_log(directory: Path) -> dict[str, object]:
    return {"usage_log": {"directory": str(directory), "interval": "200ms", "proxy": "p1"}}


def _records(directory: Path) -> list[Record]:
    """Return the records of all files. Each line must be complete, and each identity unique."""
    lines = [line for path in sorted(directory.glob("usage-p1-*.jsonl")) for line in path.read_bytes().splitlines()]
    records = [json.loads(line) for line in lines]
    assert len({tuple(record.get(key) for key in _IDENTITY) for record in records}) == len(records)
    return records


def _sum(records: Iterable[Record], field: str = "amount", **wanted: object) -> int:
    return sum(record[field] for record in records if wanted.items() <= record.items())


def _exchange(proxy: Proxy, topic: str, client_id: str, *, count: int = 3) -> tuple[int, int]:
    """Produce and fetch, and return the charged bytes of each."""
    batch = batch_of(16 * KIB)
    with raw_client(proxy.port(), client_id=client_id) as client:
        for _ in range(count):
            assert client.produce(topic, batch).error_code == 0
    with raw_client(proxy.port(), client_id=client_id) as consumer:
        for offset in range(count):
            assert consumer.fetch(topic, offset=offset, max_bytes=64 * KIB, max_wait_ms=50).error_code == 0
    return client.sent_bytes - _SIZE_FIELD * count, consumer.received_bytes - _SIZE_FIELD * count


@pytest.mark.proof
def test_sums_equal_the_bytes_sent_through_evictions_and_reloads(kafka_4: Kafka, tmp_path: Path) -> None:
    topic = create_topic(kafka_4)
    common = {**_usage_log(tmp_path), "max_buckets": 2}
    rules = [{"client-id": "<default>", "producer_byte_rate": "50MiB", "consumer_byte_rate": "50MiB"}]
    named = [{"client-id": "raw-1", "producer_byte_rate": "80MiB"}]
    produced = fetched = 0
    with Proxy(common, kafka_4) as proxy:
        for quotas in (rules, named, []):
            for number in range(5):
                into, out_of = _exchange(proxy, topic, f"raw-{number}")
                produced += into
                fetched += out_of
            assert proxy.reload({**common, "quotas": quotas})
        metrics = proxy.metrics()
        assert proxy.stop() == 0

    records = _records(tmp_path)
    assert metrics.total("kafka_quota_proxy_evicted_buckets_total") > 0
    assert _sum(records, kind="produce") == metrics.total(_BYTES, kind="produce") == produced
    assert _sum(records, kind="fetch") == metrics.total(_BYTES, kind="fetch") == fetched
    assert _sum(records, "requests", kind="produce") == 3 * 5 * 3
    assert {record["rule_client_id"] for record in records} == {"<default>", "raw-1", None}


@contextmanager
def _producing(proxy: Proxy, topic: str) -> Iterator[list[tuple[float, int]]]:
    """Produce in a thread. Yields the time of each response, and the bytes that were charged by then at the least."""
    answered: list[tuple[float, int]] = []
    ends = threading.Event()
    batch = batch_of(16 * KIB)
    client = RawClient(proxy.port(), client_id="load")

    def produce() -> None:
        requests = 0
        with suppress(OSError, EOFError):
            while not ends.is_set():
                assert client.produce(topic, batch).error_code == 0
                requests += 1
                answered.append((time.monotonic(), client.sent_bytes - _SIZE_FIELD * requests))
                time.sleep(0.002)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield answered
    finally:
        ends.set()
        thread.join(30)
        client.close()


def test_log_is_complete_after_a_sigterm_under_load(kafka_4: Kafka, tmp_path: Path) -> None:
    topic = create_topic(kafka_4)
    with Proxy(_usage_log(tmp_path), kafka_4) as proxy, _producing(proxy, topic) as answered:
        time.sleep(1)
        assert proxy.stop() == 0

    acknowledged, one = answered[-1][1], answered[0][1]
    assert not list(tmp_path.glob("*.part"))
    assert len(answered) > 20
    # A request may be charged although the client got no answer.
    assert _sum(_records(tmp_path), kind="produce") in (acknowledged, acknowledged + one)


def test_kill_loses_one_interval_and_the_next_start_completes_its_file(kafka_4: Kafka, tmp_path: Path) -> None:
    topic = create_topic(kafka_4)
    with Proxy(_usage_log(tmp_path), kafka_4) as proxy:
        with _producing(proxy, topic) as answered:
            time.sleep(2)
            killed_s = time.monotonic()
            proxy.kill()
        (part,) = tmp_path.glob("*.part")
        with part.open("ab") as file:
            file.write(b'{"start_ms":17')
        proxy.start()
        message = "dropped 14 bytes of an incomplete one"
        wait_until(lambda: message in proxy.log, timeout_s=10, what="completes what was left")
        assert not list(tmp_path.glob("*.part"))
        left = _records(tmp_path)
        into, _ = _exchange(proxy, topic, "after")
        assert proxy.stop() == 0

    # An interval has 0.2 s. A busy machine may take longer.
    before_s = killed_s - 1
    at_least = max(size_bytes for at_s, size_bytes in answered if at_s < before_s)
    assert at_least <= _sum(left, kind="produce") <= answered[-1][1] + answered[0][1]
    records = _records(tmp_path)
    assert _sum(records, kind="produce", client_id="after") == into
    started = {record["start_ms"] for record in records} - {record["start_ms"] for record in left}
    assert min(started) > max(record["start_ms"] for record in left)


@pytest.mark.proof
def test_topic_has_the_bytes_sent(kafka_4: Kafka) -> None:
    topic, usage = create_topic(kafka_4), create_topic(kafka_4)
    to_topic = {"bootstrap_servers": kafka_4.bootstrap_servers, "topic": usage}
    with Proxy({"usage_log": {"kafka": to_topic, "interval": "200ms", "proxy": "p1"}}, kafka_4) as proxy:
        # Metadata responses tell the proxy the id of the broker.
        cluster_id = AdminClient({"bootstrap.servers": proxy.address()}).list_topics(timeout=10).cluster_id
        into, out_of = _exchange(proxy, topic, "é")
        assert proxy.stop() == 0

    found = list(messages(kafka_4, usage))
    from_topic = [json.loads(message.value() or b"") for message in found]
    assert _sum(from_topic, kind="produce", client_id="é") == into
    assert _sum(from_topic, kind="fetch", client_id="é") == out_of
    assert {record.get("cluster") for record in from_topic if record["client_id"] == "é"} == {cluster_id}
    for message, record in zip(found, from_topic, strict=True):
        names = ("proxy", "broker", "kind", "user", "client_id", "listener", "cluster")
        assert json.loads(message.key() or b"") == {name: record[name] for name in names if name in record}
        assert message.timestamp() == (TIMESTAMP_CREATE_TIME, record["start_ms"])
