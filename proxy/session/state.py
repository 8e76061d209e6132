"""Contains the state of one client connection that the parts of its ``Session`` share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_quota_proxy.proxy.quota.line import Waiter
from kafka_quota_proxy.proxy.session.client_account import ClientAccount, ConnectionContext
from kafka_quota_proxy.proxy.session.in_flight import InFlightQueue, PendingRequest

if TYPE_CHECKING:
    from kafka_quota_proxy.proxy.session.broker_turn import BrokerTurn
    from kafka_quota_proxy.proxy.session.bucket_turn import BucketTurn
    from kafka_quota_proxy.proxy.session.request_stream import RequestStream
    from kafka_quota_proxy.proxy.session.response_stream import ResponseStream

# A time that never comes.
_FOREVER_MS = 1 << 62


@dataclass(slots=True, eq=False, repr=False)
class SessionState:
    """The state of one session that the parts of the session share.

    Attributes:
        context: What all connections of the listener to this broker share.
        owner: The connection. It is woken when a waiting request may be forwarded, and then calls ``Session.resume``.
        peer_host: The client's address.
        to_broker: Bytes to write to the broker.
        to_client: Bytes to write to the client.
        in_flight: The requests that were forwarded and have no response yet.
        unanswered: The Produce with acks=0 that is partly forwarded, or None.
        unsent: The Produce requests with acks=0 that are charged once the broker is connected. None if it is connected.
        request_left: How many bytes of the partly forwarded request have not arrived yet.
        is_blocked: Whether a request waits in the session. Nothing may be read from the client then.
        is_ending: Whether the session accepts no new requests, because the connection is about to end.
        drops_answered: Whether requests that the broker would answer are dropped, because the connection is drained.
        is_client_full: Whether the client does not read its responses. Nothing is read from the broker then.
        delayed_until_ms: The time until which a response is held back, or 0 if none is. Nothing may be read from the
            broker until then.
        held_until_ms: When to check again whether the decision that a request waits for has been made. 0 if no request
            waits for one.
        now_ns: The time, in nanoseconds, at which the server last called this session.
        answered: The API key of the response that began last. The server resets it to -1 after reading it.
    """

    context: ConnectionContext
    owner: Waiter | None
    peer_host: str = ""
    to_broker: list[bytes] = field(default_factory=list)
    to_client: list[bytes] = field(default_factory=list)
    in_flight: InFlightQueue = field(default_factory=InFlightQueue)
    unanswered: PendingRequest | None = None
    unsent: list[PendingRequest] | None = None
    request_left: int = 0
    is_blocked: bool = False
    is_ending: bool = False
    drops_answered: bool = False
    is_client_full: bool = False
    delayed_until_ms: int = 0
    held_until_ms: int = 0
    now_ns: int = 0
    answered: int = -1
    account: ClientAccount = field(init=False)
    broker_turn: BrokerTurn = field(init=False)
    bucket_turn: BucketTurn = field(init=False)
    requests: RequestStream = field(init=False)
    responses: ResponseStream = field(init=False)

    def __post_init__(self) -> None:
        self.account = ClientAccount(self.context)

    def is_alone(self) -> bool:
        """Return whether no request is pending and no response is partly forwarded. If not, make the next request wait.

        The proxy may answer a request itself only if this returns True. Otherwise its response would overtake earlier
        responses.
        """
        is_alone = not (self.in_flight or self.responses.is_open)
        self.is_blocked = not is_alone
        return is_alone

    def take_no_more(self) -> None:
        """Accept no new request. A partly forwarded request is still completed and answered."""
        self.is_ending = True
        self.broker_turn.refuses_until_ms = 0
        self.account.muted_until_ms = _FOREVER_MS
