"""Handles Produce requests.

They are charged when their responses begin. With acks=0 there is no response, so they are charged as soon as they have
been forwarded as a whole.
"""

from __future__ import annotations

from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.protocol import produce
from kafka_quota_proxy.protocol.header import RequestHead
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.frame_edits import NO_EDIT, Edit
from kafka_quota_proxy.proxy.session.handlers.handler import Handler
from kafka_quota_proxy.proxy.session.in_flight import MAX_IN_FLIGHT, PendingRequest, RequestProfile


class ProduceHandler(Handler):
    """Handles Produce. Source: ``KafkaApis.handleProduceRequest``."""

    __slots__ = ()

    def take(self, data: bytes, position: int, head: RequestHead, now_ms: int) -> Edit | None:
        """Read ``acks`` and look up the buckets, then decide as ``repeat`` does."""
        state = self._state
        size_bytes, _, api_version, correlation_id, client_id, body = head
        acks = produce.read_acks(data, body, api_version, end=position + 4 + size_bytes)
        if acks is None:
            return None
        bucket = state.account.bucket(QuotaKind.PRODUCE, client_id, now_ms)
        charge = state.charge_of(head, now_ms, acks=acks)
        if now_ms >= state.broker_turn.refuses_until_ms and state.requests.is_muted(now_ms):
            return None
        front_end = produce.end_of_plain_acks(data, body, api_version)
        profile = self._profile(data, position, head, bucket=bucket, charge=charge, front_end=front_end, acks=acks)
        return self.repeat(profile, data, position, size_bytes, correlation_id, now_ms)

    def repeat(
        self, profile: RequestProfile, data: bytes, position: int, size_bytes: int, correlation_id: int, now_ms: int
    ) -> Edit | None:
        """Forward a Produce unchanged if its buckets and the fair call queue allow it."""
        state, bucket, charge = self._state, profile.bucket, profile.charge
        if bucket is None:
            return None
        turn = state.broker_turn
        if not profile.acks and state.unsent is not None and len(state.unsent) >= MAX_IN_FLIGHT:
            state.block(BlockedBy.BROKER)
            return None
        if (
            charge is not None
            and turn.refused is not None
            and profile.acks
            and not turn.keeps_order(charge, data, position, size_bytes, now_ms)
        ):
            return None
        is_limited = bucket.is_limited
        if is_limited:
            is_calm = bucket.line is None and now_ms >= bucket.silent_until_ms
            has_room = is_calm and bucket.has_room(size_bytes, now_ms=now_ms)
            if not has_room and not state.bucket_turn.has_come(bucket, size_bytes, now_ms):
                return None
        if charge is not None:
            if not turn.has_come(charge, size_bytes, now_ms):
                return None
            if turn.refused is not None and profile.acks:
                turn.end_refusals()
            turn.begin(charge, now_ms)
        reserved_bytes = size_bytes
        if is_limited:
            # After a request that was announced and did not come, only what has arrived is reserved.
            reserved_bytes = size_bytes if now_ms >= bucket.doubts_until_ms else min(size_bytes, len(data) - position)
            state.is_rest_doubted = reserved_bytes < size_bytes
            bucket.reserved.add(reserved_bytes, now_ms=now_ms)
        else:
            bucket.reserved.amount += size_bytes
        if state.bucket_turn.place is not None:
            state.bucket_turn.leave()
        pending = PendingRequest(profile, correlation_id, size_bytes, reserved_bytes, charge)
        if profile.acks:
            state.in_flight.append(pending)
        else:
            state.unanswered = pending
        return NO_EDIT
