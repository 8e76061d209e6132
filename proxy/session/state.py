"""The state that the parts of one session share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_quota_proxy.proxy.quota.line import Waiter
from kafka_quota_proxy.proxy.session.client_account import ClientAccount, ConnectionContext
from kafka_quota_proxy.proxy.session.in_flight import InFlightQueue, PendingRequest

if TYPE_CHECKING:
    from kafka_quota_proxy.proxy.session.broker_turn import BrokerTurn
    from kafka_quota_proxy.proxy.session.bucket_turn import BucketTurn
    from kafka_quota_proxy.proxy.session.request_stream import RequestStream
    from kafka_quota_proxy.proxy.session.response_stream import ResponseStream

# Longer than any connection lasts: a mute that does not end.
_FOREVER_MS = 1 << 62


class SessionState:
    """The state that the parts of one session share.

    Attributes:
        account: The client's identity, buckets and mute.
        context: What all connections of the listener to this broker share.
        owner: The connection to wake when a turn has come; it calls ``resume``.
        peer_host: The client's address.
        to_broker: Bytes to write to the broker.
        to_client: Bytes to write to the client.
        in_flight: Requests that have no response yet.
        unanswered: A Produce with acks=0 whose body passes now; it is charged at its end.
        request_left: How many bytes of a request's body are still to pass.
        is_blocked: The client must not be read: what it sent waits here.
        has_waited: A request has stood in the line of its bucket.
        is_ending: No further request is taken up.
        is_client_full: The client does not take its responses, and the broker is not read.
        delayed_until_ms: The broker must not be read: a response waits here; 0: none does.
        held_until_ms: When to look again at a request that waits for a decision; 0: none does.
        now_ns: The shell's clock at its last call, where milliseconds are too coarse.
        answered: The API of the response that began last; the shell reads it and puts -1.
    """

    __slots__ = (
        "account",
        "answered",
        "broker_turn",
        "bucket_turn",
        "context",
        "delayed_until_ms",
        "has_waited",
        "held_until_ms",
        "in_flight",
        "is_blocked",
        "is_client_full",
        "is_ending",
        "now_ns",
        "owner",
        "peer_host",
        "request_left",
        "requests",
        "responses",
        "to_broker",
        "to_client",
        "unanswered",
    )

    broker_turn: BrokerTurn
    bucket_turn: BucketTurn
    requests: RequestStream
    responses: ResponseStream

    def __init__(self, context: ConnectionContext, owner: Waiter | None) -> None:
        self.context = context
        self.account = ClientAccount(context)
        self.owner = owner
        self.peer_host = ""
        self.to_broker: list[bytes] = []
        self.to_client: list[bytes] = []
        self.in_flight = InFlightQueue()
        self.unanswered: PendingRequest | None = None
        self.request_left = 0
        self.is_blocked = False
        self.has_waited = False
        self.is_ending = False
        self.is_client_full = False
        self.delayed_until_ms = 0
        self.held_until_ms = 0
        self.now_ns = 0
        self.answered = -1

    def is_alone(self) -> bool:
        """Return whether no request and no response is under way; else block.

        A response that is made here would overtake others.
        """
        is_alone = not (self.in_flight or self.responses.is_open)
        self.is_blocked = not is_alone
        return is_alone

    def take_no_more(self) -> None:
        """Take up no request that has not begun; those that have are passed on and answered."""
        self.is_ending = True
        self.broker_turn.refuses_until_ms = 0
        self.account.muted_until_ms = _FOREVER_MS
