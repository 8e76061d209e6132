"""Answers a session's requests with errors in place of the broker, as tests ask for it."""

from __future__ import annotations

from typing import Final

from kafka_quota_proxy.config.model import Enforcement
from kafka_quota_proxy.protocol import topic_mutations
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.header import RequestHead
from kafka_quota_proxy.protocol.producer_sequences import read_producer_batches
from kafka_quota_proxy.protocol.refusal_responses import refusal_response
from kafka_quota_proxy.protocol.response_topics import topics_of
from kafka_quota_proxy.proxy.session.broker_turn import MAX_REFUSED_BYTES
from kafka_quota_proxy.proxy.session.frame_edits import NO_EDIT, Edit
from kafka_quota_proxy.proxy.session.state import SessionState
from kafka_quota_proxy.proxy.session.testing.effects import Effects
from kafka_quota_proxy.proxy.session.testing.observed import ON_DEMAND
from kafka_quota_proxy.proxy.session.testing.orders import REFUSED_APIS, OnDemandThrottles

_PRODUCE: Final = int(ApiKey.PRODUCE)
_NO_TOPICS: Final[frozenset[bytes]] = frozenset()


def may_refuse(state: SessionState, testing: OnDemandThrottles) -> bool:
    """Return whether the client's next requests have to be read, because a test may have asked for an error."""
    return testing.refuses or state.broker_turn.refused is not None


def refuse_on_demand(
    state: SessionState, testing: OnDemandThrottles, data: bytes, position: int, head: RequestHead, now_ms: int
) -> Edit | None:
    """Answer the request at ``position`` with an error if a test has asked for it.

    After a refused Produce, later batches of the same idempotent producer are refused until it has sent the refused one
    again (``RefusedBatches``). These refusals are part of no order.

    Returns:
        The edit that removes the request from the bytes to forward. ``NO_EDIT`` if the request is not answered here.
        None if it has to wait, or if more of its bytes are needed.

    Raises:
        ProtocolError: If the request cannot be read.
    """
    frame_end = position + 4 + head.size_bytes
    if head.api_key not in REFUSED_APIS or head.size_bytes > MAX_REFUSED_BYTES:
        return NO_EDIT
    if frame_end > len(data):
        state.unblock()
        return None
    frame = data[position:frame_end]
    client_id = head.client_id.decode("utf-8", "backslashreplace")
    user = state.account.principal
    topics = _topics(frame, head)
    order = testing.refusal(head.api_key, user=user, client_id=client_id, topics=topics)
    is_behind = head.api_key == _PRODUCE and _is_behind(state, frame, now_ms)
    effects = Effects() if order is None else order.effects
    throttle_time_ms = effects.throttle_time_ms or 0
    response = refusal_response(frame, throttle_time_ms=throttle_time_ms, error_code=effects.error_code)
    if response is None or (order is None and not is_behind):
        _pass_on(state, frame, head)
        return NO_EDIT
    if not state.is_alone():
        return None
    if head.api_key == _PRODUCE:
        state.broker_turn.note_refused(frame, now_ms, is_behind=is_behind and order is None)
    if order is not None:
        testing.fulfil(order)
    testing.observed.see(head.api_key, user=user, client_id=client_id)
    testing.observed.add(
        head.api_key,
        head.api_version,
        user=user,
        client_id=client_id,
        throttle_time_ms=throttle_time_ms,
        size_bytes=head.size_bytes,
        reason=ON_DEMAND,
        effects=effects,
        quotas=state.context.quotas,
    )
    if throttle_time_ms and state.context.policy.enforcement is not Enforcement.OBSERVE:
        state.account.mute(throttle_time_ms, now_ms=now_ms)
    if effects.closes and state.owner is not None:
        testing.close_later(state.owner, throttle_time_ms)
    state.to_client.append(response)
    return position, frame_end, b""


def _is_behind(state: SessionState, frame: bytes, now_ms: int) -> bool:
    """Return whether a Produce would overtake a refused batch of its producer."""
    refused = state.broker_turn.refused
    if refused is None or refused.has_expired(now_ms):
        state.broker_turn.refused = None
        return False
    return refused.precede(read_producer_batches(frame))


def _pass_on(state: SessionState, frame: bytes, head: RequestHead) -> None:
    """Forget the refused batches that the client has sent again, because they are now forwarded."""
    refused = state.broker_turn.refused
    if refused is not None and head.api_key == _PRODUCE:
        refused.remove(read_producer_batches(frame))
        state.broker_turn.refused = refused if refused else None


def _topics(frame: bytes, head: RequestHead) -> frozenset[bytes]:
    """Return the names or ids of the topics in a request that produces, or that changes topics."""
    if head.api_key == _PRODUCE:
        # The response to a Produce lists the same topics.
        response = refusal_response(frame, throttle_time_ms=0)
        return _NO_TOPICS if response is None else frozenset(topics_of(response, _PRODUCE, head.api_version))
    if not topic_mutations.is_mutation(head.api_key, head.api_version):
        return _NO_TOPICS
    mutations = topic_mutations.read_request(frame).topics
    return frozenset(one.topic if isinstance(one.topic, bytes) else one.topic.bytes for one in mutations)
