"""Tests the orders of tests in JSON."""

import pytest

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.admin.requests import RefusedError
from kafka_quota_proxy.proxy.admin.testing_orders import read_order, written_order, written_response
from kafka_quota_proxy.proxy.session.testing.effects import Effects
from kafka_quota_proxy.proxy.session.testing.observed import ON_DEMAND, Observed
from kafka_quota_proxy.proxy.session.testing.orders import Order, Wanted

PRODUCE = int(ApiKey.PRODUCE)
NOT_LEADER = "NOT_LEADER_OR_FOLLOWER"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "the order has no effect; give at least one of throttle_time_ms"),
        ({"throttle_time_ms": -1}, "throttle_time_ms must be a whole number from 0"),
        ({"throttle_time_ms": 1.5}, "throttle_time_ms must be"),
        ({"throttle_time_ms": True}, "throttle_time_ms must be"),
        ({"delay_ms": "1s"}, "delay_ms must be a whole number"),
        ({"throttle_time_ms": 1, "count": 0}, "count must be a whole number from 1"),
        ({"throttle_time_ms": 1, "api": "Produces"}, "api must be"),
        ({"throttle_time_ms": 1, "topic": 7}, "topic must be a text"),
        ({"throttle_time_ms": 1, "topic": "a b"}, "topic: 'a b' is not the name of a topic"),
        ({"throttle_time_ms": 1, "topic": ".."}, r"topic: '\.\.' is not"),
        ({"throttle_time_ms": 1, "client-id": "a"}, "'client-id' is not a key"),
        ({"close": 1}, "close must be true or false"),
        ({"empty": True, "api": "Produce"}, "empty is for the records"),
        ({"error": "NOT_LEADER", "api": "Produce"}, "error must be the name of a Kafka error"),
        ({"error": 6, "api": "Produce"}, "error must be a text"),
        ({"error": NOT_LEADER}, "an error needs one of these as api: CreatePartitions, .*Fetch, .*Produce"),
        ({"error": NOT_LEADER, "api": "Metadata"}, "an error needs one of these"),
        ({"error": NOT_LEADER, "api": "Produce", "delay_ms": 5}, "delay_ms and error together"),
    ],
)
def test_orders_that_cannot_be_kept_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        read_order(given)


@pytest.mark.parametrize(
    ("given", "effects"),
    [
        ({"throttle_time_ms": 300}, Effects(300)),
        ({"delay_ms": 200}, Effects(None, 200)),
        ({"api": "Produce", "error": NOT_LEADER, "throttle_time_ms": 0}, Effects(0, 0, 6)),
        ({"api": "fetch", "error": "UNKNOWN_SERVER_ERROR", "delay_ms": 9}, Effects(None, 9, -1)),
        ({"api": "Fetch", "empty": True}, Effects(is_empty=True)),
        ({"throttle_time_ms": 5, "close": True}, Effects(5, closes=True)),
    ],
)
def test_effects_are_read_and_written(given: dict[str, object], effects: Effects) -> None:
    wanted, read, count = read_order(given)

    assert (read, count) == (effects, 1)
    written = written_order(Order(7, wanted, read, count))
    assert {key: value for key, value in written.items() if key in given and key != "api"} == {
        key: value for key, value in given.items() if key != "api"
    }
    observed = Observed(lambda: 1)
    observed.add(0, 9, user="u", client_id="c", throttle_time_ms=5, size_bytes=3, reason=ON_DEMAND, effects=read)
    (response,) = (written_response(one, {}) for one in observed.find())
    expected = {key: value for key, value in given.items() if key != "api"} | {"throttle_time_ms": 5}
    assert {key: value for key, value in response.items() if key in expected} == expected


def test_order_is_read() -> None:
    order = {"api": "produce", "throttle_time_ms": 300, "count": 5, "client_id": "app", "user": "u", "topic": "t"}

    wanted, effects, count = read_order(order)

    assert wanted == Wanted(api_key=PRODUCE, user="u", client_id="app", topic="t")
    assert (effects, count) == (Effects(300), 5)
