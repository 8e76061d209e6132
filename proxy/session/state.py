"""The state that the parts of one session share."""

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

# Longer than any connection lasts: a mute that does not end.
_FOREVER_MS = 1 << 62


@dataclass(slots=True, eq=False, repr=False)
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

    context: ConnectionContext
    owner: Waiter | None
    peer_host: str = ""
    to_broker: list[bytes] = field(default_factory=list)
    to_client: list[bytes] = field(default_factory=list)
    in_flight: InFlightQueue = field(default_factory=InFlightQueue)
    unanswered: PendingRequest | None = None
    request_left: int = 0
    is_blocked: bool = False
    has_waited: bool = False
    is_ending: bool = False
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
