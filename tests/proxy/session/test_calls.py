"""Sessions in front of a broker with few slots: who passes, who waits, who is refused."""

from __future__ import annotations

from struct import pack, unpack_from

import pytest

from kafka_quota_proxy.config.fair_call_queue import FairCallQueue
from kafka_quota_proxy.config.model import DEFAULT, Enforcement, QuotaRule
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.client_quotas import DescribeRequest
from kafka_quota_proxy.proxy.client_quotas.api import Administration, Ticket
from kafka_quota_proxy.proxy.client_quotas.rules.outcome import Origin
from kafka_quota_proxy.proxy.fair_queue.concurrency import FixedLimit, VegasLimit
from kafka_quota_proxy.proxy.fair_queue.connection_queue import (
    POLL_GRACE_US,
    UPLOAD_GRACE_US,
    ListenerQueue,
)
from kafka_quota_proxy.proxy.fair_queue.cost import CompletedRequest, WeightedTimeCost
from kafka_quota_proxy.proxy.fair_queue.decay import DecayOptions, DecayScheduler
from kafka_quota_proxy.proxy.fair_queue.dispatcher import Answer, Dispatcher, DispatcherOptions
from kafka_quota_proxy.proxy.fair_queue.queue_stats import CONTROL_LEVEL, QueueStats
from kafka_quota_proxy.proxy.fair_queue.settings import identities
from kafka_quota_proxy.proxy.fair_queue.slot_timeouts import SlotTimeouts
from tests.support.controller import Controller, create, delete
from tests.support.frames import (
    api_versions_response,
    fetch_request,
    fetch_response,
    framed,
    other_request,
    other_response,
    produce_request,
    produce_response,
    request_header,
)
from tests.support.quota_request_frames import write_describe_request
from tests.support.wire import START_MS, Wire


class OneEach(WeightedTimeCost):
    """A request costs 1, when it is over."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[CompletedRequest] = []

    def on_completion(self, done: CompletedRequest) -> int:
        self.done.append(done)
        return 1


class CountingLimit(FixedLimit):
    """Counts what it could learn from."""

    learns = True
    observed = 0

    def observe(self, rtt_us: int, in_flight: int, now_ms: int) -> None:
        self.observed += 1


class Crowd:
    """Clients of one broker, and who is woken."""

    def __init__(
        self,
        *rules: QuotaRule,
        slots: int = 1,
        clients: int = 3,
        is_backoff_enabled: bool = False,
        enforcement: Enforcement = Enforcement.RESPOND,
    ) -> None:
        self.cost = OneEach()
        self.timeouts = SlotTimeouts()
        self.stats = QueueStats()
        self.dispatcher = Dispatcher(DispatcherOptions(is_backoff_enabled=is_backoff_enabled), FixedLimit(slots))
        self.scheduler = DecayScheduler(DecayOptions(), now_ms=START_MS)
        self.line = ListenerQueue(
            self.scheduler,
            self.dispatcher,
            self.cost,
            identity=identities(FairCallQueue()),
            stats=self.stats,
            timeouts=self.timeouts,
            wake=lambda: None,
        )
        self.wires = [Wire(*rules, line=self.line, enforcement=enforcement) for _ in range(clients)]

    def granted(self) -> list[Wire]:
        return [ticket.owner for ticket in self.dispatcher.granted() if isinstance(ticket.owner, Wire)]

    def wait(self, wait_ms: int) -> None:
        for wire in self.wires:
            wire.wait(wait_ms)
        self.timeouts.park_due(self.wires[0].now_ms * 1_000)


def test_first_request_passes_and_others_wait_for_the_slot() -> None:
    crowd = Crowd()
    first, second, third = crowd.wires

    assert first.client(produce_request(1)) == produce_request(1)
    assert second.client(produce_request(2)) == b""
    assert third.client(other_request(3)) == b""
    assert second.session.state.is_blocked
    assert second.session.wake_at_ms == 0  # nothing to be waited for but others

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


def test_a_produce_without_an_answer_gives_its_slot_back_when_it_has_passed() -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    request = produce_request(acks=0)

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


def test_idle_fetch_gives_its_slot_back_and_bypasses_the_queue_next_time() -> None:
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
    first.broker(fetch_response(3))  # at once: there is data
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
    many = framed(request[4:] + bytes(28 * 999))
    first.client(many)
    crowd.wait(500)
    first.broker(fetch_response(1, size_bytes=1_000 * 42))

    second.client(produce_request(2))
    assert first.client(many) == many


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


def test_stalled_upload_gives_its_slot_back() -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    request = produce_request(1, size_bytes=10_000)
    first.client(request[:5_000])
    second.client(other_request(2))

    crowd.wait(UPLOAD_GRACE_US // 1_000)
    assert crowd.granted() == [second]

    assert first.client(request[5_000:]) == request[5_000:]
    assert first.broker(produce_response(1)) == produce_response(1)
    assert first.session.is_idle


def test_client_that_leaves_the_queue_uses_no_turn() -> None:
    crowd = Crowd()
    first, second, third = crowd.wires
    first.client(produce_request(1))
    second.client(produce_request(2))
    third.client(produce_request(3))

    second.session.close(now_ms=second.now_ms, has_passed=False)
    first.broker(produce_response(1))

    assert crowd.granted() == [third]


def test_client_that_leaves_while_served_gives_the_slot_to_the_next() -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    first.client(produce_request(1))
    second.client(produce_request(2))

    first.session.close(now_ms=first.now_ms, has_passed=True)

    assert crowd.granted() == [second]


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


def test_handshakes_do_not_wait() -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    first.client(produce_request(1))
    request = other_request(2, api_key=ApiKey.API_VERSIONS, version=0)

    assert second.client(request) == request
    assert second.broker(api_versions_response(2))
    assert crowd.dispatcher.in_flight == 1


def test_identity_is_the_user_or_for_anonymous_the_address() -> None:
    crowd = Crowd(slots=10)
    first, second, third = crowd.wires
    first.session.state.peer_host, second.session.state.peer_host = "10.0.0.1", "10.0.0.2"
    third.session.account.log_in("alice")
    for wire in crowd.wires:
        wire.client(produce_request(1))
        wire.broker(produce_response(1))

    assert {one.identity for one in crowd.scheduler.top(10)} == {"etl@10.0.0.1", "etl@10.0.0.2", "alice"}


def test_cost_provider_gets_the_times_of_a_request() -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    first.client(produce_request(1))
    second.client(fetch_request(2))
    crowd.wait(5)
    first.broker(produce_response(1))
    second.resume()
    crowd.granted()
    crowd.wait(7)
    second.broker(fetch_response(2))

    produce, fetch = crowd.cost.done
    assert (produce.api_key, produce.queue_us, produce.elapsed_us) == (ApiKey.PRODUCE, 0, 5_000)
    assert (fetch.api_key, fetch.queue_us, fetch.elapsed_us) == (ApiKey.FETCH, 5_000, 7_000)


class NoHurry:
    """Takes what administrators ask, and answers nothing."""

    def __init__(self) -> None:
        self.tickets: list[Ticket] = []

    def submit(self, frame: bytes, origin: Origin, owner: object) -> Ticket:
        self.tickets.append(Ticket(frame, origin, owner))
        return self.tickets[-1]


def test_administrators_do_not_queue_and_others_queue_for_their_refusal() -> None:
    crowd, handler = Crowd(), NoHurry()
    first, second, admin = crowd.wires
    for wire in crowd.wires:
        administration = Administration(frozenset({"admin"}), False, handler)
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
    # How many, how long queued and how long at the broker; waiting for data takes nothing there.
    assert stats.served == {0: [2, 5_000, 5_300], CONTROL_LEVEL: [1, 0, 5_000]}
    assert stats.parked == {ApiKey.FETCH: 1}
    assert stats.passed_by == {ApiKey.FETCH: 1}


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000, 10**12])
@pytest.mark.parametrize("is_adaptive", [False, True])
def test_clock_jump_takes_no_slot_or_turn(jump_ms: int, is_adaptive: bool) -> None:
    crowd = Crowd()
    if is_adaptive:
        crowd.dispatcher.update(crowd.dispatcher.options, VegasLimit(minimum=1, maximum=2), START_MS * 1_000)
    for _ in range(3):
        first, second, third = crowd.wires
        first.client(produce_request(1))
        second.client(produce_request(2))
        third.client(produce_request(3))

        for wire in crowd.wires:
            wire.now_ms += jump_ms
        jump_ms = -jump_ms if jump_ms < 0 else jump_ms

        assert first.broker(produce_response(1)) == produce_response(1)
        for wire in crowd.granted():
            wire.resume()
        second.broker(produce_response(2))
        for wire in crowd.granted():
            wire.resume()
        third.broker(produce_response(3))
        assert crowd.dispatcher.in_flight == 0
        assert len(crowd.dispatcher.queue) == 0
    assert sum(count for count, _, _ in crowd.stats.served.values()) == 9
    assert min(queue_us for _, queue_us, _ in crowd.stats.served.values()) >= 0


# -- what is sent ahead


def heartbeat(correlation_id: int = 1) -> bytes:
    return grouped(ApiKey.HEARTBEAT, correlation_id)


def grouped(api_key: ApiKey, correlation_id: int = 1) -> bytes:
    return framed(request_header(api_key, 0, correlation_id, "etl", is_flexible=False) + bytes(20))


def handshake(correlation_id: int) -> bytes:
    """Return a SaslHandshake v1."""
    header = request_header(ApiKey.SASL_HANDSHAKE, 1, correlation_id, "etl", is_flexible=False)
    return framed(header + pack(">h", 5) + b"PLAIN")


def handshake_response(correlation_id: int) -> bytes:
    return framed(pack(">ihih", correlation_id, 0, 1, 5) + b"PLAIN")


@pytest.mark.parametrize("ahead", [pytest.param(b"", id="one"), pytest.param(produce_request(9), id="two")])
def test_a_login_behind_the_last_request_gives_the_slot_back(ahead: bytes) -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    assert first.client(ahead + other_request(1) + handshake(2)) == ahead + other_request(1) + handshake(2)
    second.client(other_request(3))
    if ahead:
        first.broker(produce_response(9))
        assert crowd.granted() == []

    first.broker(other_response(1))
    assert crowd.granted() == [second]  # what costs nothing has no slot
    first.broker(handshake_response(2))
    second.resume()
    second.broker(other_response(3))

    assert crowd.dispatcher.in_flight == 0
    assert first.session.is_idle


def test_login_behind_join_group_lets_no_request_pass_without_a_slot() -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    first.client(grouped(ApiKey.JOIN_GROUP, 1) + handshake(2))
    first.broker(other_response(1))
    first.broker(handshake_response(2))
    second.client(produce_request(3))

    assert first.client(produce_request(4)) == b""
    second.broker(produce_response(3))
    assert crowd.granted() == [first]


def test_answered_question_of_the_proxy_gives_the_slot_back() -> None:
    crowd = Crowd(QuotaRule(user=DEFAULT, controller_mutation_rate=10.0))
    first, second, _ = crowd.wires
    controller = Controller(one=30)
    question = first.client(delete("one"))
    assert question
    second.client(produce_request(2))

    first.broker(controller.answers(question))
    assert crowd.granted() == [second]
    second.resume()
    second.broker(produce_response(2))
    assert crowd.granted() == [first]
    assert first.broker(controller.answers(first.resume()))
    assert controller.asked == [ApiKey.METADATA, ApiKey.DELETE_TOPICS]
    assert crowd.dispatcher.in_flight == 0


def test_control_slot_carries_control_requests_only() -> None:
    crowd = Crowd()
    first, second, third = crowd.wires
    first.client(produce_request(1))
    second.client(produce_request(2))

    assert third.client(heartbeat(3), heartbeat(4), produce_request(5)) == heartbeat(3) + heartbeat(4)
    assert third.session.state.is_blocked
    third.broker(other_response(3), other_response(4))
    assert third.to_broker() == b""
    first.broker(produce_response(1))
    assert crowd.granted() == [second]


def test_control_request_behind_another_request_waits() -> None:
    crowd = Crowd()
    first, _, _ = crowd.wires

    assert first.client(produce_request(1), heartbeat(2)) == produce_request(1)
    first.broker(produce_response(1))
    assert first.to_broker() == heartbeat(2)
    assert (crowd.dispatcher.control_in_flight, crowd.dispatcher.in_flight) == (1, 0)


@pytest.mark.parametrize(
    "behind",
    [
        pytest.param(other_request(2), id="whole"),
        pytest.param(produce_request(2, size_bytes=10_000)[:5_000], id="half"),
    ],
)
def test_poll_gives_its_slot_back_with_requests_behind_it(behind: bytes) -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    first.client(fetch_request(1), behind)
    second.client(other_request(3))

    crowd.wait(POLL_GRACE_US // 1_000)

    assert crowd.granted() == [second]


def test_join_group_behind_another_request_gives_the_slot_back_at_its_turn() -> None:
    crowd = Crowd()
    first, _, _ = crowd.wires

    first.client(heartbeat(1), grouped(ApiKey.JOIN_GROUP, 2))
    assert crowd.dispatcher.control_in_flight == 1
    first.broker(other_response(1))
    assert crowd.dispatcher.control_in_flight == 0
    first.broker(other_response(2))
    assert first.client(heartbeat(3)) == heartbeat(3)
    assert crowd.dispatcher.control_in_flight == 1


@pytest.mark.parametrize("acks", [0, 1])
def test_stalled_upload_behind_another_request_gives_the_slot_back(acks: int) -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    half = produce_request(2, acks=acks, size_bytes=10_000)
    first.client(produce_request(1), half[:5_000])
    second.client(other_request(3))

    crowd.wait(UPLOAD_GRACE_US // 1_000)
    assert crowd.granted() == []  # the broker is at work on what is ahead of it
    first.broker(produce_response(1))
    crowd.wait(UPLOAD_GRACE_US // 1_000 - 1)
    assert crowd.granted() == []
    crowd.wait(1)
    assert crowd.granted() == [second]

    assert first.client(half[5_000:]) == half[5_000:]
    assert acks == 0 or first.broker(produce_response(2))
    assert first.session.is_idle
    second.resume()
    second.broker(other_response(3))
    assert crowd.dispatcher.in_flight == 0


@pytest.mark.parametrize(
    ("sent", "is_sample"),
    [
        pytest.param((produce_request(1),), True, id="alone"),
        pytest.param((produce_request(1), produce_request(2)), False, id="two"),
        pytest.param((produce_request(1)[:-1], produce_request(1)[-1:]), False, id="in pieces"),
        pytest.param((fetch_request(1),), False, id="poll"),
        pytest.param((produce_request(1, acks=0),), False, id="no answer"),
    ],
)
def test_only_single_whole_requests_are_latency_samples(sent: tuple[bytes, ...], is_sample: bool) -> None:
    crowd = Crowd()
    limit = CountingLimit(1)
    crowd.dispatcher.update(crowd.dispatcher.options, limit, START_MS * 1_000)
    (first, _, _) = crowd.wires
    first.client(*sent)
    for number in range(1, len(first.session.state.in_flight) + 1):
        first.broker(produce_response(number))

    assert crowd.dispatcher.in_flight == 0
    assert limit.observed == is_sample


# -- what is never answered


def costs(crowd: Crowd) -> list[float]:
    return [one.raw for one in crowd.scheduler.top(10)]


def test_a_produce_without_an_answer_costs_what_it_is_when_it_has_passed() -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    request = produce_request(1, acks=0)

    first.client(request[:-1])
    second.client(request)
    assert costs(crowd) == []
    crowd.wait(5)
    first.client(request[-1:])
    assert costs(crowd) == [1]
    second.resume()

    assert costs(crowd) == [2]
    assert crowd.cost.done == [
        CompletedRequest(ApiKey.PRODUCE, 0, 0, 0, 0),
        CompletedRequest(ApiKey.PRODUCE, 5_000, 0, 0, 0),
    ]
    for wire in crowd.wires:
        wire.session.close(now_ms=wire.now_ms, has_passed=True)
    assert costs(crowd) == [2]


@pytest.mark.parametrize("has_passed", [True, False])
def test_client_that_closes_early_is_charged_if_the_broker_had_the_request(has_passed: bool) -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    first.client(produce_request(1), other_request(2), handshake(3))
    second.client(produce_request(3))
    crowd.wait(7)

    for wire in first, second:
        wire.session.state.now_ns = wire.now_ms * 1_000_000
        wire.session.close(now_ms=wire.now_ms, has_passed=has_passed)

    assert costs(crowd) == ([2] if has_passed else [])  # who waited has asked the broker nothing
    assert [(done.api_key, done.elapsed_us) for done in crowd.cost.done] == (
        [(ApiKey.PRODUCE, 7_000), (ApiKey.METADATA, 0)] if has_passed else []
    )


@pytest.mark.parametrize("acks", [0, 1])
@pytest.mark.parametrize("end", ["rest", "end", "close", "broker"])
def test_parked_upload_is_charged_at_its_end(acks: int, end: str) -> None:
    crowd = Crowd()
    first, _, _ = crowd.wires
    request = produce_request(1, acks=acks, size_bytes=10_000)
    first.client(request[:5_000])
    crowd.wait(UPLOAD_GRACE_US // 1_000)
    assert costs(crowd) == []

    if end == "rest":
        first.client(request[5_000:])
        assert acks == 0 or first.broker(produce_response(1))
    elif end == "end":
        first.session.receive_end_from_client()
        first.session.close(now_ms=first.now_ms, has_passed=True)
    else:
        first.session.close(now_ms=first.now_ms, has_passed=end == "close")

    assert costs(crowd) == ([] if end == "broker" else [1])


# -- while the broker is not read


def test_requests_behind_a_delayed_response_hold_no_slot() -> None:
    crowd = Crowd(
        QuotaRule(client_id=DEFAULT, producer_byte_rate=500.0),
        QuotaRule(user=DEFAULT, request_percentage=1.0, enforcement=Enforcement.OBSERVE),
        enforcement=Enforcement.DELAY,
    )
    first, second, _ = crowd.wires
    first.client(other_request(0), produce_request(1, size_bytes=6_000), other_request(2))
    first.broker(other_response(0))
    second.client(other_request(3))

    assert first.broker(produce_response(1)) == b""
    assert first.session.state.delayed_until_ms > first.now_ms
    assert crowd.granted() == [second]
    assert first.listening.service.served == 0
    crowd.wait(first.session.state.delayed_until_ms - first.now_ms - 1)
    second.resume()
    second.broker(other_response(3))
    crowd.wait(1)
    assert first.to_client()
    assert first.listening.service.served == 1
    crowd.wait(3)
    first.broker(other_response(2))

    assert [done.elapsed_us for done in crowd.cost.done if done.api_key == ApiKey.METADATA][-1] == 3_000
    assert first.bucket("request").amount < 1_000_000
    assert crowd.dispatcher.in_flight == 0
    assert first.session.is_idle


def test_client_that_does_not_read_holds_no_slot_and_sends_no_more() -> None:
    crowd = Crowd()
    first, second, _ = crowd.wires
    first.client(other_request(1), other_request(2))
    first.broker(other_response(1))
    second.client(other_request(3))

    first.session.pause_answers()
    assert crowd.granted() == [second]
    assert first.listening.service.served == 0
    second.resume()
    second.broker(other_response(3))
    crowd.wait(60_000)
    first.session.state.now_ns = first.now_ms * 1_000_000
    first.session.resume_answers()
    crowd.wait(3)
    first.broker(other_response(2))
    assert crowd.cost.done[-1].elapsed_us == 3_000

    first.session.pause_answers()
    assert first.client(other_request(4)) == b""
    assert first.session.state.is_blocked
    assert crowd.dispatcher.in_flight == 0
    first.session.resume_answers()
    assert first.resume() == other_request(4)
    first.broker(other_response(4))
    assert crowd.dispatcher.in_flight == 0


def test_turn_of_a_client_that_does_not_read_goes_to_the_next() -> None:
    crowd = Crowd()
    first, second, third = crowd.wires
    for number, wire in enumerate(crowd.wires):
        wire.client(other_request(number))
    second.session.pause_answers()

    first.broker(other_response(0))
    assert crowd.granted() == [second]
    assert second.resume() == b""
    assert crowd.granted() == [third]
    third.resume()
    third.broker(other_response(2))
    second.session.resume_answers()
    assert second.resume() == other_request(1)


def test_unused_turn_goes_to_the_next_client() -> None:
    crowd = Crowd()
    first, second, third = crowd.wires
    for number, wire in enumerate(crowd.wires):
        wire.client(other_request(number))
    first.broker(other_response(0))

    second.session.pause_answers()  # it has a slot, and has not been told yet
    second.session.resume_answers()
    assert second.resume() == b""
    assert crowd.granted() == [third]
    assert crowd.dispatcher.in_flight == 1


def test_client_that_does_not_read_sends_no_more_under_request_percentage() -> None:
    wire = Wire(QuotaRule(client_id="etl", request_percentage=10.0))
    wire.session.pause_answers()

    assert wire.client(other_request(1)) == b""
    assert wire.session.state.is_blocked
    wire.session.resume_answers()
    assert wire.resume() == other_request(1)


# -- refusals


def full(crowd: Crowd) -> None:
    """Take the slot, and all the places behind it."""
    for number, wire in enumerate(crowd.wires[:-1]):
        wire.client(other_request(number))


def whole_produce(correlation_id: int, *, acks: int = 1, size_bytes: int = 100) -> bytes:
    """Return a Produce v7 of one partition, with as many bytes of what should be records."""
    header = request_header(ApiKey.PRODUCE, 7, correlation_id, "etl", is_flexible=False)
    front = pack(">hhii", -1, acks, 30_000, 1) + pack(">h", 1) + b"t" + pack(">iii", 1, 0, size_bytes)
    return framed(header + front + bytes(size_bytes))


def answered(data: bytes) -> list[tuple[int, int, int]]:
    """Return correlation_id, error_code and throttle_time_ms of answers to them."""
    found = []
    while data:
        (size_bytes,) = unpack_from(">i", data)
        frame, data = data[: 4 + size_bytes], data[4 + size_bytes :]
        correlation_id, *_, error_code = unpack_from(">iih1siih", frame, 4)
        found.append((correlation_id, error_code, unpack_from(">i", frame, len(frame) - 4)[0]))
    return found


def refused() -> tuple[Crowd, Wire]:
    """Return a crowd that fills its queue, and who came too late: his Produce 1 was refused."""
    crowd = Crowd(clients=1_100, is_backoff_enabled=True)
    full(crowd)
    last = crowd.wires[-1]
    assert last.client(whole_produce(1)) == b""
    assert answered(last.to_client()) == [(1, 19, 500)]
    return crowd, last


def test_produce_into_a_full_queue_is_refused() -> None:
    _, last = refused()

    assert last.muted_for_ms == 500
    last.wait(100)
    assert last.client(whole_produce(2)) == b""  # from a client that does not heed a throttle time
    assert last.session.state.is_blocked
    assert last.to_client() == b""
    last.wait(400)
    assert answered(last.to_client()) == [(2, 19, 500)]
    assert last.to_broker() == b""


def test_produces_behind_a_refused_one_are_refused_even_if_there_is_room() -> None:
    crowd, last = refused()
    crowd.dispatcher.update(DispatcherOptions(), FixedLimit(2_000), last.now_ms * 1_000)

    assert last.client(whole_produce(2) + whole_produce(3)) == b""
    last.wait(49)
    assert last.client(whole_produce(4)) == b""
    assert answered(last.to_client()) == [(2, 19, 500), (3, 19, 500), (4, 19, 451)]
    assert last.muted_for_ms == 451  # no longer than for the first
    assert crowd.stats.refused == {(0, ApiKey.PRODUCE, Answer.KEEP_ALIVE): 4}
    last.wait(451)
    assert last.client(whole_produce(5)) == whole_produce(5)


def test_pipelined_produces_are_refused_in_order() -> None:
    crowd = Crowd(clients=1_100, is_backoff_enabled=True)
    full(crowd)
    last = crowd.wires[-1]

    assert last.client(whole_produce(1) + whole_produce(2) + whole_produce(3)) == b""

    assert answered(last.to_client()) == [(1, 19, 500), (2, 19, 500), (3, 19, 500)]


def test_produce_behind_a_refused_one_is_refused_once_whole() -> None:
    _, last = refused()
    large = whole_produce(2, size_bytes=900_000)

    last.client(large[:20], large[20:500_000])
    assert not last.session.state.is_blocked
    last.wait(20)
    assert last.client(large[500_000:]) == b""
    assert answered(last.to_client()) == [(2, 19, 480)]


def test_late_rest_of_a_produce_behind_a_refused_one_queues() -> None:
    crowd, last = refused()
    large = whole_produce(2, size_bytes=900_000)
    crowd.dispatcher.update(DispatcherOptions(), FixedLimit(2_000), last.now_ms * 1_000)

    last.client(large[:500_000])
    last.wait(50)
    assert last.client(large[500_000:]) == b""
    assert last.session.state.is_blocked
    assert last.session.held_bytes == len(large)
    last.wait(450)
    assert last.to_broker() == large
    assert last.to_client() == b""


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(whole_produce(2, acks=0), id="awaits no answer"),
        pytest.param(whole_produce(2, size_bytes=1_100_000), id="is too long"),
        pytest.param(other_request(2), id="is no Produce"),
        pytest.param(fetch_request(2), id="is a Fetch"),
    ],
)
def test_unrefusable_request_behind_a_refused_produce_waits(request_: bytes) -> None:
    crowd, last = refused()
    crowd.dispatcher.update(DispatcherOptions(), FixedLimit(2_000), last.now_ms * 1_000)

    assert last.client(request_ + whole_produce(3)) == b""
    assert last.session.state.is_blocked
    assert last.to_client() == b""
    last.wait(499)
    assert last.to_broker() == b""
    last.wait(1)
    assert last.to_broker().startswith(request_)


def test_requests_behind_a_refused_fetch_wait() -> None:
    crowd = Crowd(clients=1_100, is_backoff_enabled=True)
    full(crowd)
    last = crowd.wires[-1]

    assert last.client(whole_fetch(1) + whole_produce(2)) == b""
    assert last.to_client()
    assert last.session.state.is_blocked
    last.wait(499)
    assert last.to_client() == b""


def test_draining_connection_refuses_nothing() -> None:
    _, last = refused()

    last.session.take_no_more()

    assert last.client(whole_produce(2)) == b""
    assert last.to_client() == b""


def whole_fetch(correlation_id: int) -> bytes:
    """Return a Fetch v4 of one partition."""
    header = request_header(ApiKey.FETCH, 4, correlation_id, "etl", is_flexible=False)
    return framed(header + pack(">iiiibi", -1, 500, 1, 1_000, 0, 1) + pack(">h", 1) + b"t" + pack(">iiqi", 1, 0, 0, 1))


@pytest.mark.parametrize("cut", [4, 10, -1])
def test_refusal_never_overtakes_or_splits_a_response(cut: int) -> None:
    crowd, _ = refused()
    first = crowd.wires[0]
    assert first.client(whole_produce(1)) == b""  # the queue is full, and it was sent ahead

    answer = other_response(0)
    told = first.broker(answer[:cut]) + first.broker(answer[cut:])

    assert told.startswith(answer)
    assert answered(told[len(answer) :]) in ([], [(1, 19, 500)])


def test_request_without_a_refusal_waits() -> None:
    """CreateTopics before v6, whose clients do not know the error."""
    crowd, last = refused()
    crowd.wait(600)
    before = crowd.stats.refused.copy()

    assert last.client(create(("one", 1), version=5)) == b""

    assert last.to_client() == b""
    assert last.session.account.muted_until_ms <= last.now_ms
    assert crowd.stats.refused == before
    assert len(crowd.dispatcher.queue) == 1_099  # he is one of them


def test_fetch_with_a_replica_id_waits_instead_of_being_refused() -> None:
    crowd, last = refused()
    crowd.wait(600)
    before = crowd.stats.refused.copy()
    header = request_header(ApiKey.FETCH, 4, 2, "etl", is_flexible=False)

    last.client(framed(header + pack(">iiiibi", 5, 500, 1, 1_000, 0, 0)))

    assert crowd.stats.refused == before
    assert last.to_client() == b""
    assert last.session.account.muted_until_ms <= last.now_ms
    assert len(crowd.dispatcher.queue) == 1_099


def test_release_ends_the_wait_behind_a_refusal() -> None:
    crowd, last = refused()
    crowd.dispatcher.update(DispatcherOptions(), FixedLimit(2_000), last.now_ms * 1_000)

    last.session.release(now_ms=last.now_ms)

    assert last.client(other_request(2)) == other_request(2)


def test_refusal_after_release_mutes_no_client() -> None:
    crowd, last = refused()
    last.session.release(now_ms=last.now_ms)
    last.client(whole_produce(2))
    assert answered(last.to_client()) == [(2, 19, 500)]

    last.client(other_request(3))

    assert len(crowd.dispatcher.queue) == 1_099  # he is one of them


def test_a_request_before_half_a_produce_without_an_answer_is_timed() -> None:
    crowd = Crowd()
    first = crowd.wires[0]
    first.client(other_request(1), other_request(2), whole_produce(3, acks=0)[:50])
    first.broker(other_response(1))
    first.wait(5_000)

    first.broker(other_response(2))

    assert crowd.cost.done[-1].elapsed_us == 5_000_000


def test_parked_requests_are_counted_by_api() -> None:
    crowd = Crowd()
    first = crowd.wires[0]
    apis = ApiKey.OFFSET_COMMIT, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT
    first.client(*(other_request(number, api_key=api_key, version=3) for number, api_key in enumerate(apis)))

    first.broker(other_response(0))

    assert crowd.stats.parked == {ApiKey.JOIN_GROUP: 1}
