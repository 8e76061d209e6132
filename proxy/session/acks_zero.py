"""Charges each Produce with acks=0 when it has been sent as a whole. It has no response that could be the moment.

While the broker is being dialled, such a request waits in ``SessionState.unsent``. If the client resets its connection
meanwhile, it is never sent, and not charged.
"""

from kafka_quota_proxy.proxy.session.in_flight import PendingRequest
from kafka_quota_proxy.proxy.session.request_charge import longest_wait
from kafka_quota_proxy.proxy.session.state import SessionState


def end_request(state: SessionState, pending: PendingRequest, now_ms: int) -> None:
    """Charge a request that was forwarded as a whole: now, or when the broker is connected."""
    state.unanswered = None
    if pending.charge is not None:
        state.broker_turn.end_unanswered(pending.charge)
    if state.unsent is None:
        _charge(state, pending, now_ms)
    else:
        state.unsent.append(pending)


def charge_unsent(state: SessionState, now_ms: int) -> None:
    """Charge the requests that waited for the broker's connection. They are sent now."""
    unsent, state.unsent = state.unsent, None
    for pending in unsent or ():
        _charge(state, pending, now_ms)


def _charge(state: SessionState, pending: PendingRequest, now_ms: int) -> None:
    bucket, charge = pending.profile.bucket, pending.charge
    charges = []
    if bucket is not None:
        if bucket.line is not None:
            bucket.line.note(pending.size_bytes)
        pending.settle_bytes()
        charges.append((bucket, bucket.charge(pending.size_bytes, now_ms=now_ms)))
    if charge is not None:
        charges += charge.pass_unanswered(now_ms=now_ms)
    found = longest_wait(state.account, charges, now_ms=now_ms)
    if found is not None:
        state.account.throttle(*found, now_ms=now_ms, place=state.place_in(found[0].line), has_answer=False)


def drop_unsent(state: SessionState) -> None:
    """Forget the requests that were never sent. They are not charged."""
    for pending in state.unsent or ():
        pending.forget()
