"""Compares the limit on replication with Kafka's ``ReplicationQuotaManager`` (KIP-73).

The measure is Kafka's. The proxy also spreads bytes evenly over time, so it holds back some fetches that Kafka would
pass. It never passes one that Kafka would hold back, unless the limit has changed within the windows: then Kafka
measures what was fetched under the earlier limit by the new one.
"""

from random import Random

import pytest

from kafka_quota_proxy.proxy.quota.replication import ReplicationQuota
from tests.oracles.kafka import Kafka
from tests.oracles.seeds import STEPS, each_seed

T = 1_767_225_600_000


@each_seed
def test_any_fetches_have_kafkas_rate_and_none_passes_that_kafka_holds_back(kafka: Kafka, seeds: range) -> None:
    for seed in seeds:
        walk(kafka, Random(seed))


def walk(kafka: Kafka, chance: Random) -> None:
    samples, window_s = chance.choice([2, 3, 11]), chance.choice([1, 2])
    limit = chance.choice([1.0, 1_000.0, 1_000_000.0])
    now_ms = changed_ms = T
    kafka.begin_replication(samples=samples, window_s=window_s)
    kafka.limit_replication(limit, now_ms=now_ms)
    ours = ReplicationQuota(limit, samples=samples, window_ms=window_s * 1_000, now_ms=now_ms)
    longest_gap_ms = chance.choice([300, 3_000, 30_000])
    for _ in range(STEPS):
        now_ms += chance.choice([0, chance.randint(0, 50), chance.randint(0, longest_gap_ms)])
        if chance.random() < 0.01:
            limit, changed_ms = chance.choice([0.5, 1_000.0, 100_000.0]), now_ms
            kafka.limit_replication(limit, now_ms=now_ms)
            ours.change(limit, now_ms=now_ms)
        if chance.random() < 0.5:
            size_bytes = chance.randint(0, int(4 * limit) + 1)
            ours.reserve(size_bytes)
            ours.settle(size_bytes, size_bytes if chance.random() < 0.7 else 0, now_ms=now_ms)
            ours.record(size_bytes, now_ms=now_ms)
            kafka.replicate(size_bytes, now_ms=now_ms)
        is_exceeded = kafka.is_replication_exceeded(now_ms=now_ms)
        assert (ours.rate.measure(now_ms=now_ms) > limit) is is_exceeded
        if now_ms - changed_ms > (samples + 1) * window_s * 1_000 or changed_ms == T:
            # Less than a byte is a rounding error.
            assert not (ours.room(now_ms=now_ms) and ours.rate.measure(now_ms=now_ms) > limit + 1)


def test_limit_of_zero_lets_a_response_pass_in_kafka_after_a_quiet_time_and_never_here(kafka: Kafka) -> None:
    kafka.begin_replication()
    kafka.limit_replication(0, now_ms=T)
    ours = ReplicationQuota(0, samples=11, window_ms=1_000, now_ms=T)

    passed = []
    for now_ms in range(T, T + 60_000, 100):
        if not kafka.is_replication_exceeded(now_ms=now_ms):
            kafka.replicate(1_000_000, now_ms=now_ms)
            passed.append(now_ms - T)
        assert not ours.room(now_ms=now_ms)

    assert passed == [0, 11_000, 22_000, 33_000, 44_000, 55_000]


def test_kafkas_measure_after_a_lower_limit_stops_all_for_ten_seconds(kafka: Kafka) -> None:
    """The proxy passes the next response as soon as what is owed is paid at the new limit."""
    kafka.begin_replication()
    kafka.limit_replication(1_000_000, now_ms=T)
    ours = ReplicationQuota(1_000_000, samples=11, window_ms=1_000, now_ms=T)
    for now_ms in range(T, T + 11_000, 1_000):
        ours.record(1_000_000, now_ms=now_ms)
        kafka.replicate(1_000_000, now_ms=now_ms)

    changed_ms = T + 11_000
    kafka.limit_replication(100_000, now_ms=changed_ms)
    ours.change(100_000, now_ms=changed_ms)

    passes_ms = [
        at_ms for at_ms in range(0, 20_000, 100) if not kafka.is_replication_exceeded(now_ms=changed_ms + at_ms)
    ]
    assert ours.room_at_ms(now_ms=changed_ms) - changed_ms < 2_000 < passes_ms[0]
    assert passes_ms[0] == pytest.approx(9_000, abs=1_000)
