"""Handles the APIs without a handler of their own.

No bytes are charged for their requests. Only the quotas on the time and number of requests apply, and the fair call
queue, which limits how many requests the broker gets at a time.
"""

from __future__ import annotations

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.header import RequestHead
from kafka_quota_proxy.proxy.session.frame_edits import NO_EDIT, Edit
from kafka_quota_proxy.proxy.session.handlers.handler import BegunResponse, Handler
from kafka_quota_proxy.proxy.session.in_flight import PendingRequest, RequestProfile
from kafka_quota_proxy.proxy.session.request_charge import RequestCharge

_METADATA = int(ApiKey.METADATA)


class OtherHandler(Handler):
    """Handles every API that has no handler of its own."""

    __slots__ = ()

    def take(self, data: bytes, position: int, head: RequestHead, now_ms: int) -> Edit | None:
        """Forward a request unchanged if the request quotas and the fair call queue allow it."""
        state = self._state
        charge = state.charge_of(head, now_ms)
        if charge is not None:
            if state.requests.is_muted(now_ms) or not state.broker_turn.has_come(charge, head.size_bytes, now_ms):
                return None
            state.broker_turn.begin(charge, now_ms)
        self.pass_on(head, charge)
        return NO_EDIT

    def pass_on(self, head: RequestHead, charge: RequestCharge | None) -> None:
        """Add a forwarded request to the pending requests.

        In the response to the request, only the throttle time and the brokers' addresses are edited.
        """
        profile = RequestProfile(self, head.api_key, head.api_version, head.client_id, charge=charge)
        profile.is_edited = head.api_key == _METADATA
        self._state.in_flight.append(PendingRequest(profile, head.correlation_id, head.size_bytes, 0, charge))

    def edit_response(self, response: BegunResponse, data: bytes, position: int, now_ms: int) -> Edit | None:
        """Edit a response as ``Handler`` does.

        If ``on_metadata`` is set and brokers' addresses are not replaced, each Metadata response is also passed to it.
        """
        context = self._state.context
        edit = super().edit_response(response, data, position, now_ms)
        is_read_here = context.addresses is None and context.on_metadata is not None
        if is_read_here and edit is not None and response.profile.api_key == _METADATA:
            context.on_metadata(data, position, response.profile.api_version)  # type: ignore[misc] # it is not None
        return edit
