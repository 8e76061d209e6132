"""Requests about client quotas on one connection: which comes, and which waits for its answer."""

from typing import NamedTuple

from kafka_quota_proxy.protocol.header import RequestHead
from kafka_quota_proxy.proxy.client_quotas.api import QuotaRequestHandler, Ticket
from kafka_quota_proxy.proxy.client_quotas.rules.outcome import Origin
from kafka_quota_proxy.proxy.session.request_charge import Sent


class Request(NamedTuple):
    """A request that has not passed, and who is charged for it."""

    head: RequestHead
    sent: Sent


class Pending(NamedTuple):
    """A request that was given to a handler; None: it has passed, and its answer is held."""

    ticket: Ticket
    request: Request | None


class Done(NamedTuple):
    """A request that is answered, likewise."""

    answer: bytes
    request: Request | None


class QuotaRequests:
    """One connection's requests about quotas; there is one at a time.

    Attributes:
        is_coming: Whether one has begun, and lacks its end.
    """

    __slots__ = ("_pending", "is_coming")

    def __init__(self) -> None:
        self._pending: Pending | None = None
        self.is_coming = False

    @property
    def is_pending(self) -> bool:
        """Whether a request was given to a handler that has not had its answer, or an answer is held."""
        return self._pending is not None

    def submit(
        self,
        handler: QuotaRequestHandler,
        frame: bytes,
        head: RequestHead,
        sent: Sent,
        *,
        origin: Origin,
        owner: object,
    ) -> None:
        """Have a request answered, whatever becomes of the listener and its administrators meanwhile.

        Args:
            handler: By whom.
            frame: The request, whole, behind whose predecessors nothing is unanswered.
            head: Of it.
            sent: Who is charged for it.
            origin: Who asks.
            owner: To be woken when the answer is there.

        Nothing is pending afterwards where the handler has no room for it.
        """
        ticket = handler.submit(frame, origin, owner)
        self._pending = None if ticket is None else Pending(ticket, Request(head, sent))

    def hold(self, ticket: Ticket) -> None:
        """Keep the answer to a request that has passed, and was charged, until the ticket has it."""
        self._pending = Pending(ticket, None)

    def take(self) -> Done | None:
        """Return the request that is pending, with its answer; None: not yet, or there is none.

        Raises:
            ProtocolError: It was no such request.
        """
        if self._pending is None:
            return None
        ticket, request = self._pending
        if ticket.error is not None:
            raise ticket.error
        if ticket.answer is None:
            return None
        self._pending = None
        return Done(ticket.answer, request)

    def close(self) -> None:
        """Take it that the connection is gone."""
        if self._pending is not None:
            self._pending.ticket.drop()
