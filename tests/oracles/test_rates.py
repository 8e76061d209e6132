"""Compares measured rates, averages and token buckets with Kafka's ``Rate``, ``SimpleRate``, ``Avg``, ``TokenBucket``.

All are equal to the last bit. The copies of Kafka's arithmetic that tests keep because they run in worlds and replays,
where a program beside them would be too slow, are compared, too.
"""

from collections.abc import Callable
from math import isnan
from random import Random

import pytest

from kafka_quota_proxy.proxy.quota.rate import Average, Rate, SimpleRate
from kafka_quota_proxy.proxy.quota.token_bucket import TokenBucket
from tests.oracles.kafka import Kafka, StatisticKind
from tests.oracles.seeds import STEPS, each_seed
from tests.simulation.checks.kafka_rate import KafkaRate
from tests.support import kafka_rate

# Clocks that have just started, that have run for days, and that count from 1970.
STARTS_MS = (0, 1, 999, 86_400_000, 1_767_225_600_000)


def gap_ms(chance: Random, samples: int, window_ms: int) -> int:
    """Return a pause. Those at the edges of a window and of all windows are likely."""
    span_ms = samples * window_ms
    edges = [window_ms - 1, window_ms, window_ms + 1, span_ms - window_ms, span_ms - 1, span_ms, span_ms + 1]
    drawn = [0, chance.choice(edges), chance.randint(0, window_ms), chance.randint(0, span_ms + 3 * window_ms)]
    return chance.choice(drawn)


@pytest.mark.parametrize(("kind", "make"), [("rate", Rate), ("simple-rate", SimpleRate)])
@each_seed
def test_any_records_and_readings_give_kafkas_rate(
    kafka: Kafka, kind: StatisticKind, make: Callable[..., Rate], seeds: range
) -> None:
    for seed in seeds:
        chance = Random(seed)
        samples, window_ms = chance.choice([2, 3, 5, 11]), chance.choice([1, 2, 10, 1_000, 30_000])
        now_ms = chance.choice(STARTS_MS)
        rate = make(samples=samples, window_ms=window_ms)
        kafka.begin_statistic(kind, samples=samples, window_ms=window_ms)
        for _ in range(STEPS):
            now_ms += gap_ms(chance, samples, window_ms)
            match chance.choice(["record", "record", "record", "measure", "window", "peek"]):
                case "record":
                    value = chance.choice([chance.randint(-1_000, 5_000), chance.randint(0, 2**31 - 1)])
                    rate.record(value, now_ms=now_ms)
                    kafka.record(value, now_ms=now_ms)
                case "measure":
                    assert rate.measure(now_ms=now_ms) == kafka.measure(now_ms=now_ms)
                case "window":
                    assert rate.window_ms(now_ms=now_ms) == kafka.window_ms(now_ms=now_ms)
                case _:
                    # If a peek changed the rate, the next steps would differ.
                    assert rate.peek(now_ms=now_ms) == kafka.peek(now_ms=now_ms)


@each_seed
def test_any_values_have_kafkas_average(kafka: Kafka, seeds: range) -> None:
    for seed in seeds:
        chance = Random(seed)
        now_ms, average = chance.choice(STARTS_MS), Average()
        kafka.begin_statistic("average", samples=2, window_ms=30_000)
        for _ in range(STEPS // 4):
            now_ms += gap_ms(chance, 2, 30_000)
            mean, kafkas_mean = average.peek(now_ms=now_ms), kafka.peek(now_ms=now_ms)
            assert mean == kafkas_mean or (isnan(mean) and isnan(kafkas_mean))
            value = chance.randint(0, 100_000)
            average.record(value, now_ms=now_ms)
            kafka.record(value, now_ms=now_ms)


@each_seed
def test_any_records_and_readings_give_kafkas_tokens(kafka: Kafka, seeds: range) -> None:
    for seed in seeds:
        chance = Random(seed)
        limit = chance.choice([1.0, 100.0, 1_024.0, 10_485_760.0, chance.uniform(1, 1e9)])
        samples, window_ms = chance.choice([1, 11]), chance.choice([1, 100, 1_000])
        now_ms = STARTS_MS[-1]  # Kafka's is full at first because so much time has passed since 1970
        tokens = TokenBucket(burst_ms=samples * window_ms, byte_rate_limit=limit, now_ms=now_ms)
        config = kafka_rate.MetricConfig(samples=samples, window_ms=window_ms, bound=limit)
        of_replays = kafka_rate.TokenBucket()
        kafka.begin_statistic("token-bucket", samples=samples, window_ms=window_ms, limit=limit)
        for _ in range(STEPS):
            now_ms += chance.choice([0, chance.randint(0, 2_000), chance.randint(0, 10**7)])
            if chance.random() < 0.6:
                value = chance.choice([chance.randint(-1_000, 10_000), chance.randint(0, 2**31 - 1)])
                left = tokens.record(value, byte_rate_limit=limit, now_ms=now_ms)
                kafka.record(value, now_ms=now_ms)
                of_replays.record(config, value, now_ms)
                assert of_replays.tokens == left
            # If a peek changed the bucket, the next steps would differ.
            assert tokens.peek(byte_rate_limit=limit, now_ms=now_ms) == kafka.peek(now_ms=now_ms)


@each_seed
def test_the_copies_that_tests_keep_wait_as_kafka(kafka: Kafka, seeds: range) -> None:
    for seed in seeds:
        chance = Random(seed)
        samples, limit, now_ms = chance.choice([2, 3, 11]), chance.choice([333.3, 1_000.0, 65_536.0]), STARTS_MS[-1]
        kafka.begin_client_quotas("produce", samples=samples)
        kafka.limit("alice", None, limit, now_ms=now_ms)
        of_worlds, of_replays = KafkaRate(samples, 1_000), kafka_rate.Rate()
        config = kafka_rate.MetricConfig(samples=samples, window_ms=1_000, bound=limit)
        for _ in range(STEPS):
            now_ms += gap_ms(chance, samples, 1_000)
            amount = chance.randint(0, int(3 * limit))
            wait_ms = kafka.charge("alice", "etl", amount, now_ms=now_ms)
            of_worlds.record(amount, now_ms)
            assert of_worlds.throttle_ms(limit, now_ms) == pytest.approx(wait_ms, abs=0.5 + 1e-6)  # not rounded
            assert kafka_rate.record_and_get_throttle_time_ms(of_replays, config, amount, now_ms) == wait_ms
