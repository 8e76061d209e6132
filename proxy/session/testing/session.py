"""A session whose requests and responses follow the orders of tests. With ``testing: true`` each connection has one."""

from __future__ import annotations

from librt.strings import read_i32_be

from kafka_quota_proxy.protocol.header import RequestHead
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.line import Waiter
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.broker_turn import MAX_REFUSED_BYTES
from kafka_quota_proxy.proxy.session.client_account import ConnectionContext
from kafka_quota_proxy.proxy.session.frame_edits import NO_EDIT, Edit
from kafka_quota_proxy.proxy.session.handlers.handler import BegunResponse
from kafka_quota_proxy.proxy.session.in_flight import PendingRequest
from kafka_quota_proxy.proxy.session.request_stream import RequestStream
from kafka_quota_proxy.proxy.session.response_stream import ResponseStream
from kafka_quota_proxy.proxy.session.session import Session
from kafka_quota_proxy.proxy.session.state import SessionState
from kafka_quota_proxy.proxy.session.testing.orders import OnDemandThrottles
from kafka_quota_proxy.proxy.session.testing.requests import may_refuse, refuse_on_demand
from kafka_quota_proxy.proxy.session.testing.responses import observe, throttle_on_demand


class OnDemandSession(Session):
    """A session that throttles, delays, edits and refuses as ``testing`` says, and notes there what it throttles."""

    __slots__ = ("_testing",)

    def __init__(self, context: ConnectionContext, testing: OnDemandThrottles, owner: Waiter | None = None) -> None:
        self._testing = testing
        super().__init__(context, owner)

    def _streams(self, state: SessionState) -> tuple[ResponseStream, RequestStream]:
        return _OnDemandResponses(state, self._testing), _OnDemandRequests(state, self._testing)


class _OnDemandRequests(RequestStream):
    """Reads the head of each request, and refuses those for which a test has asked for an error.

    While there are orders, the broker gets one request of a connection at a time, so that they act in turn.
    """

    __slots__ = ("_testing",)

    def __init__(self, state: SessionState, testing: OnDemandThrottles) -> None:
        super().__init__(state)
        self._testing = testing

    def _max_kept_bytes(self) -> int:
        return max(super()._max_kept_bytes(), 4 + MAX_REFUSED_BYTES)

    def _admit(self, data: bytes, position: int, now_ms: int) -> tuple[int, Edit] | None:
        if self._testing.orders and self._state.in_flight:
            self._state.block(BlockedBy.EARLIER_ANSWERS)
            return None
        admitted = super()._admit(data, position, now_ms)
        self.profile = None  # so that the next request is read, too
        return admitted

    def _handle(self, data: bytes, position: int, head: RequestHead, now_ms: int) -> Edit | None:
        if may_refuse(self._state, self._testing):
            edit = refuse_on_demand(self._state, self._testing, data, position, head, now_ms)
            if edit != NO_EDIT:
                return edit
        return super()._handle(data, position, head, now_ms)


class _OnDemandResponses(ResponseStream):
    """Throttles, delays and edits responses, some of which it reads as a whole."""

    __slots__ = ("_frame", "_testing")

    def __init__(self, state: SessionState, testing: OnDemandThrottles) -> None:
        super().__init__(state)
        self._testing = testing
        self._frame = b""  # the response that is charged next, if all of it is needed
        self.awaits_rest = True

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
        state, testing = self._state, self._testing
        asked = throttle_on_demand(state, testing, pending, response_bytes, self._frame, now_ms)
        self._frame = b""
        if asked is not None:
            self.least_wait_ms = 0
            return asked
        begun = super()._throttle(pending, bucket, wait_ms, response_bytes, now_ms)
        if begun is not None:
            observe(state, testing, pending, response_bytes, begun.throttle_time_ms or begun.delay_ms)
        return begun
