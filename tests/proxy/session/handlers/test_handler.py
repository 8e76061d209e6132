"""Tests the handlers of other requests than Fetch, the throttle time in a response, and requests that are dropped."""

import pytest

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, QuotaRule
from kafka_quota_proxy.protocol.api import HIGHEST_VERSION
from kafka_quota_proxy.protocol.header import MAX_HEAD_BYTES
from kafka_quota_proxy.proxy.session.counters import OTHER
from kafka_quota_proxy.proxy.session.handlers.fetch import FETCH_APIS, FetchHandler
from kafka_quota_proxy.proxy.session.handlers.table import HANDLERS
from tests.support.frames import (
    api_versions_response,
    fetch_request,
    fetch_response,
    other_request,
    other_response,
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


def test_each_fetch_api_has_the_fetch_handler() -> None:
    assert {api_key for api_key, handler in HANDLERS.items() if handler is FetchHandler} == set(FETCH_APIS)


def test_each_api_with_a_handler_can_be_read() -> None:
    assert set(HANDLERS) <= set(HIGHEST_VERSION)


def test_announced_versions_are_narrowed_to_what_can_be_read() -> None:
    wire = Wire()
    wire.client(other_request(1, api_key=18, version=0))
    answer = api_versions_response(1, produce_max=99, fetch_max=99)

    assert wire.broker(answer[:20]) == b""
    assert wire.broker(answer[20:]) == api_versions_response(1, produce_max=13, fetch_max=18)


def test_unknown_api_is_forwarded_and_counted() -> None:
    wire = Wire()

    assert wire.client(other_request(1, api_key=999, version=0)) == other_request(1, api_key=999, version=0)
    assert wire.broker(other_response(1)) == other_response(1)
    assert wire.listening.counters.unknown_apis == {999: 1}


def test_labels_of_unknown_api_keys_are_bounded() -> None:
    wire = Wire()

    for key in range(1_000, 2_000):
        wire.now_ms += 1
        wire.client(other_request(key, api_key=key))
        wire.broker(other_response(key))

    counted = wire.listening.counters.unknown_apis
    assert sum(counted.values()) == 1_000
    assert len(counted) < 100
    assert counted[OTHER] > 900


def drained() -> Wire:
    wire = Wire()
    wire.client(produce_request(1, acks=0))
    wire.session.drain()
    return wire


def test_requests_with_an_answer_are_dropped_and_others_forwarded() -> None:
    wire = drained()
    kept = [produce_request(number, acks=0) for number in (2, 5)]

    sent = [kept[0], fetch_request(3), produce_request(4), kept[1], other_request(6)]

    assert wire.client(b"".join(sent)) == b"".join(kept)
    assert wire.session.is_idle
    assert wire.session.takes_unanswered


def test_request_that_began_before_is_completed() -> None:
    wire = Wire()
    begun = produce_request(2, acks=0, size_bytes=5_000)
    wire.client(produce_request(1, acks=0) + begun[:2_000])
    wire.session.drain()

    assert wire.client(begun[2_000:] + other_request(3)) == begun[2_000:]


def test_nothing_follows_a_dropped_request_that_is_too_long_to_be_kept() -> None:
    wire = drained()
    long = produce_request(2, size_bytes=2 * MAX_HEAD_BYTES)

    assert wire.client(long[:1_000], long[1_000:] + produce_request(3, acks=0)) == b""

    assert not wire.session.takes_unanswered
    assert wire.session.has_answered


PRODUCE_VERSIONS = range(14)


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
    assert wire.bucket().usage.amount == 0
    wire.client(request[5_000:])

    assert wire.bucket().usage.amount == 6_000
    assert wire.muted_for_ms == 2_000
    assert wire.session.is_idle  # no response is to come


def test_flood_without_acks_in_one_read_stops_at_the_request_over_quota() -> None:
    wire = Wire(A_TIGHT_RULE)
    flood = [produce_request(number, acks=0, size_bytes=2_000) for number in range(50)]

    passed = wire.client(b"".join(flood))

    assert passed == b"".join(flood[:3])  # 6,000 B in 10 s are over 500 B/s
    wire.wait(2_000)
    assert wire.to_broker() == flood[3]


@pytest.mark.parametrize("acks", [0, 1])
def test_unknown_produce_version_is_charged(acks: int) -> None:
    wire = Wire(A_TIGHT_RULE)

    wire.client(produce_request(1, version=14, acks=acks, size_bytes=6_000))
    if acks:
        wire.broker(produce_response(1, version=14))

    assert wire.muted_for_ms == 2_000
    assert wire.listening.counters.unknown_apis == {0: 1}


def test_a_drained_client_may_send_its_requests_in_pieces() -> None:
    wire = drained()
    kept = produce_request(3, acks=0)
    sent = other_request(2) + kept + other_request(4)

    passed = b"".join(wire.client(sent[at : at + 1]) for at in range(len(sent)))

    assert passed == kept
    assert wire.session.is_idle
