"""Tests the orders of tests in JSON."""

import pytest

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.admin.requests import RefusedError
from kafka_quota_proxy.proxy.admin.testing_orders import read_order, written_response
from kafka_quota_proxy.proxy.session.testing.observed import ON_DEMAND, Observed
from kafka_quota_proxy.proxy.session.testing.orders import Wanted

PRODUCE = int(ApiKey.PRODUCE)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "throttle_time_ms must be a whole number from 0"),
        ({"throttle_time_ms": -1}, "throttle_time_ms must be a whole number from 0"),
        ({"throttle_time_ms": 1.5}, "throttle_time_ms must be"),
        ({"throttle_time_ms": True}, "throttle_time_ms must be"),
        ({"throttle_time_ms": 1, "delay_ms": 1}, "'delay_ms' is not a key"),
        ({"throttle_time_ms": 1, "count": 0}, "count must be a whole number from 1"),
        ({"throttle_time_ms": 1, "api": "Produces"}, "api must be"),
        ({"throttle_time_ms": 1, "topic": 7}, "topic must be a text"),
        ({"throttle_time_ms": 1, "topic": "a b"}, "topic: 'a b' is not the name of a topic"),
        ({"throttle_time_ms": 1, "topic": ".."}, r"topic: '\.\.' is not"),
        ({"throttle_time_ms": 1, "client-id": "a"}, "'client-id' is not a key"),
    ],
)
def test_orders_that_cannot_be_kept_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        read_order(given)


def test_observed_responses_are_written() -> None:
    observed = Observed(lambda: 1)
    observed.add(0, 9, user="u", client_id="c", throttle_time_ms=5, size_bytes=3, reason=ON_DEMAND)
    (response,) = (written_response(one, {}) for one in observed.find())
    assert (response["throttle_time_ms"], response["reason"], response["broker"]) == (5, "testing", None)


def test_order_is_read() -> None:
    order = {"api": "produce", "throttle_time_ms": 300, "count": 5, "client_id": "app", "user": "u", "topic": "t"}

    wanted, throttle_time_ms, count = read_order(order)

    assert wanted == Wanted(api_key=PRODUCE, user="u", client_id="app", topic="t")
    assert (throttle_time_ms, count) == (300, 5)
