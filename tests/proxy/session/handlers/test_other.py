"""Tests APIs that have no handler of their own."""

from kafka_quota_proxy.config.model import DEFAULT, QuotaRule
from kafka_quota_proxy.proxy.session.counters import OTHER
from tests.support.frames import (
    fetch_request,
    other_request,
    other_response,
)
from tests.support.wire import Wire

A_TIGHT_RULE = QuotaRule(client_id=DEFAULT, producer_byte_rate=500.0, consumer_byte_rate=500.0)


def test_a_heartbeat_is_not_held_behind_a_long_poll() -> None:
    wire = Wire(A_TIGHT_RULE)
    wire.client(fetch_request(1, max_bytes=9))

    assert wire.client(other_request(2, api_key=12, version=3)) == other_request(2, api_key=12, version=3)


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
