"""Tests the slots of one broker, the queue for them, and the lane for control requests."""

import pytest

from kafka_quota_proxy.config.fair_call_queue import FairCallQueue
from kafka_quota_proxy.config.fair_call_queue_options import settings as queue_settings
from kafka_quota_proxy.proxy.fair_queue.concurrency import FixedLimit
from kafka_quota_proxy.proxy.fair_queue.dispatcher import Dispatcher, State, Ticket, Turn


class RecordingLimit(FixedLimit):
    learns = True

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.observed: list[tuple[int, int, int]] = []

    def observe(self, rtt_us: int, in_flight: int, now_ms: int) -> None:
        self.observed.append((rtt_us, in_flight, now_ms))


def dispatcher_of(slots: int = 1, *, control_slots: int = 64, **options: object) -> Dispatcher:
    return Dispatcher(queue_settings(options), FixedLimit(slots), FixedLimit(control_slots))


def waiting(dispatcher: Dispatcher, *tickets: Ticket) -> None:
    for ticket in tickets:
        assert dispatcher.ask(ticket, 0) is Turn.WAITS


def ran(dispatcher: Dispatcher, **ticket: object) -> Ticket:
    own = Ticket(None, **ticket)  # type: ignore[arg-type]
    assert dispatcher.ask(own, 0) is Turn.PASSES
    return own


def test_a_ticket_has_one_place() -> None:
    dispatcher = dispatcher_of()
    running, queued = ran(dispatcher), Ticket(None)
    waiting(dispatcher, queued)

    for ticket in (running, queued):
        with pytest.raises(ValueError, match="cannot enter the queue"):
            dispatcher.ask(ticket, 0)


def test_a_parked_request_has_no_slot() -> None:
    dispatcher = dispatcher_of()
    poll, produce, later = ran(dispatcher), Ticket(None), Ticket(None)
    waiting(dispatcher, produce, later)

    dispatcher.park(poll, 5)
    assert (poll.state, dispatcher.granted()) == (State.PARKED, [produce])

    dispatcher.park(poll, 6)
    dispatcher.done(poll, 7)
    assert (poll.state, dispatcher.granted(), dispatcher.in_flight) == (State.IDLE, [], 1)


def test_a_ticket_that_left_the_queue_is_not_granted() -> None:
    dispatcher = dispatcher_of(levels=1, capacity=2)
    running, *others = ran(dispatcher), *[Ticket(n) for n in range(4)]
    waiting(dispatcher, *others)

    dispatcher.leave(others[0], 1)
    dispatcher.leave(others[3], 1)
    dispatcher.done(running, 2)

    assert dispatcher.granted() == [others[1]]
    dispatcher.done(others[1], 3)
    assert dispatcher.granted() == [others[2]]


def test_only_completed_requests_are_samples_of_load() -> None:
    limit, control_limit = RecordingLimit(9), RecordingLimit(9)
    dispatcher = Dispatcher(FairCallQueue(), limit, control_limit)
    tickets = [Ticket(None) for _ in range(6)]
    for ticket in tickets:
        dispatcher.ask(ticket, 1_000)
    control = ran(dispatcher, is_control=True)

    dispatcher.done(tickets[0], 5_000)
    dispatcher.done(tickets[1], 6_000)
    dispatcher.done(tickets[2], 7_000, is_sample=False)
    dispatcher.park(tickets[3], 7_000)
    dispatcher.done(tickets[3], 9_000)
    dispatcher.leave(tickets[4], 9_000)
    dispatcher.done(control, 9_000)
    dispatcher.done(tickets[5], 1_000)

    assert limit.observed == [(4_000, 6, 5), (5_000, 5, 6), (1, 1, 1)]
    assert control_limit.observed == [(9_000, 1, 9)]


# -- the control lane --


def test_control_requests_do_not_wait_behind_others() -> None:
    dispatcher = dispatcher_of(1, control_slots=1)
    ran(dispatcher)
    waiting(dispatcher, *[Ticket(None) for _ in range(100)])

    heartbeat = ran(dispatcher, identity="a", is_control=True)

    later = Ticket(None, identity="b", is_control=True)
    waiting(dispatcher, later)
    assert (dispatcher.control_in_flight, dispatcher.control_waiting) == (1, 1)
    dispatcher.done(heartbeat, 1)
    assert dispatcher.granted() == [later]


def test_control_requests_take_turns_by_identity() -> None:
    dispatcher = dispatcher_of(1, control_slots=1)
    running = ran(dispatcher, identity="flood", is_control=True)
    flood = [Ticket(None, identity="flood", is_control=True) for _ in range(1_000)]
    polite = Ticket(None, identity="polite", is_control=True)
    waiting(dispatcher, *flood, polite)

    dispatcher.done(running, 1)
    dispatcher.done(flood[0], 2)

    assert dispatcher.granted() == [polite]
    assert dispatcher.in_flight == 0


def test_a_control_request_waits_and_is_never_refused() -> None:
    dispatcher = dispatcher_of(1, control_slots=1, backoff_enable=True, levels=1, capacity=1)
    ran(dispatcher, is_control=True)
    tickets = [Ticket(None, is_control=True) for _ in range(5_000)]

    assert {dispatcher.ask(ticket, 0, is_slow=True) for ticket in tickets} == {Turn.WAITS}
    dispatcher.leave(tickets[7], 1)
    assert dispatcher.control_waiting == 4_999


def test_a_user_gets_three_quarters_of_the_control_slots() -> None:
    dispatcher = dispatcher_of(1, control_slots=8)
    flood = [Ticket(n, identity="flood", is_control=True) for n in range(100)]
    for ticket in flood:
        dispatcher.ask(ticket, 0)
    others = [ran(dispatcher, identity=name, is_control=True) for name in "ab"]
    assert (dispatcher.control_in_flight, dispatcher.control_waiting) == (8, 94)

    last = Ticket(None, identity="c", is_control=True)
    waiting(dispatcher, last)
    dispatcher.leave(flood[6], 1)
    dispatcher.park(flood[0], 1)
    assert dispatcher.granted() == [last]
    dispatcher.done(others[0], 2)
    assert dispatcher.granted() == [flood[7]]
    dispatcher.done(others[1], 3)
    assert dispatcher.granted() == []


def test_a_place_that_is_left_in_the_line_goes_to_the_next_of_the_user() -> None:
    dispatcher = dispatcher_of(1, control_slots=4)
    for name in "bbbc":
        ran(dispatcher, identity=name, is_control=True)
    own = [Ticket(n, identity="a", is_control=True) for n in range(4)]
    waiting(dispatcher, *own)
    assert len(dispatcher.control.queue) == 3

    dispatcher.leave(own[0], 1)

    assert (len(dispatcher.control.queue), dispatcher.control_waiting) == (3, 3)


# -- refusals --


def test_a_request_of_a_slow_level_is_refused() -> None:
    dispatcher = dispatcher_of(1, backoff_enable=True)
    ticket = Ticket(None)

    assert dispatcher.ask(ticket, 0, is_slow=True) is Turn.REFUSED
    assert ticket.state is State.IDLE


def test_refusals_can_be_switched_on_and_off() -> None:
    dispatcher = dispatcher_of(1, levels=1, capacity=1)
    ran(dispatcher)
    waiting(dispatcher, Ticket(None), Ticket(None))

    turns = []
    for backoff_enable in (True, False):
        settings = queue_settings({"levels": 1, "capacity": 1, "backoff_enable": backoff_enable})
        dispatcher.update(settings, FixedLimit(1), 0)
        turns += [dispatcher.ask(Ticket(None), 0, may_refuse=may_refuse) for may_refuse in (True, False)]

    assert turns == [Turn.REFUSED, Turn.WAITS, Turn.WAITS, Turn.WAITS]
