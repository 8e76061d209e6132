"""Decides which of a client's requests are forwarded to the broker now, and how each request is edited."""

from __future__ import annotations

from typing import Final, TypeVar

from librt.strings import read_i32_be

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.errors import HeadTooLong
from kafka_quota_proxy.protocol.header import MAX_HEAD_BYTES, read_request_head
from kafka_quota_proxy.protocol.partial_frame import PartialFrame, bytes_to_wait_for
from kafka_quota_proxy.proxy.session import acks_zero
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.broker_turn import MAX_REFUSED_BYTES
from kafka_quota_proxy.proxy.session.frame_edits import NO_EDIT, Edit
from kafka_quota_proxy.proxy.session.handlers.follower_fetch import MAX_REPLICA_FETCH_BYTES
from kafka_quota_proxy.proxy.session.handlers.handler import Handler
from kafka_quota_proxy.proxy.session.handlers.login import NEEDS_MORE, LoginHandler
from kafka_quota_proxy.proxy.session.handlers.other import OtherHandler
from kafka_quota_proxy.proxy.session.handlers.quota_requests import QuotaRequestHandler
from kafka_quota_proxy.proxy.session.handlers.table import HANDLERS
from kafka_quota_proxy.proxy.session.handlers.unanswered_only import UnansweredOnlyHandler, end_of_answered
from kafka_quota_proxy.proxy.session.in_flight import RequestProfile, charged_buckets
from kafka_quota_proxy.proxy.session.sasl_login import LOGIN_APIS
from kafka_quota_proxy.proxy.session.state import SessionState
from kafka_quota_proxy.proxy.session.unfinished import may_go_on

# Requests that a client may send before its principal is known. A later request counts the connection.
_BEFORE_LOGIN: Final = LOGIN_APIS | {int(ApiKey.API_VERSIONS)}
# How much is done within a millisecond, before other connections have their turn. A request with a new head counts for
# five.
_MOST_WORK: Final = 1_500
_NEW_HEAD: Final = 5
# How many buckets of earlier client-ids and rules a connection may hold for its pending requests.
_MOST_STALE: Final = 8
# With more requests pending, stale buckets are looked for only when they are many.
_FEW_PENDING: Final = 16
# The longest waiting request that is read to its end: a full batch of most producers has a megabyte.
_MAX_WAITING_BYTES: Final = 5 * 256 * 1024

H = TypeVar("H", bound=Handler)


class RequestStream:
    """Takes the bytes that one client sends, and forwards its requests to the broker as soon as they may be forwarded.

    Attributes:
        handlers: The handlers of this connection by their class, one for each family of APIs that the client has used.
        other: The handler of all APIs without one of their own.
        profile: What is known about the last Produce or fetch. Most likely it also holds for the next request.
        question: A request of the proxy's own, which is sent to the broker next. Empty if there is none.
        waiting: The handler of a request about client quotas that waits for its answer, or None.
        login: The handler of logins, or None until the client begins a login.
    """

    __slots__ = (
        "_at", "_data", "_left_before", "_pieces", "_state", "_work", "_work_ms", "handlers", "login", "other",
        "profile", "question", "waiting",
    )  # fmt: skip

    def __init__(self, state: SessionState) -> None:
        self._state = state
        # The bytes that are not forwarded yet begin at _at in _data. While the rest of a frame is missing, _pieces
        # collects _data and the bytes that follow.
        self._data = b""
        self._at = 0
        self._pieces: PartialFrame | None = None
        self._work_ms = 0  # when requests were last looked at
        self._work = 0  # how much may still be done then
        self._left_before = 0  # what was missing of the partly forwarded request at the last look
        self.handlers: dict[type[Handler], Handler] = {}
        self.other = OtherHandler(state)
        self.profile: RequestProfile | None = None
        self.question = b""
        self.waiting: QuotaRequestHandler | None = None
        self.login: LoginHandler | None = None

    # -- calls of the session --

    def receive(self, data: bytes, *, now_ms: int) -> None:
        """Take bytes from the client. Raises ``ProtocolError`` if they violate Kafka's protocol."""
        state = self._state
        left = state.request_left
        if left and not state.is_rest_doubted:
            if len(data) <= left:
                state.to_broker.append(data)
                self.pass_body(len(data), now_ms)
                return
            state.to_broker.append(data[:left])
            self.pass_body(left, now_ms)
            self._pass_on(data, left, now_ms)
        elif self._data:
            if self._pieces is None:
                data = self._data[self._at :] + data
            elif data := self._pieces.add(data):
                self._pieces = None
            else:
                return
            self._pass_on(data, 0, now_ms)
        else:
            self._pass_on(data, 0, now_ms)

    def pass_body(self, size_bytes: int, now_ms: int) -> None:
        """Note that the next bytes of the partly forwarded request went to the broker: at most ``request_left``."""
        state = self._state
        state.request_left -= size_bytes
        if not state.request_left:
            state.is_rest_doubted = False
            self._end_request(now_ms)

    def resume(self, now_ms: int) -> None:
        """Forward the requests that may go now. Raises ``ProtocolError`` if they violate Kafka's protocol."""
        self._pass_on(self._data, self._at, now_ms)

    def drop_abandoned(self) -> int:
        """Drop the requests at the front that the broker would answer. Return how many they are.

        A Produce with acks=0 stays, with all that follows it. Behind an incomplete request nothing more is taken.
        """
        if self._pieces is not None or self.waiting is not None or self._state.request_left:
            return 0  # a head is incomplete, or a request is already being decided on or partly forwarded
        data = self._data
        at, dropped = end_of_answered(data, self._at, self._state.context.policy.max_frame_size_bytes)
        self._data, self._at = (data, at) if at < len(data) else (b"", 0)
        if at > len(data):
            self._state.take_no_more()
        return dropped

    def has_stalled(self) -> bool:
        """Return whether no byte of a partly forwarded request has come since the last call."""
        left, self._left_before = self._left_before, self._state.request_left
        return left > 0 and left == self._state.request_left and not self._data

    def has_all(self) -> bool:
        """Return whether the rest of a partly forwarded request has come. If not, forget what has come of it."""
        is_all = self.kept_bytes >= self._state.request_left
        if not is_all:
            self._data, self._at = b"", 0
        return is_all

    @property
    def lacks_rest(self) -> bool:
        """Whether the request at the front is incomplete, and short enough to be kept whole."""
        kept_bytes = 0 if self._state.request_left else len(self._data) - self._at
        return 4 <= kept_bytes < 4 + read_i32_be(self._data, self._at) <= _MAX_WAITING_BYTES

    @property
    def kept_bytes(self) -> int:
        """The number of bytes of requests that have arrived and are not forwarded yet."""
        return len(self._pieces or self._data)

    # -- the loop over requests --

    def _pass_on(self, data: bytes, start: int, now_ms: int) -> None:  # noqa: C901 - one loop is faster
        """Forward the requests from offset ``start`` on, as far as possible, and keep the rest of ``data``."""
        state = self._state
        if (self.waiting is not None or state.request_left) and (start := self._pass_first(data, start, now_ms)) < 0:
            return
        account, context, broker_turn = state.account, state.context, state.broker_turn
        position, end, max_frame_bytes = start, len(data), 4 + context.policy.max_frame_size_bytes
        begun, is_held = state.responses.begun, False
        if state.blocked_by is not None or begun is not None or state.is_client_full:
            state.end_wait()
            is_held = (begun is not None and begun.delay_ms > 0) or account.held_mute_ms > 0
        is_used_up = now_ms == self._work_ms or self._work <= 0 < state.held_until_ms  # in this ms, or until the timer
        work, in_flight = self._work if is_used_up else _MOST_WORK, state.in_flight
        try:
            while position < end:
                if (
                    is_held
                    or (now_ms < account.muted_until_ms and now_ms >= broker_turn.refuses_until_ms)
                    or len(in_flight) >= state.in_flight_limit
                    or state.delayed_until_ms
                    or not work
                ):
                    state.block_all(is_held=is_held, has_work=work > 0, now_ms=now_ms)
                    break
                if broker_turn.queued is not None:
                    broker_turn.come_bytes = end - position
                profile = self.profile
                size_bytes: int
                if (
                    profile is not None
                    and data.startswith(profile.front, position + 12)
                    and profile.api == read_i32_be(data, position + 4)
                    and profile.generation == context.quotas.generation
                    and profile.front_end <= 4 + (size_bytes := read_i32_be(data, position)) <= max_frame_bytes
                ):
                    correlation_id: int = read_i32_be(data, position + 8)
                    edit = profile.handler.repeat(profile, data, position, size_bytes, correlation_id, now_ms)
                    if edit is None:
                        if not broker_turn.is_refused:
                            break
                        edit = broker_turn.refuse(data, position, size_bytes, now_ms)
                        if edit is None:
                            continue  # no response can refuse this request, so it has to wait
                    context.counters.frames[profile.api_key] += 1
                    work -= 1
                else:
                    work = work - _NEW_HEAD if work > _NEW_HEAD else 0
                    admitted = self._admit(data, position, now_ms)
                    if admitted is None:
                        break
                    size_bytes, edit = admitted
                start = self._apply(edit, data, start) if edit else start
                position += 4 + size_bytes
                if position > end:
                    state.request_left = position - end
                    position = end
                elif state.unanswered is not None or broker_turn.is_metered:
                    self._end_request(now_ms)
        finally:
            self._work, self._work_ms = work, now_ms
            self._end_turn(data, start, position, now_ms)
        if position < end and state.blocked_by is None:
            self._collect(end - position)

    def _pass_first(self, data: bytes, start: int, now_ms: int) -> int:
        """Go on with a request that is being decided on, or of which the rest stalled. Return its end in ``data``.

        If it waits still, the bytes are kept, and -1 is returned.
        """
        waiting = self.waiting
        if waiting is not None:
            start += waiting.take_decision(now_ms)
            if self.waiting is None:
                return start
        elif may_go_on(self._state, len(rest := data[start : start + self._state.request_left]), now_ms):
            self._state.to_broker.append(rest)
            self.pass_body(len(rest), now_ms)
            return start + len(rest)
        self._data, self._at = data, start
        return -1

    def _apply(self, edit: tuple[int, int, bytes], data: bytes, start: int) -> int:
        """Send the bytes from ``start`` up to the edit, then the edit's replacement, and return the end of the edit."""
        begin, until, replacement = edit
        if replacement:
            self._state.to_broker += (data[start:begin], replacement)
        elif begin > start:  # an edit without a replacement takes out a request that the proxy answers
            self._state.to_broker.append(data[start:begin])
        return until

    def _end_turn(self, data: bytes, start: int, position: int, now_ms: int) -> None:
        """Send the bytes of ``data`` from ``start`` to ``position`` to the broker, and keep those that follow."""
        state = self._state
        if position > start:
            is_whole = start == 0 and position == len(data)  # then no copy is needed, and compiled slices always copy
            state.to_broker.append(data if is_whole else data[start:position])
        if self.question:
            state.to_broker.append(self.question)
            self.question = b""
        if self._work <= 0 and state.blocked_by is not None:
            state.held_until_ms = now_ms + 1
        if position < len(data):
            # A short rest is copied, so that it does not keep a long read alive. A long one is not copied for each
            # request.
            is_short = position > len(data) - position
            self._data = data[position:] if is_short else data
            self._at = 0 if is_short else position
        elif self._data:
            self._data = b""
        if state.bucket_turn.place is not None or state.rate_turn.place is not None:
            # If the request waits for something else, or the client is muted, requests of others go first.
            for turn in (state.bucket_turn, state.rate_turn):
                if turn is not state.waiting_turn:
                    turn.step_aside(back_ms=state.account.muted_until_ms or now_ms)

    def _collect(self, kept_bytes: int) -> None:
        """Collect the rest of an incomplete request before it is parsed again.

        Raises:
            HeadTooLong: If ``kept_bytes``, the number of bytes that have arrived, is more than may be kept.
        """
        most_bytes = self._max_kept_bytes()
        if kept_bytes > most_bytes:
            raise HeadTooLong(f"the header of a request is not complete after {kept_bytes} bytes")
        if self._at:
            self._data, self._at = self._data[self._at :], 0
        self._pieces = PartialFrame(self._data, bytes_to_wait_for(self._data, most_bytes=most_bytes))

    def _max_kept_bytes(self) -> int:
        """Return how many bytes of an incomplete request may be kept, which depends on the handlers in use."""
        state = self._state
        kept_bytes = [handler.max_kept_bytes for handler in self.handlers.values()]
        if state.account.believes_replicas():
            kept_bytes.append(MAX_REPLICA_FETCH_BYTES)
        refuses = state.broker_turn.refuses_until_ms or state.broker_turn.refused
        if refuses or state.bucket_turn.place is not None or state.rate_turn.place is not None:
            kept_bytes.append(4 + MAX_REFUSED_BYTES)
        return max(kept_bytes, default=2 * MAX_HEAD_BYTES)

    # -- a request with a head that differs from the last --

    def _admit(self, data: bytes, position: int, now_ms: int) -> tuple[int, Edit] | None:
        """Read the head of the next request, and decide whether the request is forwarded now.

        Returns:
            The request's size in bytes, and the edit with which it is forwarded. None if it is not forwarded now.
        """
        state = self._state
        context, broker_turn = state.context, state.broker_turn
        if context.queue is not None or broker_turn.queued is not None:
            broker_turn.follow(context.queue, len(data) - position)
        if self.login is not None:
            token_bytes = self.login.take_token(data, position)
            if token_bytes is not None:
                return None if token_bytes == NEEDS_MORE else (token_bytes, NO_EDIT)
        head = read_request_head(data, position, context.policy.max_frame_size_bytes)
        if head is None:
            return None
        account, api_key = state.account, head.api_key
        # A request that was looked at before has its buckets.
        are_many = len(account.stale_buckets) >= _MOST_STALE and not account.uses(head.client_id)
        if are_many and self.release_stale_buckets(now_ms) >= _MOST_STALE:
            state.block(BlockedBy.EARLIER_ANSWERS)
            return None
        if not account.is_counted and api_key not in _BEFORE_LOGIN and not account.count_connection(head.client_id):
            state.block(BlockedBy.END)
            state.take_no_more()
            return None
        kind = UnansweredOnlyHandler if state.drops_answered else HANDLERS.get(api_key)
        handler = self.other if kind is None else self.handlers.get(kind) or self.handler(kind)
        edit = handler.take(data, position, head, now_ms)
        if edit is None and broker_turn.is_refused:
            edit = broker_turn.refuse(data, position, head.size_bytes, now_ms)
            if edit is None:
                edit = handler.take(data, position, head, now_ms)
        if account.stale_buckets:
            self.release_stale_buckets(now_ms)
        if edit is None:
            return None
        context.counters.frame(api_key, head.api_version)
        return head.size_bytes, edit

    # -- calls of the handlers --

    def handler(self, kind: type[H]) -> H:
        """Return the handler of class ``kind``. The first call creates it."""
        found = self.handlers.get(kind)
        if found is None:
            found = self.handlers[kind] = kind(self._state)
        return found  # type: ignore[return-value] # the key is its type

    def is_muted(self, now_ms: int) -> bool:
        """Return whether the client is muted, so that its next request has to wait.

        Look up the request's buckets before this call. Looking up a bucket that is over its limit may mute the client.
        """
        if now_ms >= self._state.account.muted_until_ms:
            return False
        self.profile = None
        self._state.block(BlockedBy.THROTTLE_TIME)
        return True

    def release_stale_buckets(self, now_ms: int) -> int:
        """Release the buckets of earlier client-ids and rules, except for those that a pending request needs.

        If they were not released, a client that often changes its client-id would hold more and more buckets. If too
        many are left, the client's next request waits for an answer. Return how many are left.
        """
        state = self._state
        account, pending = state.account, len(state.in_flight) + len(state.unsent or ())
        if account.stale_buckets and (pending <= _FEW_PENDING or len(account.stale_buckets) >= _MOST_STALE):
            if self.profile is not None and self.profile.bucket is not None and not account.holds(self.profile.bucket):
                self.profile = None  # a bucket that is released may be removed, and must not be charged then
            charged = set(charged_buckets((*state.in_flight, *(state.unsent or ()))))
            for handler in self.handlers.values():
                charged.add(handler.charged_bucket)
            account.release_stale(charged, now_ms=now_ms)
        return len(account.stale_buckets)

    # -- the end of a request --

    def _end_request(self, now_ms: int) -> None:
        """Note that a request was forwarded as a whole."""
        state = self._state
        if state.unanswered is not None:
            acks_zero.end_request(state, state.unanswered, now_ms)
        elif state.in_flight:
            state.broker_turn.end_request(state.in_flight[0])
