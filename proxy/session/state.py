"""Contains the state of one client connection that the parts of its ``Session`` share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_quota_proxy.protocol.header import RequestHead
from kafka_quota_proxy.proxy.fair_queue.request_kind import request_kind
from kafka_quota_proxy.proxy.quota.line import Line, Place, Waiter
from kafka_quota_proxy.proxy.quota.request_time import is_exempt
from kafka_quota_proxy.proxy.quota.rule_tables import bounded
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.client_account import NO_BUCKETS, ClientAccount, ConnectionContext
from kafka_quota_proxy.proxy.session.in_flight import MAX_IN_FLIGHT, PendingRequest
from kafka_quota_proxy.proxy.session.request_charge import RequestCharge

if TYPE_CHECKING:
    from kafka_quota_proxy.proxy.session.broker_turn import BrokerTurn
    from kafka_quota_proxy.proxy.session.bucket_turn import BucketTurn
    from kafka_quota_proxy.proxy.session.request_stream import RequestStream
    from kafka_quota_proxy.proxy.session.response_stream import ResponseStream

# A time that never comes.
_FOREVER_MS = 1 << 62


class SessionState:
    """The state of one session that the parts of the session share.

    Attributes:
        context: What all connections of the listener to this broker share.
        owner: The connection. It is woken when a waiting request may be forwarded, and then calls ``Session.resume``.
        to_broker: Bytes to write to the broker.
        to_client: Bytes to write to the client.
        in_flight: The requests that were forwarded and have no response yet, the oldest first.
        in_flight_limit: The largest number of requests that may be in flight. If it is 0, no request is forwarded.
        unanswered: The Produce with acks=0 that is partly forwarded, or None.
        unsent: The Produce requests with acks=0 that are charged once the broker is connected. None if it is connected.
        request_left: How many bytes of the partly forwarded request are not forwarded yet.
        is_rest_doubted: Whether these bytes are not reserved, so that each piece of them waits for its bucket's turn.
        blocked_by: What the request at the front waits for, or None if it does not wait. Nothing may be read from the
            client while it waits.
        is_ending: Whether the session accepts no new requests, because the connection is about to end.
        drops_answered: Whether requests that the broker would answer are dropped, because the connection is drained.
        is_client_full: Whether the client does not read its responses. Nothing is read from the broker then.
        delayed_until_ms: The time until which a response is held back, or 0 if none is. Nothing may be read from the
            broker until then.
        held_until_ms: When to check again whether the decision that a request waits for has been made. 0 if no request
            waits for one.
        waiting_turn: The turn for which the client's next request waits in the line of a bucket. None if something else
            holds the request back, or nothing does.
        now_ns: The time, in nanoseconds, at which the server last called this session.
        answered: The API key of the response that began last. The server resets it to -1 after reading it.
    """

    __slots__ = (
        "account", "answered", "blocked_by", "broker_turn", "bucket_turn", "context", "delayed_until_ms",
        "drops_answered", "held_until_ms", "in_flight", "in_flight_limit", "is_client_full", "is_ending",
        "is_rest_doubted", "now_ns", "owner", "rate_turn", "request_left", "requests", "responses", "to_broker",
        "to_client", "unanswered", "unsent", "waiting_turn",
    )  # fmt: skip

    account: ClientAccount
    broker_turn: BrokerTurn
    bucket_turn: BucketTurn
    rate_turn: BucketTurn
    requests: RequestStream
    responses: ResponseStream

    def __init__(self, context: ConnectionContext, owner: Waiter | None) -> None:
        self.context = context
        self.owner = owner
        self.to_broker: list[bytes] = []
        self.to_client: list[bytes] = []
        self.in_flight: list[PendingRequest] = []  # faster than a deque while it is short
        self.in_flight_limit = MAX_IN_FLIGHT
        self.unanswered: PendingRequest | None = None
        self.unsent: list[PendingRequest] | None = None
        self.request_left = 0
        self.is_rest_doubted = False
        self.blocked_by: BlockedBy | None = None
        self.is_ending = False
        self.drops_answered = False
        self.is_client_full = False
        self.delayed_until_ms = 0
        self.held_until_ms = 0
        self.waiting_turn: BucketTurn | None = None
        self.now_ns = 0
        self.answered = -1
        self.account = ClientAccount(context)

    def block(self, by: BlockedBy) -> None:
        """Note that the request at the front waits, and for what."""
        self.blocked_by = by

    def block_all(self, *, is_held: bool, has_work: bool, now_ms: int) -> None:
        """Note that all requests wait. The first of these reasons that holds is the one that is known afterwards.

        ``is_held`` says that they wait for an answer that is held back. ``has_work`` is False if other connections have
        their turn first.
        """
        if self.is_ending:
            self.blocked_by = BlockedBy.END
        elif is_held or self.delayed_until_ms:
            self.blocked_by = BlockedBy.DELAYED_ANSWER
        elif now_ms < self.account.muted_until_ms:
            self.blocked_by = BlockedBy.THROTTLE_TIME
        else:
            self.blocked_by = BlockedBy.EARLIER_ANSWERS if has_work else BlockedBy.OTHER_CONNECTIONS

    def unblock(self) -> None:
        """Note that no request waits, or that one waits for more of its bytes, which are read."""
        self.blocked_by = None

    def end_wait(self) -> None:
        """Note that no request waits, neither for its turn in a line nor for anything else."""
        self.blocked_by = self.waiting_turn = None

    def may_answer(self) -> bool:
        """Return whether the proxy may answer a request itself now. If not, make the next request wait.

        Its response must not overtake those to earlier requests, and the client has to read what it was sent.
        """
        if not (self.in_flight or self.responses.left or self.responses.data or self.is_client_full):
            return True
        self.block(BlockedBy.UNREAD_ANSWERS if self.is_client_full else BlockedBy.EARLIER_ANSWERS)
        return False

    def charge_of(self, head: RequestHead, now_ms: int, *, acks: int = 1) -> RequestCharge | None:
        """Return what a request is charged in addition to bytes: by the quotas on requests and the fair call queue.

        None if neither applies to the requests of this connection.
        """
        account, queued = self.account, self.broker_turn.queued
        if queued is None and not account.context.quotas.limits_requests:
            return None
        is_free = is_exempt(head.api_key, is_broker=account.believes_replicas())
        buckets = NO_BUCKETS if is_free else account.request_buckets(head.client_id, now_ms)
        identity = None
        if queued is not None:
            name = bounded(head.client_id.decode("utf-8", "backslashreplace"))
            identity = queued.line.identity(account.principal, name, account.peer_host)
        return RequestCharge(buckets, request_kind(head.api_key, head.api_version, acks), identity)

    def place_in(self, line: Line | None) -> Place | None:
        """Return the place of the client's next request in the line of a bucket, or None if it has none."""
        for turn in (self.bucket_turn, self.rate_turn):
            if turn.place is not None and turn.place.line is line:
                return turn.place
        return None

    @property
    def is_response_awaited(self) -> bool:
        """Whether a response of the broker is awaited."""
        return bool(self.in_flight) or not self.in_flight_limit

    def hold_requests(self) -> None:
        """Forward no further request of the client for now. The method ``allow_requests`` ends this."""
        self.in_flight_limit = 0

    def allow_requests(self) -> None:
        """Forward requests of the client again. This undoes the method ``hold_requests``."""
        self.in_flight_limit = MAX_IN_FLIGHT

    def take_no_more(self) -> None:
        """Accept no new request. A partly forwarded request is still completed and answered."""
        self.is_ending = True
        self.broker_turn.refuses_until_ms = 0
        self.account.muted_until_ms = _FOREVER_MS
