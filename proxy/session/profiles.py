"""Makes the profile of a request: what it shares with later requests that have the same head."""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_be

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION
from kafka_quota_proxy.protocol.header import RequestHead
from kafka_quota_proxy.proxy.fair_queue.request_kind import request_kind
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.session.client_account import NO_BUCKETS
from kafka_quota_proxy.proxy.session.handlers.handler import Handler
from kafka_quota_proxy.proxy.session.in_flight import RequestProfile
from kafka_quota_proxy.proxy.session.request_charge import RequestCharge
from kafka_quota_proxy.proxy.session.state import SessionState

# The longest head that is kept for comparison. Names may have 32 KB, which is too much to keep for each connection.
_MAX_PROFILE_BYTES: Final = 1024


def charge_of(state: SessionState, head: RequestHead, now_ms: int, *, acks: int = 1) -> RequestCharge:
    """Return what a request is charged in addition to bytes: in the quotas on requests and the fair call queue."""
    buckets = state.account.request_buckets(head.client_id, now_ms)
    kind = request_kind(head.api_key, head.api_version, acks)
    return RequestCharge(buckets, kind, state.broker_turn.identity(head.client_id))


def profile_of(
    state: SessionState,
    handler: Handler,
    data: bytes,
    position: int,
    head: RequestHead,
    *,
    bucket: Bucket,
    front_end: int | None,
    acks: int,
    now_ms: int,
) -> RequestProfile:
    """Return the profile of a request, and keep it for later requests with the same head.

    ``front_end`` is the offset in ``data`` at which the head ends. If it is None, the profile is not kept.
    """
    charge: RequestCharge | None = charge_of(state, head, now_ms, acks=acks)
    if charge is not None and charge.buckets is NO_BUCKETS and state.broker_turn.queued is None:
        charge = None
    profile = RequestProfile(
        handler, head.api_key, head.api_version, head.client_id, acks=acks, bucket=bucket, charge=charge
    )
    profile.front_end = (front_end or head.body) - position
    if front_end is not None and profile.front_end <= _MAX_PROFILE_BYTES:
        profile.api = read_i32_be(data, position + 4)
        profile.front = data[position + 12 : front_end]
        profile.generation = state.context.quotas.generation
        if head.api_version <= HIGHEST_VERSION[head.api_key]:
            state.requests.profile = profile
    state.requests.release_stale_buckets(now_ms)
    return profile
