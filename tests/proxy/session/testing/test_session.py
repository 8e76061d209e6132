"""Tests how a session with orders of tests differs from any other: it takes its requests one at a time."""

from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.testing.effects import Effects
from kafka_quota_proxy.proxy.session.testing.orders import Wanted
from tests.proxy.session.testing.test_responses import wire_of_test
from tests.support.frames import produce_request, produce_response


def test_requests_go_one_at_a_time_while_there_are_orders() -> None:
    wire, testing = wire_of_test()
    testing.add(Wanted(), Effects(), count=2)
    first, second, third, fourth = (produce_request(number) for number in range(1, 5))

    assert wire.client(first + second + third + fourth) == first
    assert wire.session.state.blocked_by is BlockedBy.EARLIER_ANSWERS
    wire.broker(produce_response(1))
    assert wire.to_broker() == second
    wire.broker(produce_response(2))
    assert wire.to_broker() == third + fourth  # the orders are fulfilled
