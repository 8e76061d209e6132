"""Tests the throttle time that is written into a response."""

import pytest

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, QuotaRule
from tests.support.frames import (
    fetch_request,
    fetch_response,
    produce_request,
    produce_response,
)
from tests.support.wire import Wire

A_TIGHT_RULE = QuotaRule(client_id=DEFAULT, producer_byte_rate=500.0, consumer_byte_rate=500.0)


@pytest.mark.parametrize(("brokers_ms", "told_ms"), [(0, 2_000), (1_999, 2_000), (2_001, 2_001), (9_000, 9_000)])
def test_larger_throttle_time_of_broker_and_proxy_counts(brokers_ms: int, told_ms: int) -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(fetch_request(1))

    answer = wire.broker(fetch_response(1, size_bytes=6_000, throttle_time_ms=brokers_ms))

    assert answer == fetch_response(1, size_bytes=6_000, throttle_time_ms=told_ms)
    assert wire.muted_for_ms == told_ms


def test_within_the_quota_the_brokers_throttle_time_stays() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(fetch_request(1))

    assert wire.broker(fetch_response(1, throttle_time_ms=77)) == fetch_response(1, throttle_time_ms=77)


@pytest.mark.parametrize(("version", "told_ms"), [(5, 2_000), (6, 0)])
def test_held_response_has_a_throttle_time_only_for_clients_that_do_not_wait_again(version: int, told_ms: int) -> None:
    wire = Wire(A_TIGHT_RULE, enforcement=Enforcement.DELAY)
    wire.client(produce_request(1, version=version, size_bytes=6_000))
    wire.broker(produce_response(1, version=version))

    wire.wait(2_000)

    assert wire.to_client() == produce_response(1, version=version, throttle_time_ms=told_ms)


def test_held_response_keeps_the_brokers_throttle_time() -> None:
    wire = Wire(A_TIGHT_RULE, enforcement=Enforcement.DELAY)
    wire.client(produce_request(1, size_bytes=6_000))
    wire.broker(produce_response(1, throttle_time_ms=70))

    wire.wait(2_000)

    assert wire.to_client() == produce_response(1, throttle_time_ms=70)


def test_a_throttle_time_is_bounded() -> None:
    wire = Wire(A_TIGHT_RULE, max_throttle_time_ms=25_000)
    wire.client(produce_request(1, size_bytes=1_000_000))

    assert wire.broker(produce_response(1)) == produce_response(1, throttle_time_ms=25_000)
    assert wire.muted_for_ms == 25_000


def test_longer_of_two_waits_counts() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(produce_request(1, size_bytes=5_000), fetch_request(2))
    wire.broker(produce_response(1), fetch_response(2, size_bytes=7_000))
    assert wire.muted_for_ms == 4_000

    wire.session.account.mute(1_000, now_ms=wire.now_ms)

    assert wire.muted_for_ms == 4_000
