"""Tests the orders of a test: how often they act, on which responses, and what was observed of them."""

from itertools import count

import pytest

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.testing.observed import BY_QUOTA, MAX_CLIENTS, MAX_OBSERVED, Observed
from kafka_quota_proxy.proxy.session.testing.orders import MAX_ORDERS, OnDemandThrottles, TooManyOrdersError, Wanted
from tests.proxy.session.testing.test_responses import wire_of_test
from tests.support.frames import produce_request, produce_response

PRODUCE, FETCH, SASL_HANDSHAKE = int(ApiKey.PRODUCE), int(ApiKey.FETCH), int(ApiKey.SASL_HANDSHAKE)


def taken(
    testing: OnDemandThrottles, api_key: int = PRODUCE, version: int = 7, user: str = "u", client_id: str = "c"
) -> int | None:
    return testing.take(api_key, version, user=user, client_id=client_id, frame=b"")


@pytest.fixture
def testing() -> OnDemandThrottles:
    return OnDemandThrottles(lambda: 0)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_order_acts_exactly_as_often_as_asked(testing: OnDemandThrottles, count: int) -> None:
    testing.add(Wanted(), 300, count=count)

    assert [taken(testing) for _ in range(count + 2)] == [300] * count + [None, None]
    assert testing.orders == {}


def test_zero_is_a_throttle_time(testing: OnDemandThrottles) -> None:
    testing.add(Wanted(), 0, count=1)

    assert (taken(testing), taken(testing)) == (0, None)


def test_orders_act_in_turn(testing: OnDemandThrottles) -> None:
    testing.add(Wanted(api_key=PRODUCE), 1, count=1)
    testing.add(Wanted(), 2, count=2)

    assert taken(testing, FETCH) == 2
    assert [taken(testing), taken(testing), taken(testing)] == [1, 2, None]


@pytest.mark.parametrize("wanted", [Wanted(api_key=FETCH), Wanted(user="x"), Wanted(client_id="x"), Wanted(topic="x")])
def test_other_responses_are_left_alone(testing: OnDemandThrottles, wanted: Wanted) -> None:
    testing.add(wanted, 1, count=1)

    assert taken(testing) is None
    assert len(testing.orders) == 1


def test_response_without_the_field_is_not_counted(testing: OnDemandThrottles) -> None:
    testing.add(Wanted(), 1, count=1)

    assert taken(testing, PRODUCE, version=0) is taken(testing, FETCH, version=0) is None
    assert taken(testing, SASL_HANDSHAKE, version=1) is None
    assert taken(testing, PRODUCE, version=1) == 1


def test_removed_and_reset_orders_act_no_more(testing: OnDemandThrottles) -> None:
    first = testing.add(Wanted(), 1, count=9)
    testing.add(Wanted(), 2, count=9)

    assert testing.remove(first.id)
    assert not testing.remove(first.id)
    assert taken(testing) == 2
    testing.reset()
    assert taken(testing) is None
    assert testing.add(Wanted(), 3, count=1).id == 3


def test_number_of_orders_is_bounded(testing: OnDemandThrottles) -> None:
    for _ in range(MAX_ORDERS):
        testing.add(Wanted(), 1, count=1)

    with pytest.raises(TooManyOrdersError, match=f"{MAX_ORDERS} orders"):
        testing.add(Wanted(), 1, count=1)


def add(observed: Observed, client_id: str, throttle_time_ms: int = 5) -> None:
    observed.add(
        0, 7, user="u", client_id=client_id, throttle_time_ms=throttle_time_ms, size_bytes=100, reason=BY_QUOTA
    )


def test_responses_are_found_by_client_id_and_the_oldest_is_first() -> None:
    observed = Observed(count(1_000).__next__)
    add(observed, "a", 1)
    add(observed, "b", 2)
    add(observed, "a", 3)

    assert [(one.time_ms, one.throttle_time_ms) for one in observed.find("a")] == [(1_000, 1), (1_002, 3)]
    assert [one.client_id for one in observed.find()] == ["a", "b", "a"]
    assert list(observed.find("")) == []
    observed.clear()
    assert list(observed.find()) == []


def test_only_the_last_are_kept() -> None:
    observed = Observed(lambda: 0)
    for number in range(MAX_OBSERVED + 1):
        add(observed, str(number))

    assert len(list(observed.find())) == MAX_OBSERVED
    assert next(observed.find()).client_id == "1"


def test_responses_to_each_client_are_counted() -> None:
    observed = Observed(lambda: 0)
    for number in range(MAX_CLIENTS + 1):
        for api_key in (0, 0, 3):
            observed.see(api_key, user="u", client_id=str(number))

    assert len(observed.clients) == MAX_CLIENTS
    assert observed.clients["u", "0"] == {0: 2, 3: 1}
    observed.clear()
    assert observed.clients == {}


def test_requests_go_one_at_a_time_while_there_are_orders() -> None:
    wire, testing = wire_of_test()
    testing.add(Wanted(), 0, count=2)
    first, second, third, fourth = (produce_request(number) for number in range(1, 5))

    assert wire.client(first + second + third + fourth) == first
    assert wire.session.state.blocked_by is BlockedBy.EARLIER_ANSWERS
    wire.broker(produce_response(1))
    assert wire.to_broker() == second
    wire.broker(produce_response(2))
    assert wire.to_broker() == third + fourth  # the orders are fulfilled
