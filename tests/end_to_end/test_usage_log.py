"""The usage log of a real proxy: its sums equal the forwarded bytes, also after a stop or a kill."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, TopicPartition

from tests.end_to_end.support.clients import Aiokafka, Java, Librdkafka, create_topic
from tests.end_to_end.support.frames import RawClient, raw_client
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import KIB, batch_of
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy

Record = dict[str, Any]

_BYTES = "kafka_quota_proxy_bytes_total"
_LOG = "kafka_quota_proxy_usage_log"
_SIZE_FIELD = 4
_IDENTITY = ("start_ms", "proxy", "broker", "kind", "user", "client_id", "listener")


def _usage_log(directory: Path, **more: object) -> dict[str, object]:
    return {"usage_log": {"directory": str(directory), "interval": "200ms", "proxy": "p1", **more}}


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


def test_sums_equal_the_bytes_of_real_clients(kafka_4: Kafka, tmp_path: Path) -> None:
    clients = (Librdkafka(settings={}), Aiokafka(), Java(kafka=kafka_4))
    with Proxy({**_usage_log(tmp_path), "principals": {"exempt": ["ANONYMOUS"]}}, kafka_4) as proxy:
        for client in clients:
            topic, client_id = create_topic(kafka_4), type(client).__name__
            client.produce(proxy.address(), topic, client_id=client_id, count=500)
            client.consume(proxy.address(), topic, client_id=client_id, count=500)
        wait_until(lambda: proxy.metrics().total("kafka_quota_proxy_connections") == 0, timeout_s=10, what="all left")
        metrics = proxy.metrics()
        assert proxy.stop() == 0

    records = _records(tmp_path)
    for kind in ("produce", "fetch"):
        for client in clients:
            labels = {"kind": kind, "client_id": type(client).__name__}
            assert _sum(records, **labels) == metrics.total(_BYTES, **labels) > 0
            assert _sum(records, "requests", **labels) == metrics.total("kafka_quota_proxy_requests_total", **labels)
    assert _sum(records, kind="connection") == metrics.total("kafka_quota_proxy_disconnects_total")


@pytest.mark.proof
def test_record_names_the_throttled_client_and_its_rule(kafka_4: Kafka, tmp_path: Path) -> None:
    topic = create_topic(kafka_4)
    listener = {"bind": kafka_4.listener().advertised_address, "upstream": kafka_4.listener().address}
    settings = {
        **_usage_log(tmp_path, interval="1s"),
        "listeners": [{"name": "PROXIED", "node_id": kafka_4.broker.node_id, **listener}],
        "quotas": [
            {"client-id": "slow", "producer_byte_rate": 10_000, "request_rate": 1_000},
            {"client-id": "seen", "producer_byte_rate": 10_000, "enforcement": "observe"},
        ],
    }
    throttled_ms: dict[str, int] = {}
    with Proxy(settings) as proxy:
        for client_id in ("slow", "seen"):
            with raw_client(proxy.port(), client_id=client_id) as client:
                throttled_ms[client_id] = client.produce(topic, batch_of(64 * KIB)).throttle_time_ms
                throttled_ms[client_id] += (
                    client.produce(topic, batch_of(64 * KIB)).throttle_time_ms if not throttled_ms[client_id] else 0
                )
        assert proxy.stop() == 0

    records = _records(tmp_path)
    slow = [record for record in records if record["client_id"] == "slow" and record["kind"] == "produce"]
    seen = [record for record in records if record["client_id"] == "seen" and record["kind"] == "produce"]
    assert throttled_ms["slow"] > 0
    assert (_sum(slow, "throttled_requests"), _sum(slow, "throttle_time_ms")) == (1, throttled_ms["slow"])
    assert {record["enforced"] for record in slow} == {True}
    assert throttled_ms["seen"] == 0
    assert _sum(seen, "throttled_requests") == 1
    assert _sum(seen, "throttle_time_ms") > 0
    assert {record["enforced"] for record in seen} == {False}
    for record in (*slow, *seen):
        assert (record["broker"], record["user"], record["limit"]) == (kafka_4.broker.node_id, "", 10_000.0)
        assert (record["rule_user"], record["rule_client_id"]) == (None, record["client_id"])
    assert _sum(records, "requests", kind="request_rate", client_id="slow") == _sum(slow, "requests")
    assert _sum(records, kind="connection", listener="PROXIED") == 2


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

    # An interval has 0.2 s. A busy machine may take as long again.
    before_s = killed_s - 0.4
    at_least = max(size_bytes for at_s, size_bytes in answered if at_s < before_s)
    assert at_least <= _sum(left, kind="produce") <= answered[-1][1] + answered[0][1]
    records = _records(tmp_path)
    assert _sum(records, kind="produce", client_id="after") == into
    started = {record["start_ms"] for record in records} - {record["start_ms"] for record in left}
    assert min(started) > max(record["start_ms"] for record in left)


def test_clients_are_served_and_no_record_lost_while_the_disk_is_full(kafka_4: Kafka, tmp_path: Path) -> None:
    topic = create_topic(kafka_4)
    in_the_way = tmp_path / "usage"
    in_the_way.write_bytes(b"")
    with Proxy(_usage_log(in_the_way), kafka_4) as proxy:
        first, _ = _exchange(proxy, topic, "a")
        wait_until(
            lambda: proxy.metrics().total(f"{_LOG}_postponed_intervals_total") > 2, timeout_s=10, what="puts it off"
        )
        assert proxy.metrics().values(f"{_LOG}_last_write_successful", sink="files") == [0]
        in_the_way.unlink()
        wait_until(
            lambda: proxy.metrics().total(f"{_LOG}_records_total") > 0, timeout_s=10, what="writes what it has kept"
        )
        second, _ = _exchange(proxy, topic, "a")
        assert proxy.log.count("usage log, files: cannot begin") == 1
        assert proxy.log.count("usage log, files: works again") == 1
        assert proxy.stop() == 0

    assert _sum(_records(in_the_way), kind="produce", client_id="a") == first + second


@pytest.mark.proof
def test_topic_has_the_same_records_as_the_files(kafka_4: Kafka, tmp_path: Path) -> None:
    topic, usage = create_topic(kafka_4), create_topic(kafka_4)
    to_topic = {"bootstrap_servers": kafka_4.bootstrap_servers, "topic": usage}
    with Proxy(_usage_log(tmp_path, kafka=to_topic), kafka_4) as proxy:
        into, out_of = _exchange(proxy, topic, "é")
        assert proxy.stop() == 0

    from_files = _records(tmp_path)
    messages = list(_messages(kafka_4, usage))
    from_topic = [json.loads(value) for _, value, _ in messages]
    assert sorted(map(str, from_topic)) == sorted(map(str, from_files))
    assert _sum(from_topic, kind="produce", client_id="é") == into
    assert _sum(from_topic, kind="fetch", client_id="é") == out_of
    for (key, _, timestamp), record in zip(messages, from_topic, strict=True):
        names = ("proxy", "broker", "kind", "user", "client_id", "listener")
        assert json.loads(key) == {name: record[name] for name in names if name in record}
        assert timestamp == (TIMESTAMP_CREATE_TIME, record["start_ms"])


def _messages(kafka: Kafka, topic: str) -> Iterator[tuple[bytes, bytes, tuple[int, int]]]:
    """Return the key, the value and the timestamp of all records in a topic with one partition."""
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "reads", "enable.auto.commit": False}
    )
    try:
        partition = TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(partition, timeout=10)
        consumer.assign([partition])
        for _ in range(end):
            message = consumer.poll(10)
            assert message is not None
            assert message.error() is None
            yield message.key() or b"", message.value() or b"", message.timestamp()
    finally:
        consumer.close()


def test_unreachable_log_cluster_stops_no_client_and_losses_are_reported(kafka_4: Kafka, tmp_path: Path) -> None:
    topic = create_topic(kafka_4)
    away = {"bootstrap_servers": "127.0.0.1:1"}
    with Proxy({"usage_log": {"kafka": away, "interval": "200ms"}}, kafka_4) as proxy:
        assert _exchange(proxy, topic, "a")
        wait_until(lambda: "usage log, topic: cannot begin" in proxy.log, timeout_s=10, what="says it")
        process, before_s = proxy.process, time.monotonic()
        process.signal(signal.SIGTERM)
        wait_until(lambda: not process.is_running, timeout_s=15, what="ends")

        assert process.exit_status == 0
        assert time.monotonic() - before_s < 10
        assert "usage log, topic: 3 records were not written in time and are lost" in proxy.log
