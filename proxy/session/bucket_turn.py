"""Decides whether a request waits for its bucket, and keeps the connection's place among the waiting requests."""

from __future__ import annotations

from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.line import Place
from kafka_quota_proxy.proxy.session.state import SessionState


class BucketTurn:
    """Decides whether a request is forwarded, or waits because the bucket that will be charged for it has no room.

    The requests that wait for the same bucket form a line, and are forwarded in the order of the line.

    Attributes:
        place: The connection's place in the line, or None if it has no place there.
        is_waiting: Whether the client's next request waits in the line. False if it waits for another reason, or does
            not wait.
        look_at_ms: The time at which to check again whether the request may be forwarded, in ms on the event loop's
            clock. 0 if the connection will be woken when it is first in the line.
    """

    __slots__ = ("_state", "is_waiting", "look_at_ms", "place")

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self.place: Place | None = None
        self.is_waiting = False
        self.look_at_ms = 0

    def has_come(self, bucket: Bucket, amount: int, now_ms: int) -> bool:
        """Return whether a request may be forwarded now. If not, make it wait.

        It waits in the line of requests in front of its bucket, or until the responses to earlier requests have
        arrived.

        Args:
            bucket: The bucket that the request will be charged to.
            amount: The expected charge.
            now_ms: The time in ms on the event loop's clock.
        """
        state = self._state
        line, place = bucket.line, self.place
        if state.account.observes(bucket) or now_ms < state.broker_turn.refuses_until_ms:
            if not state.in_flight:
                state.account.broker_began_ms = now_ms
            return True
        if place is not None and place.line is not line:
            self.leave()
            place = None
        if state.in_flight and not bucket.has_room(amount, now_ms=now_ms):
            state.is_blocked = True
            return False
        first = None if line is None else line.first()
        if (first is None or first is place) and bucket.is_free(amount, now_ms=now_ms):
            return True
        line = state.context.quotas.line(bucket)
        if place is None:
            place = self.place = line.take(state.owner)
        line.wait(place)
        state.is_blocked = self.is_waiting = state.has_waited = True
        self.look_at_ms = bucket.free_at_ms(now_ms=now_ms) if line.first() is place else 0
        return False

    def look_by(self, at_ms: int) -> None:
        """Set the time for the next check whether the waiting request may be forwarded, to ``at_ms`` at the latest.

        An earlier time that is already set is kept. Times are in ms on the event loop's clock.
        """
        self.look_at_ms = min(self.look_at_ms or at_ms, at_ms)

    def step_aside(self, *, back_ms: int) -> None:
        """Let the requests behind the client's request in the bucket's line go first, until about the time ``back_ms``.

        ``back_ms`` is in ms on the event loop's clock. The connection keeps its place in the line.
        """
        if self.place is not None:
            self.place.line.step_aside(self.place, back_ms=back_ms)

    def leave(self) -> None:
        """Give up the connection's place in the line of requests that wait for the bucket."""
        if self.place is not None:
            self.place.line.leave(self.place)
            self.place = None
