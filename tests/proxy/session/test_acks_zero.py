"""Tests when a Produce with acks=0 is charged, which has no response."""

import pytest

from kafka_quota_proxy.config.model import DEFAULT, QuotaRule
from tests.support.frames import produce_request
from tests.support.wire import Wire

FIVE_A_SECOND = QuotaRule(client_id=DEFAULT, request_rate=5.0)


def test_produce_without_acks_is_counted_once_forwarded() -> None:
    wire = Wire(FIVE_A_SECOND)
    request = produce_request(acks=0)
    for _ in range(50):
        wire.client(request)
    assert wire.muted_for_ms == 0

    wire.client(request[:-1])
    assert wire.bucket("request_rate").requests == 50
    wire.client(request[-1:])

    assert wire.bucket("request_rate").requests == 51
    assert wire.muted_for_ms == 200


@pytest.mark.parametrize("says_so", [True, False])
def test_produce_without_acks_that_is_cut_off_is_not_counted(says_so: bool) -> None:
    wire = Wire(FIVE_A_SECOND)
    wire.client(produce_request(acks=0)[:-1])

    if says_so:
        wire.session.receive_end_from_client()
    wire.session.close(now_ms=wire.now_ms, has_passed=True)

    bucket = wire.bucket("request_rate")
    assert (bucket.requests, bucket.in_flight) == (0, 0)


@pytest.mark.parametrize("is_connected", [True, False])
def test_produce_without_acks_is_charged_only_if_the_broker_is_connected(is_connected: bool) -> None:
    wire = Wire(FIVE_A_SECOND)
    wire.session.await_broker()
    request = produce_request(acks=0)
    wire.client(request, request)
    buckets = [wire.bucket(), wire.bucket("request_rate")]
    assert [bucket.amount for bucket in buckets] == [0, 0]
    assert [bucket.in_flight for bucket in buckets] == [2 * (len(request) - 4), 2]

    if is_connected:
        wire.session.connect_broker(now_ms=wire.now_ms)
    else:
        wire.session.close(now_ms=wire.now_ms, has_passed=False)

    assert [bucket.amount for bucket in buckets] == ([2 * (len(request) - 4), 2] if is_connected else [0, 0])
    assert [bucket.in_flight for bucket in buckets] == [0, 0]
