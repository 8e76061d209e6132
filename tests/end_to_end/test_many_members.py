"""Thirty clients of each library share a quota of a hundredth of their unlimited rate, without errors."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any, Final

import confluent_kafka
import pytest

from tests.end_to_end.support.clients import QUIET, create_topic, end_offset
from tests.end_to_end.support.crowds import BATCH_BYTES, KIB, MIB, topic_to_read
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.many_members import AIOKAFKA, CONSUME, JAVA, LIBRDKAFKA, PRODUCE, Members, Report
from tests.end_to_end.support.proxy import Proxy

_LIBRARIES: Final = (JAVA, LIBRDKAFKA, AIOKAFKA)
_MEMBERS: Final = 30
_READ_PARTITIONS: Final = 60
_PARTITION_RECORDS: Final = 64
_WRITTEN_PARTITIONS: Final = 6
_RECORD_BYTES: Final = 4_000
_FIRST_CYCLES_S: Final = 22
_ALONE_S: Final = 25
_SLOWED_TO: Final = 0.01


def _members(kafka: Kafka, library: str, action: str, address: str, topic: str, seconds: int) -> Members:
    size = _PARTITION_RECORDS if action == CONSUME else _RECORD_BYTES
    return Members(
        library,
        action,
        kafka,
        address=address,
        topic=topic,
        client_id=library,
        count=_MEMBERS,
        seconds=seconds,
        size=size,
    )


def _topic_to_read(kafka: Kafka) -> str:
    size_bytes = _READ_PARTITIONS * _PARTITION_RECORDS * BATCH_BYTES
    return topic_to_read(kafka, partitions=_READ_PARTITIONS, size_bytes=size_bytes).name


def _unlimited_rate(kafka: Kafka, library: str) -> float:
    """Return the rate of such a group directly at the broker, in bytes per second."""
    with _members(kafka, library, CONSUME, kafka.bootstrap_servers, _topic_to_read(kafka), _ALONE_S) as members:
        report = members.report()
    settled_s = max(report.rebalances)
    return report.rate(settled_s + 1, report.flow[-1][0])


def _through_proxy(
    kafka: Kafka,
    action: str,
    topics: dict[str, str],
    *,
    shaping: str,
    quotas: dict[str, int],
    settle_s: int,
    seconds: int,
) -> tuple[dict[str, Report], float]:
    """Run a group of each library at the same time. Return their reports, and the number of closed connections.

    Only connections that close after ``settle_s`` and before the end count.
    """
    key = "consumer_byte_rate" if action == CONSUME else "producer_byte_rate"
    settings: dict[str, Any] = {"quotas": [{"client-id": name, key: quota} for name, quota in quotas.items()]}
    with Proxy({**settings, "shaping": shaping}, kafka) as proxy, ExitStack() as stack:

        def ended() -> float:
            return proxy.metrics().total("kafka_quota_proxy_disconnects_total")

        begin_s = time.monotonic()
        groups = {
            library: stack.enter_context(_members(kafka, library, action, proxy.address(), topic, seconds))
            for library, topic in topics.items()
        }
        time.sleep(begin_s + settle_s - time.monotonic())
        ended_before = ended()
        time.sleep(begin_s + seconds - 3 - time.monotonic())
        ended_meanwhile = ended() - ended_before
        return {library: group.report() for library, group in groups.items()}, ended_meanwhile


def _consume(kafka: Kafka, quotas: dict[str, int], *, shaping: str, settle_s: int, seconds: int, within: float) -> None:
    topics = dict.fromkeys(quotas, _topic_to_read(kafka))
    begin_s = time.monotonic()

    reports, ended = _through_proxy(
        kafka, CONSUME, topics, shaping=shaping, quotas=quotas, settle_s=settle_s, seconds=seconds
    )

    formed_s = {library: max(report.rebalances) - begin_s for library, report in reports.items()}
    print(f"{shaping}: last rebalances after {formed_s} of {seconds} s")  # noqa: T201
    assert max(formed_s.values()) < settle_s
    shares = {
        library: report.rate(begin_s + max(formed_s[library], _FIRST_CYCLES_S), begin_s + seconds - 1) / quotas[library]
        for library, report in reports.items()
    }
    _check(reports, shares, quotas, within=within)
    assert ended == 0


def _produce(kafka: Kafka, quotas: dict[str, int], *, shaping: str, seconds: int, within: float) -> None:
    topics = {library: create_topic(kafka, partitions=_WRITTEN_PARTITIONS) for library in quotas}
    begin_s = time.monotonic()

    reports, ended = _through_proxy(
        kafka, PRODUCE, topics, shaping=shaping, quotas=quotas, settle_s=_FIRST_CYCLES_S, seconds=seconds
    )

    shares = {
        library: report.rate(begin_s + _FIRST_CYCLES_S, begin_s + seconds - 1) / quotas[library]
        for library, report in reports.items()
    }
    print(shaping)  # noqa: T201
    _check(reports, shares, quotas, within=within)
    for library, report in reports.items():
        wanted = sorted(f"{member}:{number}" for member, count in enumerate(report.sent) for number in range(count))
        assert _keys(kafka, topics[library]) == wanted, f"{library}: lost or doubled"
    assert ended == 0


def _check(reports: dict[str, Report], shares: dict[str, float], quotas: dict[str, int], *, within: float) -> None:
    for library, share in shares.items():
        print(f"{_MEMBERS} of {library}: {share:.3f} of {quotas[library] // KIB} KiB/s")  # noqa: T201
    assert {library: report.errors[:5] for library, report in reports.items() if report.errors} == {}
    assert shares == pytest.approx(dict.fromkeys(shares, 1.0), abs=within)


def _keys(kafka: Kafka, topic: str) -> list[str]:
    """Return the keys of all records, sorted."""
    ends = {number: end_offset(kafka, topic, partition=number) for number in range(_WRITTEN_PARTITIONS)}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "unused", **QUIET})
    consumer.assign(
        [confluent_kafka.TopicPartition(topic, number, confluent_kafka.OFFSET_BEGINNING) for number in ends]
    )
    keys: list[str] = []
    deadline_s = time.monotonic() + 60
    while len(keys) < sum(ends.values()) and time.monotonic() < deadline_s:
        for message in consumer.consume(5_000, timeout=0.5):
            assert message.error() is None
            keys.append((message.key() or b"").decode())
    consumer.close()
    return sorted(keys)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shaping", ["sampled", "paced"])
def test_groups_of_all_libraries_read_at_a_hundredth_of_their_speed_without_rebalance(
    kafka_4: Kafka, shaping: str
) -> None:
    quotas = {library: int(_SLOWED_TO * _unlimited_rate(kafka_4, library)) for library in _LIBRARIES}

    _consume(kafka_4, quotas, shaping=shaping, settle_s=60, seconds=300, within=0.1)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shaping", ["sampled", "paced"])
def test_producers_of_all_libraries_write_at_their_quota_and_lose_nothing(kafka_4: Kafka, shaping: str) -> None:
    _produce(kafka_4, dict.fromkeys(_LIBRARIES, MIB), shaping=shaping, seconds=300, within=0.1)
