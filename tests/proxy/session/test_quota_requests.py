"""Requests about quotas of one connection that are with a handler."""

import pytest

from kafka_quota_proxy.protocol.errors import ProtocolError, Truncated
from kafka_quota_proxy.protocol.header import read_request_head
from kafka_quota_proxy.proxy.client_quotas.api import Ticket
from kafka_quota_proxy.proxy.client_quotas.rules.outcome import Origin
from kafka_quota_proxy.proxy.fair_queue.request_kind import request_kind
from kafka_quota_proxy.proxy.session.client_account import NOBODY
from kafka_quota_proxy.proxy.session.quota_requests import Done, QuotaRequests, Request
from kafka_quota_proxy.proxy.session.request_charge import Sent
from tests.support.frames import other_request

ADMIN = Origin("admin")
FRAME = other_request(1)
HEAD = read_request_head(FRAME, 0, 1_000)
SENT = Sent(NOBODY, request_kind(48, 0), None)


class OneTicket:
    """Gives out one ticket."""

    def __init__(self) -> None:
        self.ticket = Ticket(FRAME, ADMIN, None)

    def submit(self, frame: bytes, origin: Origin, owner: object) -> Ticket:
        assert (frame, origin, owner) == (FRAME, ADMIN, None)
        return self.ticket


def test_an_answer_is_taken_once() -> None:
    requests, handler = QuotaRequests(), OneTicket()
    assert HEAD is not None
    assert requests.take() is None

    requests.submit(handler, FRAME, HEAD, SENT, origin=ADMIN, owner=None)
    assert requests.take() is None
    assert requests.is_pending
    handler.ticket.answer = b"answer"

    assert requests.take() == Done(b"answer", Request(HEAD, SENT))
    assert not requests.is_pending
    assert requests.take() is None


def test_an_answer_to_what_has_passed_is_held_until_its_ticket_has_it() -> None:
    requests, ticket = QuotaRequests(), Ticket(b"answer", ADMIN, None)

    requests.hold(ticket)
    assert requests.is_pending
    assert requests.take() is None
    ticket.answer = ticket.frame
    assert requests.take() == Done(b"answer", None)
    assert not requests.is_pending

    requests.hold(ticket)
    requests.close()
    assert ticket.is_dropped


def test_what_the_desk_cannot_read_is_raised_here() -> None:
    requests, handler = QuotaRequests(), OneTicket()
    assert HEAD is not None
    requests.submit(handler, FRAME, HEAD, SENT, origin=ADMIN, owner=None)
    handler.ticket.error = Truncated("it is")

    with pytest.raises(ProtocolError, match="it is"):
        requests.take()
