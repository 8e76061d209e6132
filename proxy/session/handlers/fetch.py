"""Handles Fetch and ShareFetch of consumers.

A fetch may ask for no more bytes than its bucket has room for, and is charged for the size of its response. To handle
another fetch API, add it to ``FETCH_APIS`` in this module and to ``HANDLERS`` in the module ``table``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import Enforcement
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.protocol import fetch, share_fetch
from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.fetch import FetchLimits
from kafka_quota_proxy.protocol.fetched_batches import first_batch_bytes
from kafka_quota_proxy.protocol.header import RequestHead
from kafka_quota_proxy.proxy.fair_queue.request_kind import request_kind
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.fetch_size import FetchSize
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.broker_turn import MAX_REFUSED_BYTES
from kafka_quota_proxy.proxy.session.client_account import NO_BUCKETS
from kafka_quota_proxy.proxy.session.frame_edits import NO_EDIT, Edit, capped_fetch, without_session
from kafka_quota_proxy.proxy.session.handlers.follower_fetch import FollowerFetchHandler
from kafka_quota_proxy.proxy.session.handlers.handler import Handler
from kafka_quota_proxy.proxy.session.in_flight import PendingRequest, RequestProfile
from kafka_quota_proxy.proxy.session.request_charge import RequestCharge
from kafka_quota_proxy.proxy.session.state import SessionState

# The shortest mute of a client that is answered without records. Without a mute the client would fetch again at once.
LEAST_EMPTY_MS: Final = 20

_FETCH: Final = int(ApiKey.FETCH)


class FetchApi(NamedTuple):
    """Describes how one fetch API differs from the others.

    Attributes:
        read_limits: Reads max_bytes, min_bytes and max_wait_ms of a request.
        charged_bytes: Returns the bytes to charge for a response, from its size in bytes and its API version.
        is_answered_here: Whether the proxy itself answers a request that has waited too long until its bucket has room.
            Otherwise the request is forwarded, edited so that its response has no records. A ShareFetch has to be
            forwarded, because it may acknowledge records.
        has_followers: Whether followers use this API, too.
    """

    read_limits: Callable[..., FetchLimits | None]
    charged_bytes: Callable[[int, int], int]
    is_answered_here: bool
    has_followers: bool


FETCH_APIS: Final[Mapping[int, FetchApi]] = {
    int(ApiKey.FETCH): FetchApi(fetch.read_limits, fetch.charged_bytes, is_answered_here=True, has_followers=True),
    int(ApiKey.SHARE_FETCH): FetchApi(
        share_fetch.read_limits,
        lambda response_bytes, _: share_fetch.charged_bytes(response_bytes),
        is_answered_here=False,
        has_followers=False,
    ),
}


class FetchHandler(Handler):
    """Handles the fetches of consumers. Source: ``KafkaApis.handleFetchRequest``, ``handleShareFetchRequest``."""

    __slots__ = (
        "_asked_bytes", "_awaits_rest", "_brought_bytes", "_forwarded_ms", "_is_behind", "_is_emptied",
        "_is_sessionless", "_size", "_waits_since_ms",
    )  # fmt: skip

    charges_responses = True

    def __init__(self, state: SessionState) -> None:
        super().__init__(state)
        self._size = FetchSize()
        self._asked_bytes = 0  # how many bytes the fetch in flight asks for; 0 if there is none
        self._forwarded_ms = 0  # when the fetch in flight was forwarded
        self._is_behind = False  # whether the last response left data at the broker for certain
        self._brought_bytes = -1  # the bytes that the last fetch was charged; -1 before the first fetch
        self._is_emptied = False  # whether the fetch in flight was edited so that its response has no records
        self._is_sessionless = False  # whether full fetches are edited so that they open no session at the broker
        self._awaits_rest = False  # whether the next fetch has waited for long enough, and is not complete
        self._waits_since_ms = 0  # the time at which the next fetch began to wait in the bucket's line

    # -- requests --

    def take(self, data: bytes, position: int, head: RequestHead, now_ms: int) -> Edit | None:
        """Hand a follower's fetch to ``FollowerFetchHandler``, and decide on a consumer's fetch as ``repeat`` does."""
        state = self._state
        believes = FETCH_APIS[head.api_key].has_followers and state.account.believes_replicas()
        if believes:
            frame_end = position + 4 + head.size_bytes
            if frame_end > len(data):
                return None
            replica_id = fetch.read_replica_id(data, head.body, frame_end, head.api_version)
            if replica_id >= 0:
                follower = state.requests.handler(FollowerFetchHandler)
                return follower.take_fetch(data, position, head, replica_id, now_ms)
        bucket = state.account.bucket(QuotaKind.FETCH, head.client_id, now_ms)
        charge = state.charge_of(head, now_ms)
        if state.requests.is_muted(now_ms):
            return None
        # If the client may be a follower, the replica_id of each of its fetches has to be read.
        front_end = None if believes else head.body
        profile = self._profile(data, position, head, bucket=bucket, charge=charge, front_end=front_end)
        return self.repeat(profile, data, position, head.size_bytes, head.correlation_id, now_ms)

    def repeat(
        self, profile: RequestProfile, data: bytes, position: int, size_bytes: int, correlation_id: int, now_ms: int
    ) -> Edit | None:
        """Forward a fetch if its buckets and the fair call queue allow it. If its bucket is limited, cap its bytes."""
        state, bucket, charge = self._state, profile.bucket, profile.charge
        if bucket is None:
            return None
        if bucket.is_limited:
            if not state.account.observes(bucket):
                return self._pass_capped(profile, bucket, data, position, size_bytes, correlation_id, now_ms)
            if not state.in_flight:
                state.account.broker_began_ms = now_ms
        if charge is not None:
            limits = _read_limits(profile, data, position, size_bytes)
            charge = None if limits is None else self._begin_charge(profile, charge, limits, size_bytes, now_ms)
            if charge is None:
                return None
        if state.bucket_turn.place is not None:
            state.bucket_turn.leave()
        state.in_flight.append(PendingRequest(profile, correlation_id, size_bytes, 0, charge))
        return NO_EDIT

    def _pass_capped(
        self,
        profile: RequestProfile,
        bucket: Bucket,
        data: bytes,
        position: int,
        size_bytes: int,
        correlation_id: int,
        now_ms: int,
    ) -> Edit | None:
        """Decide on a fetch whose bucket has a limit, and cap the bytes that the fetch asks for."""
        state, turn, charge = self._state, self._state.bucket_turn, profile.charge
        # Only one such fetch is in flight at a time, because its charge is unknown until the response.
        if state.in_flight and any(pending.profile.handler is self for pending in state.in_flight):
            state.block(BlockedBy.QUOTA)
            return None
        limits = _read_limits(profile, data, position, size_bytes)
        if limits is None:
            return None
        awaited_rest, self._awaits_rest = self._awaits_rest, False
        room = bucket.fetch_room(now_ms=now_ms)
        holders = max(1, bucket.holders)
        cap_bytes, limit = bucket.fetch_cap(room), bucket.limit / holders
        is_alone = holders == 1
        is_bursty = is_alone and bucket.token_bucket is None
        asked_bytes = self._size.ask(cap_bytes, room=room, limit=limit, is_alone=is_alone, is_bursty=is_bursty)
        expected_bytes = self._expected_bytes(bucket, min(asked_bytes, limits.max_bytes))
        if bucket.line is not None or not bucket.is_free_for_fetch(expected_bytes, room=room, now_ms=now_ms):
            has_waited = awaited_rest or (turn.place is not None and turn.place.is_waiting)
            if not turn.has_come(bucket, expected_bytes, now_ms):
                self._waits_since_ms = self._waits_since_ms if has_waited else now_ms
                if not self._is_overdue(bucket, limits, now_ms):
                    return None
                if FETCH_APIS[profile.api_key].is_answered_here:
                    return self._answer_empty(
                        profile, bucket, data, position, size_bytes, correlation_id, limits, now_ms
                    )
                return self._pass_empty(profile, limits, size_bytes, correlation_id, now_ms)
        if charge is not None:
            charge = self._begin_charge(profile, charge, limits, size_bytes, now_ms)
            if charge is None:
                return None
        answer_ms = state.context.quotas.answer_time.ms
        bucket.pass_fetch(expected_bytes, room=room, answer_ms=answer_ms, now_ms=now_ms)
        if turn.place is not None:
            turn.leave()
        self._forwarded_ms = now_ms
        self._asked_bytes = min(asked_bytes, limits.max_bytes)
        state.in_flight.append(PendingRequest(profile, correlation_id, size_bytes, expected_bytes, charge))
        edit = capped_fetch(limits, asked_bytes)
        return self._edit_session(profile, data, limits, edit) if self._is_sessionless else edit

    def _expected_bytes(self, bucket: Bucket, asked_bytes: int) -> int:
        """Return how many bytes a fetch that asks for ``asked_bytes`` will probably bring: as many as the last one.

        If it asks for less than a batch, it brings a batch.
        """
        brought_bytes = self._brought_bytes
        batch_bytes = self._size.batch_bytes or bucket.batch_bytes
        most_bytes = max(asked_bytes, batch_bytes)
        if brought_bytes < 0:
            return most_bytes
        return min(most_bytes, max(brought_bytes, batch_bytes)) if batch_bytes else brought_bytes

    def _edit_session(self, profile: RequestProfile, data: bytes, limits: FetchLimits, edit: Edit) -> Edit:
        """Return ``edit``, extended so that a full Fetch opens no fetch session at the broker."""
        session = fetch.read_session(data, limits, profile.api_version) if profile.api_key == _FETCH else None
        if session is None or session.epoch != fetch.OPENS_SESSION:
            return edit
        return without_session(data, edit, session)

    def _pass_empty(
        self, profile: RequestProfile, limits: FetchLimits, size_bytes: int, correlation_id: int, now_ms: int
    ) -> Edit | None:
        """Forward a fetch, edited so that its response has no records. The connection keeps its place in the line."""
        state, charge = self._state, profile.charge
        if charge is not None:
            charge = self._begin_charge(profile, charge, limits, size_bytes, now_ms)
            if charge is None:
                return None
        self._is_emptied = True
        state.end_wait()
        state.in_flight.append(PendingRequest(profile, correlation_id, size_bytes, 0, charge))
        return share_fetch.without_records(limits, profile.api_version)

    def _begin_charge(
        self, profile: RequestProfile, charge: RequestCharge, limits: FetchLimits, size_bytes: int, now_ms: int
    ) -> RequestCharge | None:
        """Return the ``RequestCharge`` of a fetch, or None if the fetch may not be forwarded yet.

        The kind of request in the charge depends on whether the broker may wait for data before it answers this fetch.
        """
        is_patient, wants_data = limits.max_wait_ms > 0, limits.min_bytes > 0
        if not (is_patient and wants_data):
            kind = request_kind(profile.api_key, profile.api_version, 1, is_patient, wants_data)
            charge = charge._replace(kind=kind)
        if not self._state.broker_turn.has_come(charge, size_bytes, now_ms):
            return None
        if charge.buckets is not NO_BUCKETS:
            self._state.broker_turn.begin(charge, now_ms)
        return charge

    def _is_overdue(self, bucket: Bucket, limits: FetchLimits, now_ms: int) -> bool:
        """Return whether a fetch has to be answered without records, because it waits in line for too long."""
        state = self._state
        turn = state.bucket_turn
        if state.waiting_turn is not turn:
            return False
        is_delayed = state.account.enforcement(bucket) is Enforcement.DELAY
        patience_ms = bucket.max_throttle_time_ms if is_delayed else limits.max_wait_ms
        until_ms = self._waits_since_ms + max(0, patience_ms)
        if bucket.is_calm(now_ms=now_ms):
            is_overdue = False  # it waits for nothing that was charged
            until_ms = max(until_ms, now_ms + state.context.quotas.answer_time.ms)
        elif is_delayed:
            is_overdue = now_ms >= until_ms
        else:
            is_overdue = now_ms + bucket.line_wait_ms(turn.place, now_ms=now_ms) > until_ms
        if not is_overdue:
            turn.look_by(until_ms)
        return is_overdue

    def _answer_empty(
        self,
        profile: RequestProfile,
        bucket: Bucket,
        data: bytes,
        position: int,
        size_bytes: int,
        correlation_id: int,
        limits: FetchLimits,
        now_ms: int,
    ) -> Edit | None:
        """Send a Fetch response without records to the client, as Kafka does if the client is over its quota.

        The connection keeps its place in the line of requests that wait for the bucket.

        Returns:
            The edit that removes the fetch from the bytes to forward. None if the proxy cannot answer the fetch now:
            the fetch is incomplete or too large, its version is unknown, or an earlier request is not completely
            answered.
        """
        state, api_version = self._state, profile.api_version
        frame_end = position + 4 + size_bytes
        is_readable = api_version <= HIGHEST_VERSION[_FETCH] and frame_end - position <= MAX_REFUSED_BYTES
        if not is_readable or state.in_flight or state.responses.is_open:
            return None
        turn = state.bucket_turn
        if frame_end > len(data):
            state.end_wait()  # the rest has to arrive, and other connections go first
            self._awaits_rest = True
            return None
        session = fetch.read_session(data, limits, api_version)
        # The broker does not get this fetch, so its session would miss the changes of partitions in the fetch.
        is_in_session = session is not None and session.session_id != 0
        error_code = fetch.FETCH_SESSION_ID_NOT_FOUND if is_in_session else 0
        self._is_sessionless = True
        wait_ms = max(bucket.line_wait_ms(turn.place, now_ms=now_ms), LEAST_EMPTY_MS)
        bucket.usage.requests += 1
        bucket.usage.last_record_ms = now_ms
        told_ms = state.account.put_off(bucket, wait_ms, now_ms=now_ms)
        state.end_wait()
        state.to_client.append(fetch.empty_response(correlation_id, api_version, told_ms, error_code=error_code))
        return position, frame_end, b""

    # -- responses --

    def charge_response(
        self, profile: RequestProfile, bucket: Bucket, response_bytes: int, data: bytes, position: int, now_ms: int
    ) -> int:
        """Charge ``bucket`` for the response to a fetch, and return the wait in milliseconds that the charge causes."""
        fetched_bytes = FETCH_APIS[profile.api_key].charged_bytes(response_bytes, profile.api_version)
        if not self._is_emptied:
            self._brought_bytes = fetched_bytes
            wait_ms = bucket.charge(fetched_bytes, now_ms=now_ms)
            if self._asked_bytes:
                self._learn(profile, bucket, fetched_bytes, data, position, now_ms)
                answer_ms = self._state.context.quotas.answer_time.ms
                bucket.awaited.answered(owes=wait_ms > 0, answer_ms=answer_ms, now_ms=now_ms)
            if bucket.line is not None:
                bucket.line.end_request(fetched_bytes)
            return wait_ms
        # The response has no records, because the bucket's line was too long. Its throttle time ends at the next turn
        # of the connection, and the client is muted for as long.
        self._is_emptied = False
        state = self._state
        bucket.silence(bucket.charge(fetched_bytes, now_ms=now_ms), now_ms=now_ms)
        turn = state.bucket_turn
        wait_ms = max(bucket.line_wait_ms(turn.place, now_ms=now_ms), LEAST_EMPTY_MS)
        told_ms = state.account.put_off(bucket, wait_ms, now_ms=now_ms)
        turn.step_aside(back_ms=now_ms + told_ms)
        state.responses.least_wait_ms = told_ms
        return 0

    def _learn(
        self, profile: RequestProfile, bucket: Bucket, fetched_bytes: int, data: bytes, position: int, now_ms: int
    ) -> None:
        """Learn from a response how long the broker takes to answer, and how large its batches are."""
        asked_bytes, self._asked_bytes = self._asked_bytes, 0
        took_ms = now_ms - self._forwarded_ms
        is_cut = False
        if fetched_bytes >= self._size.batch_bytes:  # it has records
            self._state.context.quotas.answer_time.note(took_ms, had_data=self._is_behind)
            is_cut = self._size.note_response(asked_bytes, fetched_bytes)
        # A first batch that is longer than asked, or just as long as a number of batches, may have been the last.
        self._is_behind = (
            is_cut
            and profile.api_key == _FETCH
            and 0 < first_batch_bytes(data, position, profile.api_version) <= asked_bytes
        )
        if self._size.learns:
            if profile.api_key == _FETCH:
                batch_bytes = first_batch_bytes(data, position, profile.api_version)
            else:
                batch_bytes = fetched_bytes if asked_bytes == 1 else 0
            if batch_bytes:
                bucket.batch_bytes = batch_bytes
                self._size.note_batch(batch_bytes, fetched_bytes, took_ms)


def charged_bytes(profile: RequestProfile, response_bytes: int) -> int:
    """Return the bytes to charge for the response to a fetch. ``response_bytes`` excludes the size prefix."""
    return FETCH_APIS[profile.api_key].charged_bytes(response_bytes, profile.api_version)


def _read_limits(profile: RequestProfile, data: bytes, position: int, size_bytes: int) -> FetchLimits | None:
    """Return max_bytes, min_bytes and max_wait_ms of a fetch, or None if more bytes are needed."""
    read = FETCH_APIS[profile.api_key].read_limits
    return read(data, position + profile.front_end, profile.api_version, end=position + 4 + size_bytes)
