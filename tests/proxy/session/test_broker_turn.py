"""Tests which requests pass the fair call queue in front of a broker, and which wait."""

from __future__ import annotations

import pytest

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.client_quotas import DescribeRequest
from kafka_quota_proxy.proxy.fair_queue.connection_queue import (
    ASKS_FROM_BYTES,
    POLL_GRACE_US,
)
from kafka_quota_proxy.proxy.fair_queue.queue_stats import CONTROL_LEVEL
from kafka_quota_proxy.proxy.rules.api import Administration, Origin, Ticket
from tests.simulation.wire.transfer import FetchedPartition, FetchedTopic
from tests.simulation.wire.transfer import fetch as written_fetch
from tests.support.frames import (
    fetch_request,
    fetch_response,
    framed,
    other_request,
    other_response,
    produce_request,
    produce_response,
    request_header,
)
from tests.support.queued_clients import Crowd, heartbeat, whole_produce
from tests.support.quota_request_frames import write_describe_request


def test_first_request_takes_the_slot_and_others_wait() -> None:
    crowd = Crowd()
    first, second, third = crowd.wires

    assert first.client(produce_request(1)) == produce_request(1)
    assert second.client(produce_request(2)) == b""
    assert third.client(other_request(3)) == b""
    assert second.session.state.blocked_by is not None
    assert second.session.needs.wake_at_ms == 0  # the session waits for other clients only

    assert first.broker(produce_response(1)) == produce_response(1)
    (woken,) = crowd.granted()
    assert woken is second
    assert second.resume() == produce_request(2)
    assert third.resume() == b""

    second.broker(produce_response(2))
    assert crowd.granted() == [third]
    assert third.resume() == other_request(3)
    third.broker(other_response(3))
    assert crowd.dispatcher.in_flight == 0
    assert all(wire.session.is_idle for wire in crowd.wires)


def test_pipelined_requests_share_the_slot_until_another_client_waits() -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires

    assert first.client(produce_request(1), produce_request(2)) == produce_request(1) + produce_request(2)
    second.client(produce_request(3))
    assert first.client(produce_request(4)) == b""

    first.broker(produce_response(1))
    assert crowd.granted() == []
    first.broker(produce_response(2))
    assert crowd.granted() == [second]
    assert first.to_broker() == b""
    assert second.resume() == produce_request(3)
    second.broker(produce_response(3))
    assert crowd.granted() == [first]
    assert first.resume() == produce_request(4)


def test_produce_without_acks_frees_its_slot_once_forwarded() -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    request = produce_request(acks=0, size_bytes=ASKS_FROM_BYTES + 1)

    first.client(request[:-1])
    assert second.client(request) == b""
    first.client(request[-1:])

    assert crowd.granted() == [second]
    assert second.resume() == request
    assert crowd.dispatcher.in_flight == 0


def test_heartbeats_do_not_wait_behind_others() -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    first.client(produce_request(1))

    assert second.client(heartbeat()) == heartbeat()
    second.broker(other_response(1))
    assert (crowd.dispatcher.control_in_flight, crowd.dispatcher.in_flight) == (0, 1)


@pytest.mark.parametrize("api_key", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP])
def test_join_group_holds_no_slot(api_key: ApiKey) -> None:
    crowd = Crowd()
    request = framed(request_header(api_key, 0, 1, "etl", is_flexible=False) + bytes(20))

    crowd.wires[0].client(request)

    assert crowd.dispatcher.control_in_flight == 0


def test_idle_fetch_frees_its_slot_and_bypasses_the_queue_next_time() -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    first.client(fetch_request(1))
    second.client(other_request(2))

    crowd.wait(POLL_GRACE_US // 1_000 - 1)
    assert crowd.granted() == []
    crowd.wait(1)
    assert crowd.granted() == [second]
    assert second.resume() == other_request(2)

    crowd.wait(480)
    first.broker(fetch_response(1))
    assert first.client(fetch_request(3)) == fetch_request(3)  # the only slot is taken
    first.broker(fetch_response(3))  # at once, because there is data
    assert first.client(fetch_request(4)) == b""
    assert crowd.dispatcher.in_flight == 1


@pytest.mark.parametrize("size_bytes", [100_000, 1_500])
def test_late_fetch_of_a_busy_broker_is_not_an_idle_poll(size_bytes: int) -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    first.client(fetch_request(1))
    crowd.wait(POLL_GRACE_US // 1_000 + 5)
    first.broker(fetch_response(1, size_bytes=size_bytes))

    second.client(produce_request(2))
    assert first.client(fetch_request(3)) == b""


def test_idle_fetch_of_many_partitions_bypasses_the_queue() -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    request = fetch_request(1)
    empty = written_fetch.response(1, 11, [FetchedTopic("t", [FetchedPartition(number) for number in range(1_000)])])
    assert len(empty) > 40_000
    first.client(request)
    crowd.wait(500)
    first.broker(empty)

    second.client(produce_request(2))
    assert first.client(request) == request


def test_fetch_without_max_wait_queues_like_other_requests() -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    at_once = fetch_request(1).replace((500).to_bytes(4), bytes(4))
    for number in range(3):
        second.client(at_once)
        crowd.wait(50)
        second.broker(fetch_response(1))
        assert crowd.dispatcher.in_flight == 0, number

    first.client(produce_request(1))
    assert second.client(at_once) == b""


def test_draining_connection_does_not_keep_a_slot() -> None:
    crowd = Crowd()
    first, second, third = crowd.wires
    first.client(produce_request(1))
    second.client(produce_request(2))
    third.client(produce_request(3))

    second.session.take_no_more()
    first.broker(produce_response(1))
    assert crowd.granted() == [second]
    assert second.resume() == b""

    assert crowd.granted() == [third]


def test_identity_is_the_user_or_for_anonymous_the_address() -> None:
    crowd = Crowd(slots=10)
    first, second, third = crowd.wires
    first.session.account.peer_host, second.session.account.peer_host = "10.0.0.1", "10.0.0.2"
    third.session.account.log_in("alice")
    for wire in crowd.wires:
        wire.client(produce_request(1))
        wire.broker(produce_response(1))

    assert {one.identity for one in crowd.scheduler.top(10)} == {"etl@10.0.0.1", "etl@10.0.0.2", "alice"}


class NoHurry:
    """Takes the requests of administrators, and answers none of them."""

    def __init__(self) -> None:
        self.tickets: list[Ticket] = []

    def submit(self, ticket: Ticket) -> bool:
        self.tickets.append(ticket)
        return True

    def refused(self, origin: Origin, message: str, now_ms: int) -> None:
        """Nothing is logged."""


def test_quota_changes_of_administrators_do_not_queue() -> None:
    crowd, handler = Crowd(), NoHurry()
    first, second, admin = crowd.wires
    for wire in crowd.wires:
        administration = Administration(frozenset({"admin"}), handler)
        wire.listening.policy = wire.listening.policy._replace(administration=administration)
    admin.session.account.log_in("admin")
    question = write_describe_request(DescribeRequest(0, 8, (), False), client_id="etl")
    first.client(produce_request(1))

    second.client(question)
    admin.client(question)
    assert second.to_client() == b""
    assert len(handler.tickets) == 1

    first.broker(produce_response(1))
    assert crowd.granted() == [second]
    second.resume()
    assert len(second.to_client()) > 0
    assert second.session.is_idle
    handler.tickets[0].answer = b"answer"
    admin.resume()
    assert admin.to_client() == b"answer"
    assert [done.api_key for done in crowd.cost.done] == [ApiKey.PRODUCE, ApiKey.DESCRIBE_CLIENT_QUOTAS]
    assert crowd.dispatcher.in_flight == 0


def test_outcomes_of_requests_are_counted() -> None:
    crowd = Crowd()
    first, second, third = crowd.wires
    first.client(produce_request(1))
    second.client(fetch_request(2))
    third.client(heartbeat())
    crowd.wait(5)
    third.broker(other_response(1))
    first.broker(produce_response(1))
    second.resume()
    crowd.wait(500)
    second.broker(fetch_response(2))
    second.client(fetch_request(3))

    stats = crowd.stats
    # Number, time in the queue and time at the broker. A fetch that waits for data takes no time there.
    assert stats.served == {0: [2, 5_000, 5_300], CONTROL_LEVEL: [1, 0, 5_000]}
    assert stats.parked == {ApiKey.FETCH: 1}
    assert stats.passed_by == {ApiKey.FETCH: 1}


def test_request_before_a_partial_produce_without_acks_is_timed() -> None:
    crowd = Crowd()
    first = crowd.wires[0]
    first.client(other_request(1), other_request(2), whole_produce(3, acks=0)[:50])
    first.broker(other_response(1))
    first.wait(5_000)

    first.broker(other_response(2))

    assert crowd.cost.done[-1].elapsed_us == 5_000_000
