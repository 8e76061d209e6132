"""A quota that is set at any proxy of a fleet is in force at all of them, in the same order of changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafka_quota_proxy.protocol.client_quotas import EntityParts
from tests.end_to_end.support.clients import QUIET, create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import is_throttled
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.quota_fleet import Admin, Quotas, came_into_force, detail, fleet, settings

_P, _C = "producer_byte_rate", "consumer_byte_rate"
_RATE = "connection_creation_rate"
_ETL: EntityParts = (("client-id", "etl"),)
_ALICE: EntityParts = (("user", "alice"), ("client-id", None))
_IP: EntityParts = (("ip", "192.0.2.7"),)
_STORAGE_ERROR = 56
_TOPIC = "kafka_quota_proxy_store_topic"
# The longest time from a change until it is in force at every proxy.
_EVERYWHERE_S = 2


def _until(what: str, is_so: Callable[[], object], timeout_s: float = 20) -> None:
    wait_until(lambda: bool(is_so()), timeout_s=timeout_s, what=what)


def _store(kafka: Kafka, **config: str) -> str:
    return create_topic(kafka, config={"cleanup.policy": "compact", **config})


def _is_connected(proxy: Proxy) -> bool:
    return proxy.metrics().total("kafka_quota_proxy_store_topic_connected") == 1


def _last_in_force_at(proxy: Proxy) -> float:
    """Return the Unix time at which the last change came into force."""
    return max(datetime.fromisoformat(at).timestamp() for at, _, _ in came_into_force(proxy))


def test_quota_set_at_one_proxy_holds_at_the_other_and_is_kept(mortal_kafka: Kafka, tmp_path: Path) -> None:
    topic, store = create_topic(mortal_kafka), _store(mortal_kafka)
    with fleet(mortal_kafka, store, tmp_path, 2) as (one, other):
        with (
            Admin(one.port()) as at_one,
            Admin(other.port()) as at_other,
            raw_client(other.port(), client_id="etl") as client,
        ):
            assert not is_throttled(client, topic)
            changes = [(_ETL, {_P: 1_000.0}), (_ALICE, {_P: 7.0, _C: 8.0}), (_IP, {_RATE: 5.0})]
            asked_at = time.time()
            assert [one.error_code for one in at_one.alter_all(changes)] == [0, 0, 0]
            _until("the changes are in force at the other", lambda: len(came_into_force(other)) == 3)
            assert is_throttled(client, topic)
            for proxy in (one, other):
                assert _last_in_force_at(proxy) - asked_at < _EVERYWHERE_S

            # Each proxy deletes and changes quotas that were set at the other. No change undoes another.
            assert at_other.alter(_ALICE, {_P: None}).error_code == at_one.alter(_ALICE, {_C: 9.0}).error_code == 0
            assert at_other.alter(_IP, {_RATE: None}).error_code == 0
            wanted = {frozenset(_ETL): {_P: 1_000.0}, frozenset(_ALICE): {_C: 9.0}}
            assert at_other.describe() == wanted
            _until("both have the same", lambda: at_one.describe() == wanted)
            refused = at_one.alter(_ALICE, {"bad": 1.0})
            assert refused.error_message == "Invalid configuration key bad"

        # After a kill it reads everything again before it serves.
        other.kill()
        other.start()
        with Admin(other.port()) as admin:
            assert admin.describe() == wanted
        assert detail(other) == {
            "topic": f"kafka://{mortal_kafka.bootstrap_servers}/{store}",
            "connected": True, "read": True, "entities": 2, "offset": 7,
        }  # fmt: skip
        assert "Traceback" not in one.log + other.log


# -- ten proxies --


def _all_equal(proxies: Sequence[Proxy]) -> Quotas:
    """Wait until all proxies are at the same offset. Return their quotas, which must be equal."""
    _until("all are as far", lambda: len({proxy.metrics().total(f"{_TOPIC}_offset") for proxy in proxies}) == 1)
    described = []
    for proxy in proxies:
        with Admin(proxy.port()) as admin:
            described.append(admin.describe())
    assert all(one == described[0] for one in described)
    return described[0]


@pytest.mark.long
def test_kill_while_writing_loses_nothing_and_leaves_no_partial_change(mortal_kafka: Kafka, tmp_path: Path) -> None:
    """Each request sets two keys of two entities to one number."""
    store = _store(mortal_kafka)
    with fleet(mortal_kafka, store, tmp_path, 2) as (killed, other):
        number = acknowledged = 0

        def alters() -> None:
            nonlocal number, acknowledged
            with suppress(OSError), Admin(killed.port()) as admin:
                while True:
                    number += 1
                    limits = {_P: float(number), _C: float(number)}
                    assert all(one.error_code == 0 for one in admin.alter_all([(_ETL, limits), (_ALICE, limits)]))
                    acknowledged = number

        for wait_s in (0.3, 0.31, 0.32, 0.33, 0.34):
            before = acknowledged
            with ThreadPoolExecutor(1) as pool:
                altering = pool.submit(alters)
                time.sleep(wait_s)
                killed.kill()
                altering.result(60)
            assert acknowledged > before
            killed.start()
            described = _all_equal([killed, other])
            values = {value for limits in described.values() for value in limits.values()}
            assert set(described) == {frozenset(_ETL), frozenset(_ALICE)}
            assert values <= {float(acknowledged), float(number)}
            assert len(values) == 1


@pytest.mark.long
def test_topic_is_compacted_garbled_deleted_and_recreated(mortal_kafka: Kafka, tmp_path: Path) -> None:
    quickly = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "delete.retention.ms": "0"}
    store = _store(mortal_kafka, **quickly)
    client = AdminClient({"bootstrap.servers": mortal_kafka.bootstrap_servers, **QUIET})
    producer = Producer({"bootstrap.servers": mortal_kafka.bootstrap_servers, **QUIET})
    with fleet(mortal_kafka, store, tmp_path, 2) as (one, other):
        with Admin(one.port()) as admin:
            for number in range(50):
                assert admin.alter(_ETL, {_P: 100.0 + number}).error_code == 0
            assert admin.alter_all([(_ALICE, {_P: 7.0}), (_IP, {_RATE: 5.0})])[1].error_code == 0
            assert admin.alter(_ALICE, {_P: None}).error_code == 0
            for key in (b"?", b'{"client-id":"etl","key":"producer_byte_rate"}', b""):
                producer.produce(store, key=key, value=b"garbage")
                assert producer.flush(30) == 0
            # Later records need a new segment, because compaction skips the last one.
            time.sleep(0.2)
            assert admin.alter(_IP, {_RATE: 6.0}).error_code == 0
            wanted = {frozenset(_ETL): {_P: 149.0}, frozenset(_IP): {_RATE: 6.0}}
            assert admin.describe() == _all_equal([one, other]) == wanted
        assert one.metrics().total(f"{_TOPIC}_not_understood_records_total") == 3

        # Compaction removes the valid value before the garbage. Proxies that have read the valid value keep it, also on
        # disk.
        _until("it is compacted", lambda: _record_count(mortal_kafka, store) < 15, 120)
        other.stop()
        other.start()
        assert _all_equal([one, other]) == wanted
        with Proxy(settings(mortal_kafka, store, None)) as late:
            with Admin(late.port()) as admin:
                assert admin.describe() == {frozenset(_IP): {_RATE: 6.0}}
                assert admin.alter(_ETL, {_P: 3.0}).error_code == 0
            wanted = {frozenset(_ETL): {_P: 3.0}, frozenset(_IP): {_RATE: 6.0}}
            assert _all_equal([one, other, late]) == wanted

        client.delete_topics([store])[store].result(30)
        _until("says that it has gone", lambda: "there is no such topic" in one.log and not _is_connected(one))
        with Admin(one.port()) as admin:
            refused = admin.alter(_ETL, {_P: 1.0})
            assert (refused.error_code, str(refused.error_message)[-22:]) == (_STORAGE_ERROR, "there is no such topic")
            assert admin.describe() == wanted
        assert store not in client.list_topics(timeout=10).topics
        client.create_topics([NewTopic(store, 1, 1, config={"cleanup.policy": "delete"})])[store].result(30)
        _until("both read it", lambda: _is_connected(one) and _is_connected(other), 40)
        assert _all_equal([one, other]) == {}
        assert "the known quotas of 2 entities are removed" in one.log
        _until("says that it is not compacted", lambda: "has cleanup.policy=delete" in one.log)
        assert "Traceback" not in one.log + other.log


def _record_count(kafka: Kafka, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "count", **QUIET})
    consumer.assign([TopicPartition(topic, 0, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    count, last = 0, -1
    while last < end - 1:
        message = consumer.poll(30)
        assert message is not None
        count, last = count + 1, message.offset() or 0
    consumer.close()
    return count
