"""Throttles, delays and edits a session's responses as tests ask for it, and notes which were throttled."""

from __future__ import annotations

from kafka_quota_proxy.config.model import Enforcement
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.throttle_time import client_throttles_itself
from kafka_quota_proxy.proxy.session.handlers.handler import BegunResponse
from kafka_quota_proxy.proxy.session.in_flight import PendingRequest
from kafka_quota_proxy.proxy.session.state import SessionState
from kafka_quota_proxy.proxy.session.testing.effects import Effects
from kafka_quota_proxy.proxy.session.testing.observed import BY_QUOTA, ON_DEMAND
from kafka_quota_proxy.proxy.session.testing.orders import OnDemandThrottles


def throttle_on_demand(
    state: SessionState,
    testing: OnDemandThrottles,
    pending: PendingRequest,
    response_bytes: int,
    frame: bytes,
    now_ms: int,
) -> BegunResponse | None:
    """Return what happens to a response if a test has asked for it, or None if quotas decide.

    A throttle time replaces that of quotas and of the broker. With the enforcement ``respond`` the client is muted for
    it, with ``delay`` the response is held for it, and with ``observe`` the response only tells it. A delay is added to
    that, and the response does not tell it.

    Args:
        state: The state of the session.
        testing: What tests have asked for.
        pending: The request that is answered.
        response_bytes: The size of the response, without its size prefix.
        frame: The response, if it has to be read whole.
        now_ms: The time.
    """
    profile = pending.profile
    if profile.api_key == ApiKey.METADATA:
        testing.learn_names(frame, profile.api_version)
    user, client_id = state.account.principal, _client_id(pending)
    testing.observed.see(profile.api_key, user=user, client_id=client_id)
    effects = testing.take(profile.api_key, profile.api_version, user=user, client_id=client_id, frame=frame)
    if effects is None:
        return None
    told_ms = effects.throttle_time_ms or 0
    observe(state, testing, pending, response_bytes, told_ms, effects)
    delay_ms = effects.delay_ms
    closes_ms = delay_ms + told_ms
    enforcement = state.context.policy.enforcement
    if enforcement is Enforcement.RESPOND and told_ms:
        state.account.mute(delay_ms + told_ms, now_ms=now_ms)
    elif enforcement is Enforcement.DELAY:
        delay_ms += told_ms
        told_ms = 0 if client_throttles_itself(profile.api_key, profile.api_version) else told_ms
    if effects.closes and state.owner is not None:
        testing.close_later(state.owner, closes_ms)
    is_exact, rewrite = effects.throttle_time_ms is not None, effects if effects.edits_fetch else None
    return BegunResponse(profile, 4 + response_bytes, told_ms, delay_ms, is_exact, rewrite)


def observe(
    state: SessionState,
    testing: OnDemandThrottles,
    pending: PendingRequest,
    response_bytes: int,
    wait_ms: int,
    effects: Effects | None = None,
) -> None:
    """Note a throttled response for tests. ``effects`` is what a test has asked for, or None if a quota throttles."""
    profile = pending.profile
    testing.observed.add(
        profile.api_key,
        profile.api_version,
        user=state.account.principal,
        client_id=_client_id(pending),
        throttle_time_ms=wait_ms,
        size_bytes=pending.size_bytes if profile.api_key == ApiKey.PRODUCE else response_bytes,
        reason=BY_QUOTA if effects is None else ON_DEMAND,
        effects=effects,
        quotas=state.context.quotas,
    )


def _client_id(pending: PendingRequest) -> str:
    return pending.profile.client_id.decode("utf-8", "backslashreplace")
