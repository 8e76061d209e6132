"""Tests the time that a broker usually takes, and the grace that follows from it."""

from kafka_quota_proxy.proxy.fair_queue.usual_time import (
    LEAST_GRACE_US,
    LEAST_PATIENCE_US,
    MOST_GRACE_US,
    UsualTime,
)


def noted(*times_us: int, every_us: int = 1_000) -> tuple[UsualTime, int]:
    usual, now_us = UsualTime(), 10**9
    for time_us in times_us:
        now_us += every_us
        usual.note(time_us, now_us)
    return usual, now_us


def test_the_mean_follows_the_broker() -> None:
    usual, now_us = noted(2_000, *[8_000] * 100)
    assert 7_900 < usual.mean_us(now_us) <= 8_000
    assert usual.grace_us(now_us) == int(4 * usual.mean_us(now_us))


def test_what_waits_at_the_broker_hardly_counts() -> None:
    usual, now_us = noted(*[2_000] * 100, 8_800_000)
    assert usual.mean_us(now_us) == 2_000 + (LEAST_PATIENCE_US - 2_000) / 16


def test_a_broker_that_has_become_slow_gets_a_longer_grace() -> None:
    usual, now_us = noted(*[1_000] * 100, *[60_000] * 40)
    assert usual.grace_us(now_us) > 2 * 60_000
    usual, now_us = noted(*[600_000] * 400)
    assert usual.grace_us(now_us) == MOST_GRACE_US


def test_the_mean_is_forgotten() -> None:
    usual, now_us = noted(*[8_000] * 100)
    assert usual.mean_us(now_us + 999_999) == 8_000
    assert usual.mean_us(now_us + 3_000_000) == 1_000
    assert usual.mean_us(now_us + 10**12) == 0
    assert usual.grace_us(now_us + 10**12) == LEAST_GRACE_US
    assert usual.mean_us(now_us - 10**12) == 8_000  # a clock that goes back
