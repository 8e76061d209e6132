"""Tests how long requests in flight delay the other requests of their bucket."""

import pytest

from kafka_quota_proxy.config.model import Shaping
from tests.support.quota_manager import bucket_of_alice, manager_of, rule


@pytest.mark.parametrize("shaping", Shaping)
def test_a_late_answer_ends_only_its_own_reservation(shaping: Shaping) -> None:
    bucket = bucket_of_alice(manager_of(rule("alice"), shaping=shaping, burst_ms=10_000))
    bucket.reserve(10_000, now_ms=0)
    assert not bucket.is_free(1, now_ms=9_999)
    assert bucket.is_free(10_000, now_ms=11_000)
    bucket.reserve(10_000, now_ms=11_000)

    bucket.settle(10_000)
    assert bucket.charge(10_000, now_ms=12_000) == 0

    assert not bucket.is_free(1, now_ms=20_999)
    assert bucket.free_at_ms(now_ms=20_000) == 21_000
    assert bucket.is_free(1, now_ms=21_000)


def test_an_answer_in_time_makes_room_for_the_next_request() -> None:
    bucket = bucket_of_alice(manager_of(rule("alice")))
    for _ in range(3):
        bucket.reserve(4_000, now_ms=0)

    bucket.settle(4_000)

    assert not bucket.is_free(4_000, now_ms=7_999)
    assert bucket.is_free(4_000, now_ms=8_000)


def test_a_reservation_that_is_larger_than_the_quota_lasts_25_seconds() -> None:
    bucket = bucket_of_alice(manager_of(rule("alice")))
    bucket.reserve(84_000_000, now_ms=0)

    assert not bucket.is_free(1, now_ms=24_999)
    assert bucket.free_at_ms(now_ms=0) == 25_000
    assert bucket.is_free(1, now_ms=25_000)


def test_the_end_of_a_large_reservation_shortens_no_other_one() -> None:
    bucket = bucket_of_alice(manager_of(rule("alice")))
    bucket.reserve(8_000_000, now_ms=0)
    bucket.reserve(10_000, now_ms=0)

    bucket.settle(8_000_000)

    assert not bucket.is_free(1, now_ms=9_999)
    assert bucket.is_free(1, now_ms=10_000)
