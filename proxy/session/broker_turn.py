"""Queues a connection's requests in the fair call queue, refuses some, and measures the time that the broker takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kafka_quota_proxy.protocol.brought_bytes import brought_bytes
from kafka_quota_proxy.protocol.errors import FrameTooLarge
from kafka_quota_proxy.protocol.producer_sequences import ProducerBatch, read_producer_batches
from kafka_quota_proxy.protocol.refusal_responses import refusal_response
from kafka_quota_proxy.proxy.fair_queue.connection_queue import (
    ASKS_FROM_BYTES,
    EMPTY_BYTES,
    POLL_GRACE_US,
    ListenerQueue,
    QueuedConnection,
)
from kafka_quota_proxy.proxy.fair_queue.dispatcher import Turn
from kafka_quota_proxy.proxy.fair_queue.request_kind import RequestKind
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.request_time import NO_TIME, Service, ServiceTime
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.client_account import NO_BUCKETS
from kafka_quota_proxy.proxy.session.in_flight import PendingRequest
from kafka_quota_proxy.proxy.session.refused_batches import MAX_BATCHES, RefusedBatches
from kafka_quota_proxy.proxy.session.request_charge import RequestCharge, longest_wait
from kafka_quota_proxy.proxy.session.state import SessionState

# A longer request is not refused but waits. A refused request is parsed, because the response contains its partitions.
MAX_REFUSED_BYTES: Final = 1024 * 1024
# How long the client of a refused request is muted: well below the timeouts of clients.
REFUSED_FOR_MS: Final = 500
# How long each Produce is refused after a refused Produce. It is longer than most round trips, and shorter than the
# 100 ms after which clients that ignore a throttle time try again.
_REFUSED_BEHIND_MS: Final = 50


@dataclass(slots=True, eq=False, repr=False)
class BrokerTurn:
    """Applies the fair call queue and the quotas on requests to one connection.

    Decides when each request that has a ``RequestCharge`` is forwarded, and charges it.

    Attributes:
        queued: The connection's place in the fair call queue, or None if the broker has no such queue.
        is_metered: Whether any request of this connection has had a ``RequestCharge``.
        is_refused: Whether the fair call queue has refused the client's next request.
        refuses_until_ms: The time until which each Produce is refused, because an earlier Produce was refused.
        refused: The refused batches of idempotent producers that later batches must not overtake, or None.
        come_bytes: The number of bytes that have arrived, counted from the beginning of the client's next request.
    """

    _state: SessionState
    _service: Service | None = None  # the time that the broker takes for the oldest pending request
    _is_unrefusable: bool = False  # there is no response that refuses the client's next request
    _is_behind: bool = False  # the client's next request would overtake one of the refused batches
    _batches: list[ProducerBatch] = field(default_factory=list)  # of the client's next request, if it was read
    queued: QueuedConnection | None = None
    is_metered: bool = False
    is_refused: bool = False
    refuses_until_ms: int = 0
    refused: RefusedBatches | None = None
    come_bytes: int = 0

    # -- before a request is forwarded --

    def follow(self, line: ListenerQueue | None, come_bytes: int) -> None:
        """Use ``line`` as the broker's fair call queue from now on, or no queue if ``line`` is None.

        While requests are pending, a queue that is already in use is kept. ``come_bytes`` sets the attribute of that
        name.
        """
        self.come_bytes = come_bytes
        if self.queued is not None and self.queued.line is not line and not self._state.in_flight:
            self.leave()
            self.queued = None
        if self.queued is None and line is not None:
            self.queued = QueuedConnection(line, self._state.owner)

    def has_come(self, charge: RequestCharge, size_bytes: int, now_ms: int) -> bool:
        """Return whether a request may be forwarded now. If not, it is refused (``is_refused``) or has to wait.

        While the client does not read its responses, the proxy does not read the broker's responses either. New
        requests then wait, because the broker's time for them could not be measured. A request that is not whole is
        read on, and asks for a slot only when ``ASKS_FROM_BYTES`` of it have come: its client may never send the rest.
        """
        state, queued = self._state, self.queued
        buckets, kind, identity = charge
        is_alone = not state.in_flight
        blocked_by = BlockedBy.UNREAD_ANSWERS if state.is_client_full else BlockedBy.EARLIER_ANSWERS
        may = not state.is_client_full and (is_alone or self._knows_cost(buckets.time))
        if may and buckets.rate is not None:
            blocked_by = BlockedBy.QUOTA
            may = state.rate_turn.one_has_come(buckets.rate, now_ms, keeps_membership=kind.keeps_membership)
        if may and queued is not None and identity is not None:
            blocked_by = BlockedBy.FAIR_CALL_QUEUE
            is_whole = 4 + size_bytes <= self.come_bytes
            if not is_whole and self.come_bytes < ASKS_FROM_BYTES:
                state.unblock()
                self.is_refused = False
                return False
            is_behind = now_ms < self.refuses_until_ms
            refuses = is_behind or queued.line.dispatcher.is_refusing
            can_refuse = refuses and is_alone and self._can_refuse(kind, size_bytes)
            if is_behind:
                if can_refuse and not is_whole:
                    state.unblock()  # the whole request is needed to refuse it, so the client is read on
                    return False
                turn = queued.refuse_behind(kind, identity) if can_refuse else Turn.WAITS
            else:
                may_refuse = can_refuse and is_whole
                now_us = state.now_ns // 1_000
                is_known = not queued.line.has_logins or self._is_logged_in
                turn = queued.ask(
                    kind, identity,
                    is_alone=is_alone, may_refuse=may_refuse, now_us=now_us, is_known=is_known,
                )  # fmt: skip
            may = turn is Turn.PASSES
            self.is_refused = turn is Turn.REFUSED
            if may:
                self._is_unrefusable = False
            if may and is_alone and not is_whole:
                queued.passed(kind, is_whole=False, now_us=state.now_ns // 1_000)
        self.is_metered = True
        if may or self.is_refused:
            state.unblock()
        else:
            state.block(blocked_by)
        return may

    def _knows_cost(self, time: Bucket | None) -> bool:
        """Return whether a request may pass before earlier ones are answered, which tell how much time they cost."""
        return time is None or not time.is_limited or self._state.account.observes(time)

    def begin(self, charge: RequestCharge, now_ms: int) -> None:
        """Reserve 1 in the bucket of ``request_rate``. Call this when a request is forwarded that has this charge."""
        rate = charge.buckets.rate
        if rate is not None:
            rate.reserved.add(1, now_ms=now_ms)
            if self._state.rate_turn.place is not None:
                self._state.rate_turn.leave()

    @property
    def _is_logged_in(self) -> bool:
        login = self._state.requests.login
        return login is not None and login.login.principal is not None

    def _can_refuse(self, kind: RequestKind, size_bytes: int) -> bool:
        """Return whether the proxy can refuse a request. The caller has checked that no earlier request is pending."""
        # A refusal must not be written into the middle of a partly forwarded response.
        has_answer = kind.is_refusable and not self._is_unrefusable
        return has_answer and not self._state.responses.is_open and size_bytes <= MAX_REFUSED_BYTES

    def keeps_order(self, charge: RequestCharge, data: bytes, position: int, size_bytes: int, now_ms: int) -> bool:
        """Return whether a Produce overtakes none of the ``refused`` batches. Otherwise it is refused, or has to wait.

        Call this before ``has_come`` if there are refused batches, and ``end_refusals`` when the Produce is forwarded.

        Raises:
            FrameTooLarge: If the Produce cannot be kept until it is whole. Its client sends everything again, in order.
        """
        refused, frame_end = self.refused, position + 4 + size_bytes
        if refused is None or refused.has_expired(now_ms):
            self.refused = None
            return True
        if frame_end > len(data):
            if size_bytes > MAX_REFUSED_BYTES:
                raise FrameTooLarge(f"a Produce of {size_bytes} bytes behind a refused one is too long to be held")
            self._state.unblock()
            return False
        self._batches = read_producer_batches(data[position:frame_end])
        if not refused.precede(self._batches):
            return True
        if self._state.may_answer():
            self._is_behind = self.is_refused = True
            if self.queued is not None and charge.identity is not None:
                self.queued.refuse_behind(charge.kind, charge.identity)
        return False

    def end_refusals(self) -> None:
        """Forget the refused batches that the client has sent again, because they are now forwarded."""
        if self.refused is not None:
            self.refused.remove(self._batches)
            self.refused = self.refused if self.refused else None

    def refuse(self, data: bytes, position: int, size_bytes: int, now_ms: int) -> tuple[int, int, bytes] | None:
        """Answer a request that the fair call queue refuses, and mute its client.

        The request begins at the offset ``position`` of ``data``. Each Produce that soon follows a refused Produce is
        refused as well. Otherwise its records would overtake the refused records, which the client sends again. The
        batches of an idempotent producer are even refused until the client has sent the refused batch again.

        Returns:
            The edit that removes the request from the bytes to forward. None if the request has to wait, because its
            API has no response that refuses it.

        Raises:
            FrameTooLarge: If the request must not wait either, because it would overtake refused batches.
        """
        state = self._state
        account = state.account
        self.is_refused = False
        frame_end = position + 4 + size_bytes
        is_behind = now_ms < self.refuses_until_ms or self._is_behind
        left_ms = account.muted_until_ms - now_ms if is_behind else REFUSED_FOR_MS
        frame = data[position:frame_end]
        is_produce = data.startswith(b"\0\0", position + 4)
        response = refusal_response(frame, throttle_time_ms=left_ms)
        if response is None or (is_produce and not self._note_refused(frame, now_ms, is_behind=is_behind)):
            if self._is_behind:
                raise FrameTooLarge("a Produce behind a refused one has too many partitions to be refused")
            self._is_unrefusable = True
            return None
        self._is_behind = False
        if not is_behind:
            account.mute(REFUSED_FOR_MS, now_ms=now_ms)
            is_muted = now_ms < account.muted_until_ms  # false while the proxy is about to stop
            self.refuses_until_ms = now_ms + _REFUSED_BEHIND_MS if is_produce and is_muted else 0
        if self.queued is not None:
            self.queued.refused()
        state.to_client.append(response)
        return position, frame_end, b""

    def _note_refused(self, frame: bytes, now_ms: int, *, is_behind: bool) -> bool:
        """Note the batches of a refused Produce. Return False if they are too many to be noted."""
        batches = read_producer_batches(frame)
        if not batches:
            return True
        refused = self.refused or RefusedBatches()
        if len(refused) + len(batches) > MAX_BATCHES:
            return False
        refused.add(batches, now_ms=now_ms, is_behind=is_behind)
        self.refused = refused
        return True

    def end_request(self, oldest: PendingRequest) -> None:
        """Note that a request was forwarded as a whole.

        Unless ``oldest``, the oldest pending request, is already being timed, its time at the broker begins now.
        """
        state, queued = self._state, self.queued
        if oldest.charge is None:
            return
        kind = oldest.charge.kind
        if queued is not None and len(state.in_flight) == 1 and (kind.may_park or queued.is_watched):
            queued.passed(kind, is_whole=True, now_us=state.now_ns // 1_000)
        if self._service is None and not (state.is_client_full or state.delayed_until_ms):
            self._service = state.context.service.begin(may_wait=kind.may_wait, now_ns=state.now_ns)

    def end_unanswered(self, charge: RequestCharge) -> None:
        """Charge a request that was forwarded as a whole and will have no response, such as a Produce with acks=0."""
        self.charge_turn(charge)
        if self.queued is not None and not self._state.in_flight:
            self.queued.end_unanswered(self._state.now_ns // 1_000)

    # -- when a response begins --

    def settle(
        self,
        pending: PendingRequest,
        bucket: Bucket | None,
        wait_ms: int,
        response_bytes: int,
        data: bytes,
        position: int,
        now_ms: int,
    ) -> tuple[Bucket | None, int]:
        """Charge a request as its ``RequestCharge`` says: in the fair call queue, and to buckets.

        Call this when the response begins, at ``position`` of ``data``. ``bucket`` is the bucket that was already
        charged for the request's bytes, or None. ``wait_ms`` is the wait that this charge has caused.

        Returns:
            The charged bucket with the longest wait, and this wait in milliseconds. ``(None, 0)`` without a wait.
        """
        state, charge = self._state, pending.charge
        if charge is None:
            return bucket, wait_ms
        service = self.end_service() if self._service is not None else NO_TIME
        queued = self.queued
        is_last = not state.in_flight
        if queued is not None and charge.identity is not None:
            line, now_us = queued.line, state.now_ns // 1_000
            kind = charge.kind
            brought = response_bytes
            if kind.is_poll and brought > EMPTY_BYTES and service.elapsed_ns >= POLL_GRACE_US * 1_000:
                brought = brought_bytes(data, position, 4 + brought, kind.api_key, pending.profile.api_version)
            queued.answered(kind, charge.identity, service, brought, now_us)
            if line.has_logins and not kind.is_free and not self._is_logged_in:
                line.has_logins = False  # the broker has worked for a client without a login
            if is_last and state.unanswered is None:
                queued.end(now_us)
            else:
                self.move_up()
        if not is_last:
            self.begin_service()
        if charge.buckets is NO_BUCKETS:
            return bucket, wait_ms
        scale = state.context.quotas.request_time_scale
        charges = list(charge.settle(service, pending.size_bytes, response_bytes, scale=scale, now_ms=now_ms))
        if bucket is not None:
            charges.insert(0, (bucket, wait_ms))
        return longest_wait(state.account, charges, now_ms=now_ms) or (None, 0)

    def move_up(self) -> None:
        """Use the slot for the connection's next pending request, or give the slot back if there is no such request.

        Call this when the oldest pending request has been answered.
        """
        state, queued = self._state, self.queued
        if queued is None:
            return
        charge, is_whole = None, False
        if state.in_flight:
            charge = state.in_flight[0].charge
            is_whole = self._is_oldest_whole
        elif state.unanswered is not None:
            charge = state.unanswered.charge
        if charge is None:
            queued.end(state.now_ns // 1_000)
        else:
            queued.passed(charge.kind, is_whole=is_whole, now_us=state.now_ns // 1_000)

    def charge_turn(self, charge: RequestCharge, service: ServiceTime = NO_TIME) -> None:
        """Charge a request in the fair call queue that gets no response from the broker.

        ``service`` is the time that the broker has taken for the request.
        """
        if self.queued is not None and charge.identity is not None:
            self.queued.unanswered(charge.kind, charge.identity, service)

    # -- the time that the broker takes --

    def begin_service(self) -> None:
        """Start timing the oldest pending request, if it was forwarded as a whole."""
        state = self._state
        is_read = not (state.is_client_full or state.delayed_until_ms)
        if self._service is None and state.in_flight and self._is_oldest_whole and is_read:
            charge = state.in_flight[0].charge
            if charge is not None:
                self._service = state.context.service.begin(may_wait=charge.kind.may_wait, now_ns=state.now_ns)

    def end_service(self) -> ServiceTime:
        """Stop timing the oldest pending request, and return the time that the broker has taken for it."""
        service, self._service = self._service, None
        return NO_TIME if service is None else service[3].end(service, now_ns=self._state.now_ns)

    def restart_service(self) -> None:
        """Start timing the oldest pending request anew, because the connection to the broker was only opened now."""
        if self._service is not None:
            self.end_service()
            self.begin_service()

    def stop_service(self) -> None:
        """Stop timing and give the slot back, because the broker's responses are not read for now."""
        self.end_service()
        if self.queued is not None:
            state = self._state
            is_used = bool(state.in_flight or state.request_left)
            self.queued.pause(is_used=is_used, now_us=state.now_ns // 1_000)

    @property
    def _is_oldest_whole(self) -> bool:
        """Whether the oldest pending request was forwarded as a whole. A later request may be partly forwarded."""
        state = self._state
        return not state.request_left or state.unanswered is not None or len(state.in_flight) > 1

    # -- the end --

    def leave_unused(self) -> None:
        """Give back the slot if no request was sent with it."""
        state = self._state
        if self.queued is not None and not state.in_flight and not state.request_left:
            self.queued.leave_unused(state.now_ns // 1_000)

    def leave(self) -> None:
        """Leave the fair call queue, and give back the slot if there is one."""
        if self.queued is not None:
            self.queued.leave(self._state.now_ns // 1_000)
