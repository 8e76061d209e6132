"""Decides whether a request waits for its bucket, and keeps the connection's place among the waiting requests."""

from __future__ import annotations

from typing import Final

from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.line import Place
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.state import SessionState

# For how long a heartbeat waits for ``request_rate``. With the longest throttle time before it, this is well below the
# 45 s after which groups give members up.
_MEMBERS_WAIT_MS: Final = 5_000


class BucketTurn:
    """Decides whether a request is forwarded, or waits in the line of the bucket that will be charged for it.

    Attributes:
        place: The connection's place in the line, or None.
        since_ms: When the connection took its place.
        reads_rest: Whether the rest of the waiting request is read, so that the end of its client is noticed behind it.
        look_at_ms: When to check again whether the request may be forwarded. 0 if the line will wake the connection.
    """

    __slots__ = ("_state", "look_at_ms", "place", "reads_rest", "since_ms")

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self.place: Place | None = None
        self.look_at_ms = 0
        self.since_ms = 0
        self.reads_rest = False

    def has_come(self, bucket: Bucket, amount: int, now_ms: int) -> bool:
        """Return whether a request may be forwarded now. If not, it waits in the line of its bucket.

        The request will be charged to ``bucket``, and ``amount`` is the expected charge.
        """
        state, line, place = self._state, bucket.line, self.place
        if state.account.observes(bucket) or now_ms < state.broker_turn.refuses_until_ms:
            if not state.in_flight:
                state.account.broker_began_ms = now_ms
            return True
        if place is not None and place.line is not line:
            self.leave()
            place = None
        own = 1 if state.request_left and state.unanswered is None else 0
        if len(state.in_flight) > own and not bucket.has_room(amount, now_ms=now_ms):
            state.block(BlockedBy.QUOTA)
            return False
        first = None if line is None else line.first()
        if (first is None or first is place) and bucket.is_free(amount, now_ms=now_ms):
            return True
        line = state.context.quotas.line(bucket)
        if place is None:
            place = self.place = line.take(state.owner)
            self.since_ms = now_ms
        line.wait(place)
        state.block(BlockedBy.QUOTA)
        state.waiting_turn = self
        self.look_at_ms = bucket.free_at_ms(now_ms=now_ms) if line.first() is place else 0
        return False

    def one_has_come(self, rate: Bucket, now_ms: int, *, keeps_membership: bool) -> bool:
        """Return whether ``request_rate`` allows a request now. If not, it waits in the line of its bucket.

        Requests that keep the membership of a group wait for some seconds only, and then pass and are charged.
        """
        is_calm = rate.line is None and now_ms >= rate.silent_until_ms
        if not rate.is_limited or (is_calm and rate.has_room(1, now_ms=now_ms)) or self.has_come(rate, 1, now_ms):
            return True
        if not keeps_membership or self._state.waiting_turn is not self:
            return False
        until_ms = self.since_ms + _MEMBERS_WAIT_MS
        if now_ms < until_ms:
            self.look_by(until_ms)
            return False
        self._state.waiting_turn = None
        return True

    def look_by(self, at_ms: int) -> None:
        """Check again no later than ``at_ms`` whether the waiting request may be forwarded."""
        self.look_at_ms = min(self.look_at_ms or at_ms, at_ms)

    def step_aside(self, *, back_ms: int) -> None:
        """Keep the place in the line, but let the requests behind it go first until about ``back_ms``."""
        if self.place is not None:
            self.place.line.step_aside(self.place, back_ms=back_ms)

    def leave(self) -> None:
        """Give up the connection's place in the line of requests that wait for the bucket."""
        if self.place is not None:
            self.place.line.leave(self.place)
            self.place = None
            self.reads_rest = False
