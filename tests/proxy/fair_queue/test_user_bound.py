"""Tests how many places each user has in a lane."""

from kafka_quota_proxy.proxy.fair_queue.dispatcher import Ticket
from kafka_quota_proxy.proxy.fair_queue.user_bound import UserBound


def test_tickets_of_a_user_enter_in_their_order() -> None:
    users: UserBound[Ticket] = UserBound()
    tickets = [Ticket(n, identity="a") for n in range(5)]
    other = Ticket(None, identity="b")

    assert [users.enter(ticket, 2) for ticket in (*tickets, other)] == [True, True, False, False, False, True]
    assert users.discard(tickets[2])
    assert not users.discard(tickets[0])
    assert users.waiting == 2
    assert users.leave("b", 2) == []
    assert users.leave("a", 1) == []  # the bound has become lower
    assert users.leave("a", 1) == [tickets[3]]
    assert users.leave("a", 9) == [tickets[4]]
    assert users.leave("a", 9) == []
    assert users.waiting == 0
    assert users.enter(tickets[0], 1)


def test_a_forced_ticket_counts() -> None:
    users: UserBound[Ticket] = UserBound()
    first, second, third = (Ticket(n, identity="a") for n in range(3))
    assert users.enter(first, 1)
    users.force(second)

    assert not users.enter(third, 2)
    assert users.leave("a", 2) == [third]
