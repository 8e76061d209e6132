"""One client's connection, without I/O: it takes bytes and the time, and says what to write and when to stop reading.

The server hands over the bytes that it has read. After each of its calls it writes ``SessionState.to_broker`` to the
broker and ``to_client`` to the client, clears both, and does what ``Session.needs`` says.

The body of a request or response is forwarded as it arrives. A request is kept only until its head has arrived, and a
response only until its throttle time can be written. The client's next request is blocked in these cases:

* The client is muted, because it was over its quota.
* The request would exceed its quota, and earlier requests have no response yet.
* The bucket of the request is over its limit, or other requests are ahead of it in the bucket's line (``BucketTurn``).
* Too many requests have no response, or a request of a login has none.
* The request has to wait for its turn in the fair call queue (``BrokerTurn``).
* The client does not read its responses, and the fair call queue or the quotas on requests apply to the request.
* The request is a follower's fetch, and the quotas on replication have no room for it.
* The proxy first has to ask the broker about the request's topics.

Source: ``KafkaApis.handleProduceRequest`` and ``handleFetchRequest``, KIP-219.
"""

from typing import Final, NamedTuple, Protocol

from kafka_quota_proxy.proxy.quota.line import Waiter
from kafka_quota_proxy.proxy.session import acks_zero
from kafka_quota_proxy.proxy.session.broker_turn import BrokerTurn
from kafka_quota_proxy.proxy.session.bucket_turn import BucketTurn
from kafka_quota_proxy.proxy.session.client_account import ClientAccount, ConnectionContext
from kafka_quota_proxy.proxy.session.handlers.follower_fetch import FollowerFetchHandler
from kafka_quota_proxy.proxy.session.handlers.produce import ProduceHandler
from kafka_quota_proxy.proxy.session.replica.follower_fetch import Follower
from kafka_quota_proxy.proxy.session.request_stream import RequestStream
from kafka_quota_proxy.proxy.session.response_stream import ResponseStream
from kafka_quota_proxy.proxy.session.state import SessionState
from kafka_quota_proxy.proxy.session.unanswered import Unanswered
from kafka_quota_proxy.proxy.session.unfinished import cut_off, give_up_reservation

# After this time in line, a request is read to its end.
_LONG_WAIT_MS: Final = 1_000


class Needs(NamedTuple):
    """What the server has to do for a session, in addition to writing.

    Attributes:
        reads_client: Whether to read from the client.
        reads_broker: Whether to read from the broker.
        wake_at_ms: The time at which to call ``handle_timer``. If it is 0 or in the past, no call is needed.
        refusal: The reason why the connection has to be closed, or an empty text if it may stay open.
    """

    reads_client: bool
    reads_broker: bool
    wake_at_ms: int
    refusal: str


class Receive(Protocol):
    """The type of a function that takes received bytes, such as ``Session.receive_from_client``."""

    def __call__(self, data: bytes, *, now_ms: int) -> None:
        """Take bytes that the client or the broker has sent.

        Raises:
            ProtocolError: If the bytes violate Kafka's protocol. The caller must then write what there is to write, and
                close the connection.
        """


class Session:
    """The proxy's side of one client connection. The server does the I/O.

    After a method has raised ``ProtocolError``, only ``close`` may be called.

    Attributes:
        state: What the server reads after each call, for example the bytes to write.
        receive_from_client: Takes bytes that the client has sent.
        receive_from_broker: Takes bytes that the broker has sent.
    """

    __slots__ = ("_requests", "_responses", "_turn", "receive_from_broker", "receive_from_client", "state")

    receive_from_client: Receive
    receive_from_broker: Receive

    def __init__(self, context: ConnectionContext, owner: Waiter | None = None) -> None:
        state = self.state = SessionState(context, owner)
        state.bucket_turn = BucketTurn(state)
        state.rate_turn = BucketTurn(state)
        self._turn = state.broker_turn = BrokerTurn(state)
        self._responses, self._requests = self._streams(state)
        state.responses, state.requests = self._responses, self._requests
        # Bound once: each read of a socket pays for the call.
        self.receive_from_client = self._requests.receive
        self.receive_from_broker = self._responses.receive

    def _streams(self, state: SessionState) -> tuple[ResponseStream, RequestStream]:
        return ResponseStream(state), RequestStream(state)

    # -- what the server reads --

    @property
    def account(self) -> ClientAccount:
        """The client's identity, its buckets, and how long it is muted."""
        return self.state.account

    @property
    def muted_until_ms(self) -> int:
        """The time until which the client is muted. A time in the past means that the client is not muted."""
        return 0 if self.state.is_ending else self.state.account.muted_until_ms

    @property
    def follower(self) -> Follower | None:
        """The state of the client's fetches if it is a follower. None until a limit on replication applies to them."""
        handler = self._requests.handlers.get(FollowerFetchHandler)
        return handler.follower if isinstance(handler, FollowerFetchHandler) else None

    @property
    def needs(self) -> Needs:
        """What the server has to do now. If nothing is blocked or delayed, it only has to read both sides."""
        state, account, turn = self.state, self.state.account, self.state.waiting_turn
        reads_client, wake_at_ms = True, 0
        if state.blocked_by is not None:
            # An incomplete request may be read on although it waits.
            is_read_on = state.bucket_turn.reads_rest or state.rate_turn.reads_rest
            reads_client = is_read_on and self._requests.lacks_rest
            if turn is not None:
                wake_at_ms = turn.look_at_ms
            else:
                wake_at_ms = max(0 if state.is_ending else account.muted_until_ms, state.held_until_ms)
        delayed_until_ms = state.delayed_until_ms
        reads_broker = not (delayed_until_ms or state.is_client_full)
        return Needs(reads_client, reads_broker, delayed_until_ms or wake_at_ms, account.refusal)

    @property
    def is_idle(self) -> bool:
        """Whether no request is partly forwarded, waits to be forwarded, or waits for its response."""
        return self.has_answered and not self.state.request_left

    @property
    def has_answered(self) -> bool:
        """Whether no request waits to be forwarded, or waits for its response."""
        return not (self.owes_answers or (self.state.blocked_by is not None and not self.state.is_ending))

    @property
    def owes_answers(self) -> bool:
        """Whether a response is awaited from the broker or from the proxy itself, or is partly forwarded."""
        is_decided_elsewhere = self._requests.waiting is not None
        return self.state.is_response_awaited or self._responses.is_open or is_decided_elsewhere

    @property
    def is_owed(self) -> bool:
        """Whether the client is waiting for the response to a request that it has sent as a whole."""
        state = self.state
        unfinished = 1 if state.request_left and state.unanswered is None else 0
        is_awaited = len(state.in_flight) > unfinished or not state.in_flight_limit
        return is_awaited or state.blocked_by is not None or self._responses.is_open

    @property
    def is_logging_in(self) -> bool:
        """Whether the client has begun a login and the broker has not accepted it yet."""
        login = self._requests.login
        return login is not None and login.login.principal is None

    @property
    def awaits_no_answers(self) -> bool:
        """Whether the client produces with acks=0, so that it would not notice if records were lost."""
        profile = self._requests.profile
        return profile is not None and isinstance(profile.handler, ProduceHandler) and not profile.acks

    @property
    def takes_unanswered(self) -> bool:
        """Whether only requests without an answer are accepted."""
        return self.state.drops_answered and not self.state.is_ending

    @property
    def held_bytes(self) -> int:
        """The number of bytes that have arrived from the client or the broker and are not forwarded yet."""
        return self._requests.kept_bytes + self._responses.kept_bytes + sum(map(len, self.state.to_broker))

    # -- what happens to the connection --

    def handle_timer(self, *, now_ms: int) -> None:
        """Forward the request or response that has waited long enough. Call this at ``Needs.wake_at_ms``.

        Raises:
            ProtocolError: If bytes that waited violate Kafka's protocol.
        """
        state = self.state
        if state.delayed_until_ms and now_ms >= state.delayed_until_ms:
            state.delayed_until_ms = 0
            self._turn.begin_service()
            self._responses.resume(now_ms)
        elif state.blocked_by is not None:
            state.held_until_ms = 0
            self._requests.resume(now_ms)

    def resume(self, *, now_ms: int) -> None:
        """Forward the waiting request if it may be forwarded now. Raises ``ProtocolError`` as ``handle_timer`` does."""
        if self.state.blocked_by is not None:
            self._requests.resume(now_ms)
        if self._turn.queued is not None:
            self._turn.leave_unused()  # if the request waits for something else now, or the connection is about to end

    def release(self, *, now_ms: int) -> None:
        """Forward what waits because of a quota, and do not throttle the client any more.

        Raises:
            ProtocolError: If bytes that waited violate Kafka's protocol.
        """
        state = self.state
        state.account.release()
        self._turn.refuses_until_ms = 0
        for handler in self._requests.handlers.values():
            handler.release()
        if state.is_ending:
            state.take_no_more()
        self._responses.stop_delaying()
        state.delayed_until_ms = min(state.delayed_until_ms, now_ms)
        self.handle_timer(now_ms=now_ms)

    def take_no_more(self) -> None:
        """Accept no new request. Requests that were forwarded, even in part, are still completed and answered."""
        self.state.take_no_more()

    def drain(self) -> None:
        """Accept no new request, except for requests without an answer from a client that awaits no answers."""
        if self.awaits_no_answers:
            self.state.drops_answered = True
        else:
            self.take_no_more()

    def abandon(self, *, now_ms: int) -> None:
        """Drop the requests that wait for a quota or the fair call queue, because their client has gone.

        They are counted, and not charged. From then on, no request that the broker would answer is forwarded, because
        its response would overtake theirs. What the client has sent with acks=0 still waits, since the client expects
        it to be written. Raises ``ProtocolError`` as ``handle_timer`` does.
        """
        state = self.state
        if state.blocked_by is None or state.is_response_awaited or self._responses.is_open:
            return  # nothing waits, or it waits for the answer to an earlier request
        dropped = self._requests.drop_abandoned()
        if dropped:
            state.drops_answered = True
            self._requests.profile = None
            state.context.counters.abandoned += dropped
            state.bucket_turn.leave()
            state.rate_turn.leave()
            self.resume(now_ms=now_ms)

    def sweep(self, *, now_ms: int) -> None:
        """Let a request that stalls hold nobody. Call this once a second."""
        if self._requests.has_stalled():
            give_up_reservation(self.state, now_ms)

    def has_waited_long(self, *, now_ms: int) -> bool:
        """Return whether an incomplete request has waited in its bucket's line for a second.

        It is then read to its end. Its client may have gone, and the end of a connection is noticed only behind the
        last of its bytes.
        """
        turn = self.state.waiting_turn
        if turn is not None and now_ms - turn.since_ms >= _LONG_WAIT_MS and self._requests.lacks_rest:
            turn.reads_rest = True
            return True
        return False

    def count_abandoned(self) -> None:
        """Count the waiting requests that are dropped with a connection whose client has gone."""
        if self.state.blocked_by is not None and not self.state.is_ending:
            self.state.context.counters.abandoned += self._requests.drop_abandoned()

    def pause_answers(self) -> None:
        """Let nothing be read from the broker, because the client does not read its responses."""
        state = self.state
        state.is_client_full = True
        state.account.hold_mute(now_ms=state.now_ns // 1_000_000)
        self._turn.stop_service()

    def resume_answers(self) -> None:
        """Undo ``pause_answers``, because the client reads its responses again. Call ``resume`` afterwards."""
        state = self.state
        state.is_client_full = False
        state.account.begin_mute(now_ms=state.now_ns // 1_000_000)
        self._turn.begin_service()

    def await_broker(self) -> None:
        """Note that the broker is not connected yet. Requests without a response are charged by ``connect_broker``."""
        self.state.unsent = []

    def connect_broker(self, *, now_ms: int) -> None:
        """Note that the broker is connected: charge what is sent now, and start timing the oldest pending request.

        Raises ``ProtocolError`` as ``resume`` does.
        """
        acks_zero.charge_unsent(self.state, now_ms)
        self._turn.restart_service()
        self.resume(now_ms=now_ms)

    def receive_end_from_client(self) -> None:
        """Note that the client will send no more bytes. A partly forwarded request then gets no response."""
        if not self._requests.has_all():
            cut_off(self.state, self.state.now_ns // 1_000_000, had_turn=True)

    # -- the end --

    def close(self, *, now_ms: int, has_passed: bool) -> Unanswered | None:
        """Charge or forget all pending requests, because the connection has ended.

        As in Kafka, a client pays for a request even if it did not wait for the response. ``has_passed`` says that the
        broker has received all forwarded requests and is still connected. If so, each fetch is charged later, when the
        broker answers it. If not, pending requests are not charged.

        Returns:
            An ``Unanswered``, which reads the responses that the broker still sends, and charges the fetches. None if
            no fetch has to be charged later.
        """
        state = self.state
        cut_off(state, now_ms, had_turn=has_passed)
        in_flight = state.in_flight
        unanswered = None
        if has_passed and any(pending.is_charged_by_response for pending in in_flight):
            begun, skip_bytes = self._responses.unread()
            unanswered = Unanswered(state.account, in_flight[:], begun=begun, skip_bytes=skip_bytes)
        for pending in in_flight:
            bucket = pending.profile.bucket
            if bucket is not None and not (has_passed and pending.is_charged_by_response):
                bucket.reserved.settle(pending.reserved_bytes)
                if has_passed and not pending.profile.charges_response:
                    state.account.silence(bucket, bucket.charge(pending.size_bytes, now_ms=now_ms), now_ms=now_ms)
            charge = pending.charge
            if charge is not None:
                service = self._turn.end_service()  # the broker's time for the oldest request; 0 for all others
                if has_passed:
                    self._turn.charge_turn(charge, service)
                scale = state.context.quotas.request_time_scale
                for payer, wait_ms in (
                    charge.settle(service, pending.size_bytes, 0, scale=scale, now_ms=now_ms)
                    if has_passed
                    else charge.forget()
                ):
                    state.account.silence(payer, wait_ms, now_ms=now_ms)
        acks_zero.drop_unsent(state)
        for bucket in {pending.profile.bucket for pending in in_flight}:
            if bucket is not None and bucket.line is not None:
                bucket.line.wake_first()
        state.bucket_turn.leave()
        state.rate_turn.leave()
        in_flight.clear()
        for handler in self._requests.handlers.values():
            handler.close()
        self._turn.leave()
        state.account.close(now_ms=now_ms)
        return unanswered
