"""A session that throttles responses as tests order. With ``testing: true`` each connection has one."""

from __future__ import annotations

from librt.strings import read_i32_be

from kafka_quota_proxy.config.model import Enforcement
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.throttle_time import client_throttles_itself
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.line import Waiter
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.client_account import ConnectionContext
from kafka_quota_proxy.proxy.session.frame_edits import Edit
from kafka_quota_proxy.proxy.session.handlers.handler import BegunResponse
from kafka_quota_proxy.proxy.session.in_flight import PendingRequest
from kafka_quota_proxy.proxy.session.request_stream import RequestStream
from kafka_quota_proxy.proxy.session.response_stream import ResponseStream
from kafka_quota_proxy.proxy.session.session import Session
from kafka_quota_proxy.proxy.session.state import SessionState
from kafka_quota_proxy.proxy.session.testing.observed import BY_QUOTA, ON_DEMAND
from kafka_quota_proxy.proxy.session.testing.orders import OnDemandThrottles


class OnDemandSession(Session):
    """A session that throttles as the orders in ``testing`` say, and notes there what it throttles."""

    __slots__ = ("_testing",)

    def __init__(self, context: ConnectionContext, testing: OnDemandThrottles, owner: Waiter | None = None) -> None:
        self._testing = testing
        super().__init__(context, owner)

    def _streams(self, state: SessionState) -> tuple[ResponseStream, RequestStream]:
        return _OnDemandResponses(state, self._testing), _OnDemandRequests(state, self._testing)


class _OnDemandRequests(RequestStream):
    """Forwards one request at a time while there are orders, so that they act in turn."""

    __slots__ = ("_testing",)

    def __init__(self, state: SessionState, testing: OnDemandThrottles) -> None:
        super().__init__(state)
        self._testing = testing

    def _admit(self, data: bytes, position: int, now_ms: int) -> tuple[int, Edit] | None:
        if self._testing.orders and self._state.in_flight:
            self._state.block(BlockedBy.EARLIER_ANSWERS)
            return None
        admitted = super()._admit(data, position, now_ms)
        self.profile = None  # so that the next request is read, too
        return admitted


class _OnDemandResponses(ResponseStream):
    """Throttles responses, some of which it reads as a whole."""

    __slots__ = ("_frame", "_testing")

    def __init__(self, state: SessionState, testing: OnDemandThrottles) -> None:
        super().__init__(state)
        self._testing = testing
        self._frame = b""  # the response that is charged next, if all of it is needed
        self.sees_all = True

    def _lacks_rest(self, data: bytes, position: int) -> bool:
        self._is_read_whole = self._testing.reads_whole(self._state.in_flight[0].profile.api_key)
        if not self._is_read_whole:
            self._frame = b""
            return False
        end: int = position + 4 + read_i32_be(data, position)
        self._frame = data[position:end]
        return end > len(data)

    def _throttle(
        self, pending: PendingRequest, bucket: Bucket | None, wait_ms: int, response_bytes: int, now_ms: int
    ) -> BegunResponse | None:
        profile, testing, frame = pending.profile, self._testing, self._frame
        self._frame = b""
        if profile.api_key == ApiKey.METADATA:
            testing.learn_names(frame, profile.api_version)
        user, client_id = self._state.account.principal, profile.client_id.decode("utf-8", "backslashreplace")
        testing.observed.see(profile.api_key, user=user, client_id=client_id)
        told_ms = testing.take(profile.api_key, profile.api_version, user=user, client_id=client_id, frame=frame)
        if told_ms is not None:
            self.least_wait_ms = 0
            begun: BegunResponse | None = self._throttle_by(told_ms, pending, response_bytes, now_ms)
        else:
            begun = super()._throttle(pending, bucket, wait_ms, response_bytes, now_ms)
        if begun is not None:
            testing.observed.add(
                profile.api_key,
                profile.api_version,
                user=user,
                client_id=client_id,
                throttle_time_ms=begun.throttle_time_ms or begun.delay_ms,
                size_bytes=pending.size_bytes if profile.api_key == ApiKey.PRODUCE else response_bytes,
                reason=BY_QUOTA if told_ms is None else ON_DEMAND,
                quotas=self._state.context.quotas,
            )
        return begun

    def _throttle_by(self, told_ms: int, pending: PendingRequest, response_bytes: int, now_ms: int) -> BegunResponse:
        """Throttle a response by this time, in place of the time of quotas and of the broker.

        With the enforcement ``respond`` the client is muted for it, with ``delay`` the response is held for it, and
        with ``observe`` the response only tells it.
        """
        profile, state = pending.profile, self._state
        delay_ms = 0
        enforcement = state.context.policy.enforcement
        if enforcement is Enforcement.RESPOND and told_ms:
            state.account.mute(told_ms, now_ms=now_ms)
        elif enforcement is Enforcement.DELAY:
            delay_ms = told_ms
            told_ms = 0 if client_throttles_itself(profile.api_key, profile.api_version) else told_ms
        return BegunResponse(profile, 4 + response_bytes, told_ms, delay_ms, is_exact=True)
