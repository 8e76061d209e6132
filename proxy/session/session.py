"""One client's connection, without I/O: bytes and the time in; out, what to write and whether to go on reading.

The shell hands over what it read (``receive_from_client``, ``receive_from_broker``), calls ``handle_timer`` at
``wake_at_ms``, and after each of them writes ``to_broker`` and ``to_client``, clears them, and reads each side or not
as ``is_blocked`` and ``delayed_until_ms`` say.

A body passes without being kept: a request waits here until its head has come, a response until its throttle time can
be written. What a client sent ahead ``is_blocked`` for one of these reasons:

* It is muted: it was over its quota, and ``muted_until_ms`` has not come.
* Its next request would go over the quota while earlier ones have no response. A broker takes one request of a
  connection at a time. So does a session where it matters; elsewhere requests are sent ahead.
* The bucket of its next request is in debt, or others are in front of it in the bucket's line (``BucketTurn``).
* Too many requests have no response, or one of a login has none: the charge of the next one depends on it.
* A queue stands in front of the broker, and its turn has not come (``BrokerTurn``).
* Its client does not take its responses, and the next request is charged for more than its bytes, or queues.
* It is a follower's fetch of which nothing may flow now, or is about topics of which the broker has to be asked
  something first (``handlers``).

Source of the order of things: ``KafkaApis.handleProduceRequest`` and ``handleFetchRequest``; KIP-219.
"""

from typing import Protocol

from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.line import Waiter
from kafka_quota_proxy.proxy.session.broker_turn import BrokerTurn
from kafka_quota_proxy.proxy.session.bucket_turn import BucketTurn
from kafka_quota_proxy.proxy.session.client_account import ClientAccount, ConnectionContext
from kafka_quota_proxy.proxy.session.handlers.follower_fetch import FollowerFetchHandler
from kafka_quota_proxy.proxy.session.handlers.produce import ProduceHandler
from kafka_quota_proxy.proxy.session.handlers.quota_requests import QuotaRequestHandler
from kafka_quota_proxy.proxy.session.replica.follower_fetch import Follower
from kafka_quota_proxy.proxy.session.request_stream import RequestStream
from kafka_quota_proxy.proxy.session.response_stream import ResponseStream
from kafka_quota_proxy.proxy.session.state import SessionState
from kafka_quota_proxy.proxy.session.unanswered import Unanswered


class Receive(Protocol):
    """Takes bytes from a peer."""

    def __call__(self, data: bytes, *, now_ms: int) -> None:
        """Take what a peer sent.

        Raises:
            ProtocolError: It is not Kafka's protocol; write what is there, and close.
        """


class Session:
    """One client connection. Not to be used further after it raised ``ProtocolError``.

    Attributes:
        state: What the shell reads after each call.
        receive_from_client: Takes what the client sent.
        receive_from_broker: Takes what the broker sent.
    """

    __slots__ = ("_requests", "_responses", "_turn", "receive_from_broker", "receive_from_client", "state")

    receive_from_client: Receive
    receive_from_broker: Receive

    def __init__(self, context: ConnectionContext, owner: Waiter | None = None) -> None:
        state = self.state = SessionState(context, owner)
        state.bucket_turn = BucketTurn(state)
        self._turn = state.broker_turn = BrokerTurn(state)
        self._responses = state.responses = ResponseStream(state)
        self._requests = state.requests = RequestStream(state)
        # Bound once: each read of a socket pays for the call.
        self.receive_from_client = self._requests.receive
        self.receive_from_broker = self._responses.receive

    # -- what the shell reads --

    @property
    def account(self) -> ClientAccount:
        """The client's identity, buckets and mute."""
        return self.state.account

    @property
    def muted_until_ms(self) -> int:
        """Until when the client is muted; in the past: it is not."""
        return 0 if self.state.is_ending else self.state.account.muted_until_ms

    @property
    def follower(self) -> Follower | None:
        """What a follower's fetches have seen, if limits on replication hold for this connection."""
        handler = self._requests.made(FollowerFetchHandler)
        return None if handler is None else handler.follower

    @property
    def wake_at_ms(self) -> int:
        """When to call ``handle_timer``; 0 or in the past: not needed, a response will free what waits."""
        state = self.state
        if state.delayed_until_ms:
            return state.delayed_until_ms
        if not state.is_blocked:
            return 0
        turn = state.bucket_turn
        return turn.look_at_ms if turn.is_waiting else max(self.muted_until_ms, state.held_until_ms)

    @property
    def is_idle(self) -> bool:
        """Whether everything that can be answered has been, and nothing waits to be passed on."""
        return self.has_answered and not self.state.request_left

    @property
    def has_answered(self) -> bool:
        """Whether every request that was taken up, or is to be, has been answered."""
        state = self.state
        waits = state.is_blocked and not state.is_ending
        quotas = self._requests.made(QuotaRequestHandler)
        is_decided_elsewhere = quotas is not None and quotas.is_pending
        return not (state.in_flight.is_waiting or waits or self._responses.is_open or is_decided_elsewhere)

    @property
    def is_owed(self) -> bool:
        """Whether the client waits for a response. A client that has stopped within its only request does not."""
        state = self.state
        unfinished = 1 if state.request_left and state.unanswered is None else 0
        is_awaited = len(state.in_flight) > unfinished or not state.in_flight.limit
        return is_awaited or state.is_blocked or self._responses.is_open

    @property
    def is_logging_in(self) -> bool:
        """Whether the client has begun a login and the broker has not accepted it yet."""
        login = self._requests.login
        return login is not None and login.login.principal is None

    @property
    def awaits_no_answers(self) -> bool:
        """Whether the client produces with acks=0: it would never know what did not arrive."""
        profile = self._requests.profile
        return profile is not None and isinstance(profile.handler, ProduceHandler) and not profile.acks

    @property
    def held_bytes(self) -> int:
        """How many bytes were read and could not be passed on yet."""
        return self._requests.kept_bytes + self._responses.kept_bytes + sum(map(len, self.state.to_broker))

    # -- what happens to it --

    def handle_timer(self, *, now_ms: int) -> None:
        """Go on with what has waited long enough. Raises ``ProtocolError``."""
        state = self.state
        if state.delayed_until_ms and now_ms >= state.delayed_until_ms:
            state.delayed_until_ms = 0
            self._turn.begin_service()
            self._responses.resume(now_ms)
        elif state.is_blocked:
            state.held_until_ms = 0
            self._requests.resume(now_ms)

    def resume(self, *, now_ms: int) -> None:
        """Go on with what waited for its turn, or for its client. Raises ``ProtocolError``."""
        if self.state.is_blocked:
            self._requests.resume(now_ms)
        self._turn.leave_unused()  # the request waits for something else now, or the connection is to end

    def release(self, *, now_ms: int) -> None:
        """Go on with what waits for its throttle time, and let nothing wait from now on. Raises ``ProtocolError``."""
        state = self.state
        state.account.release()
        self._turn.refuses_until_ms = 0
        self._requests.release()
        if state.is_ending:
            state.take_no_more()
        self._responses.stop_delaying()
        state.delayed_until_ms = min(state.delayed_until_ms, now_ms)
        self.handle_timer(now_ms=now_ms)

    def take_no_more(self) -> None:
        """Take up no request that has not begun; those that have are passed on and answered."""
        self.state.take_no_more()

    def pause_answers(self) -> None:
        """Note that the client does not take its responses, and that the broker is not read."""
        self.state.is_client_full = True
        self._turn.stop_service()

    def resume_answers(self) -> None:
        """Note that the client takes its responses again; what waits here goes on with ``resume``."""
        self.state.is_client_full = False
        self._turn.begin_service()

    def restart_service(self) -> None:
        """Note that the broker gets the requests only now: it had to be dialled first."""
        self._turn.restart_service()

    def receive_end_from_client(self) -> None:
        """Note that the client sends no more: a request that it cut off has no response."""
        self._requests.cut_off()

    # -- the end --

    def close(self, *, now_ms: int, has_passed: bool) -> Unanswered | None:
        """Settle what will not be answered any more, but for fetches that are charged when the broker has answered.

        Kafka charges a request whose client did not wait for the response; a client that resets its connections would
        never pay otherwise. ``has_passed``: the broker has got all that was passed on, and has not left itself.

        Returns:
            The reader of the broker's responses from now on; None: none is needed.
        """
        state = self.state
        in_flight = state.in_flight
        is_cut_off = state.request_left and state.unanswered is None
        whole = in_flight[:-1] if is_cut_off else in_flight[:]
        unanswered = None
        if has_passed and any(pending.is_charged_by_response for pending in whole):
            begun, skip_bytes = self._responses.unread()
            unanswered = Unanswered(state.account, whole, begun=begun, skip_bytes=skip_bytes)
        for index, pending in enumerate(in_flight):
            is_charged = has_passed and index < len(whole)
            bucket = pending.profile.bucket
            if bucket is not None and not (is_charged and pending.is_charged_by_response):
                bucket.settle(pending.reserved_bytes)
                if is_charged and not pending.profile.charges_response:
                    self._silence(bucket, bucket.charge(pending.size_bytes, now_ms=now_ms), now_ms)
            charge = pending.charge
            if charge is not None:
                service = self._turn.end_service()  # nothing for those behind the oldest
                if has_passed:
                    self._turn.charge_turn(charge, service)
                scale = state.context.quotas.request_time_scale
                for payer, wait_ms in (
                    charge.settle(service, pending.size_bytes, 0, scale=scale, now_ms=now_ms)
                    if is_charged
                    else charge.forget()
                ):
                    self._silence(payer, wait_ms, now_ms)
        self._requests.drop_unanswered(had_turn=has_passed)
        for bucket in {pending.profile.bucket for pending in in_flight}:
            if bucket is not None and bucket.line is not None:
                bucket.line.wake_first()
        state.bucket_turn.leave()
        in_flight.clear()
        self._requests.close()
        self._turn.leave()
        state.account.close(now_ms=now_ms)
        return unanswered

    def _silence(self, bucket: Bucket, wait_ms: int, now_ms: int) -> None:
        if wait_ms > 0 and not self.state.account.observes(bucket):
            bucket.silence(wait_ms, now_ms=now_ms)
