"""Throttles a session's responses as tests ask for it, and notes which responses were throttled."""

from __future__ import annotations

from kafka_quota_proxy.config.model import Enforcement
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.session.handlers.handler import BegunResponse
from kafka_quota_proxy.proxy.session.in_flight import PendingRequest
from kafka_quota_proxy.proxy.session.state import SessionState
from kafka_quota_proxy.proxy.session.testing.observed import ON_DEMAND
from kafka_quota_proxy.proxy.session.testing.orders import OnDemandThrottles


def throttle_on_demand(
    state: SessionState,
    testing: OnDemandThrottles,
    pending: PendingRequest,
    response_bytes: int,
    frame: bytes,
    now_ms: int,
) -> BegunResponse | None:
    """Return how a response is throttled if a test has asked for it, or None if quotas decide.

    The throttle time replaces that of quotas and of the broker. With the enforcement ``respond`` the client is muted
    for it, with ``delay`` the response is held for it, and with ``observe`` the response only tells it.

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
    wait_ms = testing.take(
        profile.api_key,
        profile.api_version,
        user=state.account.principal,
        client_id=_client_id(pending),
        frame=frame,
    )
    if wait_ms is None:
        return None
    observe(state, testing, pending, response_bytes, wait_ms, ON_DEMAND)
    enforcement = state.context.policy.enforcement
    if enforcement is Enforcement.RESPOND:
        state.account.mute(wait_ms, now_ms=now_ms)
    is_delayed = enforcement is Enforcement.DELAY and wait_ms > 0
    return BegunResponse(profile, 4 + response_bytes, wait_ms, is_delayed, is_exact=True)


def observe(
    state: SessionState,
    testing: OnDemandThrottles,
    pending: PendingRequest,
    response_bytes: int,
    wait_ms: int,
    reason: str,
) -> None:
    """Note a throttled response for tests. ``reason`` says why it is throttled."""
    profile = pending.profile
    testing.observed.add(
        profile.api_key,
        profile.api_version,
        user=state.account.principal,
        client_id=_client_id(pending),
        throttle_time_ms=wait_ms,
        size_bytes=pending.size_bytes if profile.api_key == ApiKey.PRODUCE else response_bytes,
        reason=reason,
    )


def _client_id(pending: PendingRequest) -> str:
    return pending.profile.client_id.decode("utf-8", "backslashreplace")
