"""Tests that Produce requests are charged."""

import pytest

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, QuotaRule
from tests.support.frames import (
    other_request,
    other_response,
    produce_request,
    produce_response,
)
from tests.support.wire import Wire

PRODUCE_VERSIONS = range(14)


A_TIGHT_RULE = QuotaRule(client_id=DEFAULT, producer_byte_rate=500.0, consumer_byte_rate=500.0)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_spike_over_quota_waits_as_long_as_in_kafka(version: int) -> None:
    """Source: Kafka's ClientQuotaManagerTest.testQuotaViolation, here over a connection."""
    wire = Wire(A_TIGHT_RULE)
    for number in range(10):
        wire.client(produce_request(number, version=version, size_bytes=400))
        assert wire.broker(produce_response(number, version=version)) == produce_response(number, version=version)
        wire.wait(1_000)
    wire.wait(500)

    wire.client(produce_request(10, version=version, size_bytes=2_300))
    answer = wire.broker(produce_response(10, version=version))

    # (400 B * 10 + 2,300 B) / 10.5 s = 600 B/s, so the wait is (600 - 500) / 500 * 10.5 s = 2.1 s.
    assert answer == produce_response(10, version=version, throttle_time_ms=2_100)
    assert wire.muted_for_ms == 2_100


def test_without_acks_the_end_of_the_request_is_charged_and_mutes() -> None:
    wire = Wire(A_TIGHT_RULE)
    request = produce_request(1, acks=0, size_bytes=6_000)

    wire.client(request[:5_000])
    assert wire.bucket().amount == 0
    wire.client(request[5_000:])

    assert wire.bucket().amount == 6_000
    assert wire.muted_for_ms == 2_000
    assert wire.session.is_idle  # no response is to come


def test_flood_without_acks_in_one_read_stops_at_the_request_over_quota() -> None:
    wire = Wire(A_TIGHT_RULE)
    flood = [produce_request(number, acks=0, size_bytes=2_000) for number in range(50)]

    passed = wire.client(b"".join(flood))

    assert passed == b"".join(flood[:3])  # 6,000 B in 10 s are over 500 B/s
    wire.wait(2_000)
    assert wire.to_broker() == flood[3]


def test_response_is_matched_with_the_produce_that_has_acks() -> None:
    wire = Wire()
    wire.client(produce_request(1, acks=0), produce_request(2, acks=1), produce_request(3, acks=0), other_request(4))

    assert wire.broker(produce_response(2), other_response(4)) == produce_response(2) + other_response(4)


def test_delay_without_an_answer_mutes() -> None:
    wire = Wire(A_TIGHT_RULE, enforcement=Enforcement.DELAY)

    wire.client(produce_request(1, acks=0, size_bytes=6_000))

    assert wire.muted_for_ms == 2_000


@pytest.mark.parametrize("acks", [0, 1])
def test_unknown_produce_version_is_charged(acks: int) -> None:
    wire = Wire(A_TIGHT_RULE)

    wire.client(produce_request(1, version=14, acks=acks, size_bytes=6_000))
    if acks:
        wire.broker(produce_response(1, version=14))

    assert wire.muted_for_ms == 2_000
    assert wire.listening.counters.unknown_apis == {0: 1}
