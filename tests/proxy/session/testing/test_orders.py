"""Tests which responses an order of a test is for, and how often it acts."""

import pytest

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.session.testing.effects import Effects
from kafka_quota_proxy.proxy.session.testing.orders import MAX_ORDERS, OnDemandThrottles, TooManyOrdersError, Wanted

PRODUCE, FETCH, SASL_HANDSHAKE = int(ApiKey.PRODUCE), int(ApiKey.FETCH), int(ApiKey.SASL_HANDSHAKE)


def taken(
    testing: OnDemandThrottles, api_key: int = PRODUCE, version: int = 7, user: str = "u", client_id: str = "c"
) -> int | None:
    effects = testing.take(api_key, version, user=user, client_id=client_id, frame=b"")
    return None if effects is None else effects.throttle_time_ms


@pytest.fixture
def testing() -> OnDemandThrottles:
    return OnDemandThrottles(lambda: 0)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_order_acts_exactly_as_often_as_asked(testing: OnDemandThrottles, count: int) -> None:
    testing.add(Wanted(), Effects(300), count=count)

    assert [taken(testing) for _ in range(count + 2)] == [300] * count + [None, None]
    assert testing.orders == {}


def test_zero_is_a_throttle_time(testing: OnDemandThrottles) -> None:
    testing.add(Wanted(), Effects(0), count=1)

    assert (taken(testing), taken(testing)) == (0, None)


def test_orders_act_in_turn(testing: OnDemandThrottles) -> None:
    testing.add(Wanted(api_key=PRODUCE), Effects(1), count=1)
    testing.add(Wanted(), Effects(2), count=2)

    assert taken(testing, FETCH) == 2
    assert [taken(testing), taken(testing), taken(testing)] == [1, 2, None]


@pytest.mark.parametrize("wanted", [Wanted(api_key=FETCH), Wanted(user="x"), Wanted(client_id="x"), Wanted(topic="x")])
def test_other_responses_are_left_alone(testing: OnDemandThrottles, wanted: Wanted) -> None:
    testing.add(wanted, Effects(1), count=1)

    assert taken(testing) is None
    assert len(testing.orders) == 1


def test_response_without_the_field_is_not_counted(testing: OnDemandThrottles) -> None:
    testing.add(Wanted(), Effects(1), count=1)

    assert taken(testing, PRODUCE, version=0) is taken(testing, FETCH, version=0) is None
    assert taken(testing, SASL_HANDSHAKE, version=1) is None
    assert taken(testing, PRODUCE, version=1) == 1


def test_removed_and_reset_orders_act_no_more(testing: OnDemandThrottles) -> None:
    first = testing.add(Wanted(), Effects(1), count=9)
    testing.add(Wanted(), Effects(2), count=9)

    assert testing.remove(first.id)
    assert not testing.remove(first.id)
    assert taken(testing) == 2
    testing.reset()
    assert taken(testing) is None
    assert testing.add(Wanted(), Effects(3), count=1).id == 3


def test_number_of_orders_is_bounded(testing: OnDemandThrottles) -> None:
    for _ in range(MAX_ORDERS):
        testing.add(Wanted(), Effects(1), count=1)

    with pytest.raises(TooManyOrdersError, match=f"{MAX_ORDERS} orders"):
        testing.add(Wanted(), Effects(1), count=1)
