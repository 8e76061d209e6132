"""Handles the request whose first bytes were forwarded while the rest has not come: it stalls, or its client leaves."""

from typing import Final

from kafka_quota_proxy.proxy.session.in_flight import PendingRequest
from kafka_quota_proxy.proxy.session.state import SessionState

# For how long requests reserve only what has arrived of them, after one of which the rest did not come.
_DOUBT_MS: Final = 60_000


def unfinished(state: SessionState) -> PendingRequest | None:
    """Return the partly forwarded request, or None."""
    if not state.request_left:
        return None
    return state.unanswered or (state.in_flight[-1] if state.in_flight else None)


def give_up_reservation(state: SessionState, now_ms: int) -> None:
    """End the reservation of a request of which no byte has come for a second, so that it holds nobody.

    For the next minute, requests reserve only what has arrived of them. Otherwise clients that announce requests and
    send nothing could hold a bucket for a second each, in turn. What comes later waits for its turn (``may_go_on``).
    """
    pending = unfinished(state)
    if pending is not None and pending.reserved_bytes and pending.profile.bucket is not None:
        pending.settle_bytes()
        pending.reserved_bytes = 0
        state.is_rest_doubted = True
        pending.profile.bucket.doubts_until_ms = now_ms + _DOUBT_MS


def may_go_on(state: SessionState, size_bytes: int, now_ms: int) -> bool:
    """Return whether the next ``size_bytes`` of the partly forwarded request may be forwarded. They are then reserved.

    If not, they wait in the line of their bucket, as a request does. Otherwise any number of requests could begin with
    their first bytes, and bring all others at once.
    """
    pending = unfinished(state)
    bucket = None if pending is None else pending.profile.bucket
    state.end_wait()
    if pending is not None and bucket is not None and bucket.is_limited:
        if not state.bucket_turn.has_come(bucket, size_bytes, now_ms):
            return False
        bucket.reserved.add(size_bytes, now_ms=now_ms)
        pending.reserved_bytes += size_bytes
        state.bucket_turn.leave()
    return True


def cut_off(state: SessionState, now_ms: int, *, had_turn: bool) -> None:
    """End a partly forwarded request, because its client will not send the rest.

    It is not charged, as in Kafka, unless more of it has been forwarded than its limit allows in a window. If
    ``had_turn`` is True, it is charged in the fair call queue, which let it through.
    """
    pending = unfinished(state)
    if pending is None:
        return
    forwarded_bytes = 4 + pending.size_bytes - state.request_left
    state.request_left = 0
    state.is_rest_doubted = False
    if state.waiting_turn is state.bucket_turn:  # what has come of the rest waits for its turn
        state.bucket_turn.leave()
        state.end_wait()
    if state.unanswered is None:
        state.in_flight.pop()
    state.unanswered = None
    pending.forget()
    if had_turn:
        if pending.charge is not None:
            state.broker_turn.charge_turn(pending.charge)
        _charge_forwarded(state, pending, forwarded_bytes, now_ms)
    if not state.in_flight:
        state.broker_turn.leave()


def _charge_forwarded(state: SessionState, pending: PendingRequest, forwarded_bytes: int, now_ms: int) -> None:
    bucket = pending.profile.bucket
    if bucket is None or pending.profile.charges_response or forwarded_bytes <= bucket.window_amount:
        return
    state.account.silence(bucket, bucket.charge(forwarded_bytes, now_ms=now_ms), now_ms=now_ms)
