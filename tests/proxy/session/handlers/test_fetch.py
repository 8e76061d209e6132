"""Tests that a Fetch request is capped to the quota, and that its response is charged."""

import pytest

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, QuotaRule, Shaping
from tests.support.frames import (
    fetch_request,
    fetch_response,
)
from tests.support.wire import Wire

FETCH_VERSIONS = range(19)


A_TIGHT_RULE = QuotaRule(client_id=DEFAULT, producer_byte_rate=500.0, consumer_byte_rate=500.0)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_over_quota_is_delivered_charged_and_muted(version: int) -> None:
    wire = Wire(A_TIGHT_RULE)
    charge = 6_000 if version < 12 else 5_999  # the tag byte of the response's header is not charged

    wire.client(fetch_request(1, version=version))
    answer = wire.broker(fetch_response(1, version=version, size_bytes=6_000))

    wait_ms = (charge - 5_000) * 2
    assert answer == fetch_response(1, version=version, size_bytes=6_000, throttle_time_ms=wait_ms)
    assert wire.muted_for_ms == wait_ms
    assert wire.bucket("fetch").usage.amount == charge


def test_consumer_within_kafkas_limit_is_told_nothing_and_fetches_on() -> None:
    """Kafka's windows allow 500 B/s for ten seconds at once."""
    wire = Wire(A_TIGHT_RULE)
    wire.client(fetch_request(1))

    assert wire.broker(fetch_response(1, size_bytes=5_000)) == fetch_response(1, size_bytes=5_000)
    assert wire.muted_for_ms == 0
    assert wire.client(fetch_request(2)) == fetch_request(2, max_bytes=1)


def test_second_idle_consumer_is_forwarded_as_soon_as_a_broker_with_data_would_have_answered_the_first() -> None:
    wire = Wire(A_TIGHT_RULE, shaping=Shaping.PACED)
    wire.client(fetch_request(1))
    other = wire.beside()

    assert other.client(fetch_request(1)) == b""
    other.wait(21)

    assert other.to_broker() != b""
    assert other.to_client() == b""


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_asks_for_no_more_than_the_quota_allows_in_a_window(version: int) -> None:
    """Kafka caps at limit * (N - 1) * W (KAFKA-9677). The proxy caps at half of it, for shorter throttle times."""
    wire = Wire(A_TIGHT_RULE)

    passed = wire.client(fetch_request(1, version=version, max_bytes=1_000_000, min_bytes=9_000))

    if version < 3:
        assert passed == fetch_request(1, version=version, max_bytes=1_000_000, min_bytes=9_000)
    else:
        assert passed == fetch_request(1, version=version, max_bytes=2_500, min_bytes=2_500)


def test_fetch_below_the_cap_is_forwarded_unchanged() -> None:
    wire = Wire(A_TIGHT_RULE)
    request = fetch_request(max_bytes=2_499)

    wire.session.receive_from_client(request, now_ms=wire.now_ms)

    assert wire.session.state.to_broker[0] is request


def test_pipelined_fetches_are_forwarded_one_at_a_time_under_a_limit() -> None:
    wire = Wire(A_TIGHT_RULE)

    assert wire.client(fetch_request(1, max_bytes=9), fetch_request(2, max_bytes=9)) == fetch_request(1, max_bytes=9)
    wire.broker(fetch_response(1, size_bytes=100))

    assert wire.to_broker() == fetch_request(2, max_bytes=9)


@pytest.mark.parametrize("version", [11, 14, 15, 18])
def test_fetch_with_an_untrusted_replica_id_is_charged(version: int) -> None:
    wire = Wire(A_TIGHT_RULE)

    wire.client(fetch_request(1, version=version, replica_id=2))
    wire.broker(fetch_response(1, version=version, size_bytes=6_000))

    assert wire.bucket("fetch").usage.amount > 0


@pytest.mark.parametrize("version", [3, 11, 14, 15, 18])
def test_follower_on_an_inter_broker_listener_is_not_charged(version: int) -> None:
    wire = Wire(A_TIGHT_RULE, is_inter_broker=True)
    request = fetch_request(1, version=version, replica_id=2)

    assert wire.client(request[:60], request[60:]) == request
    assert wire.broker(fetch_response(1, version=version, size_bytes=6_000)) == fetch_response(
        1, version=version, size_bytes=6_000
    )
    assert wire.bucket("fetch").usage.amount == 0


@pytest.mark.parametrize("version", [3, 14, 15])
def test_consumer_on_an_inter_broker_listener_is_charged(version: int) -> None:
    wire = Wire(A_TIGHT_RULE, is_inter_broker=True)

    wire.client(fetch_request(1, version=version))
    wire.broker(fetch_response(1, version=version, size_bytes=6_000))

    assert wire.muted_for_ms > 0


def test_fetch_whose_end_comes_after_its_wait_does_not_wait_once_more() -> None:
    wire = Wire(A_TIGHT_RULE, enforcement=Enforcement.DELAY, max_throttle_time_ms=5_000)
    wire.client(fetch_request(1))
    wire.broker(fetch_response(1, size_bytes=60_000))
    wire.wait(5_000)
    assert wire.to_client(), "the response was delayed for the longest throttle time"

    fetch = fetch_request(2)
    wire.client(fetch[:-8])
    wire.wait(5_000)
    assert wire.to_client() == b""
    wire.client(fetch[-8:])

    assert wire.to_client()[4:8] == fetch[8:12], "it is answered without records"
