"""Requests that are read whole before they are decided on, and whose responses are read whole too."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from kafka_quota_proxy.protocol.errors import FrameTooLarge
from kafka_quota_proxy.protocol.header import RequestHead
from kafka_quota_proxy.protocol.throttle_time import client_throttles_itself
from kafka_quota_proxy.proxy.session.frame_edits import NO_EDIT, Edit, response_edit
from kafka_quota_proxy.proxy.session.handlers.handler import BegunResponse, Handler
from kafka_quota_proxy.proxy.session.in_flight import PendingRequest, RequestProfile
from kafka_quota_proxy.proxy.session.request_charge import RequestCharge
from kafka_quota_proxy.proxy.session.state import SessionState

# Of a response that is read whole. A follower's fetch asks for at most 64 MiB, and in a session in which nothing lags
# for what it wants. A longer response is one enormous batch. Up to v2 there is no limit, and each partition may bring
# its own.
MAX_HELD_BYTES: Final = 512 * 1024 * 1024


class Hold(NamedTuple):
    """The request waits until then."""

    until_ms: int


class Answered(NamedTuple):
    """The request does not pass; this whole frame is its response."""

    frame: bytes


class Ask(NamedTuple):
    """This whole frame goes to the broker first. The request is decided on again after its response."""

    frame: bytes


class Forward(NamedTuple):
    """This passes in place of the request; empty: the request itself does."""

    frame: bytes
    is_answer_read: bool  # ``Exchange.answer`` gets the whole response; otherwise it passes as it comes


Decision = Hold | Answered | Ask | Forward


class Exchange(Protocol):
    """Decides on whole requests, one at a time.

    Attributes:
        api_key: Of the request that was passed on last.
    """

    api_key: int

    def answer(self, data: bytes, position: int, frame_bytes: int, *, now_ms: int) -> bytes:
        """Return the response that the client gets for a whole response of the broker; empty: none.

        Raises:
            ProtocolError: It is no response to the request.
        """


class WholeRequestHandler(Handler):
    """Does what an ``Exchange`` has decided, and hands it the broker's response."""

    __slots__ = ("_exchange",)

    edits_every_response = True
    is_held_whole = True

    def __init__(self, state: SessionState) -> None:
        super().__init__(state)
        self._exchange: Exchange | None = None  # that has a request in flight

    def execute(
        self, decision: Decision, exchange: Exchange, position: int, head: RequestHead, charge: RequestCharge | None
    ) -> Edit | None:
        """Do with a request what was decided, and return as ``Handler.take``. ``exchange`` gets the response."""
        state = self._state
        frame_end = position + 4 + head.size_bytes
        if isinstance(decision, Hold):
            state.held_until_ms = decision.until_ms
            state.is_blocked = True
            return None
        if isinstance(decision, Answered):
            state.to_client.append(decision.frame)
            state.broker_turn.leave()
            return position, frame_end, b""
        self._exchange = exchange
        if isinstance(decision, Ask):
            state.requests.question = decision.frame
            self._expect(exchange.api_key, head, 0, None)
            state.is_blocked = True
            return None
        if decision.is_answer_read:
            self._expect(exchange.api_key, head, head.size_bytes, charge)
        else:
            state.requests.expect_as_is(head, charge)
        return (position, frame_end, decision.frame) if decision.frame else NO_EDIT

    def _expect(self, api_key: int, head: RequestHead, size_bytes: int, charge: RequestCharge | None) -> None:
        profile = RequestProfile(self, api_key, head.api_version, charge=charge)
        self._state.in_flight.append(PendingRequest(profile, head.correlation_id, size_bytes, 0, charge))

    def edit_response(self, response: BegunResponse, data: bytes, position: int, now_ms: int) -> Edit | None:
        """See ``Handler``."""
        profile, frame_bytes, wait_ms, is_delayed = response
        if frame_bytes > MAX_HELD_BYTES:
            raise FrameTooLarge(f"a response of {frame_bytes} bytes, which is to be read whole, is not held")
        exchange = self._exchange
        if position + frame_bytes > len(data) or exchange is None:
            return None
        frame = exchange.answer(data, position, frame_bytes, now_ms=now_ms)
        frame = self.finish(exchange, frame, response)
        has_waited = is_delayed and client_throttles_itself(profile.api_key, profile.api_version)
        if wait_ms and frame and not has_waited:  # for other quotas; the longest wait is told
            throttle = response_edit(frame, 0, len(frame), profile.api_key, profile.api_version, wait_ms)
            if throttle:
                frame = frame[: throttle[0]] + throttle[2] + frame[throttle[1] :]
        return position, position + frame_bytes, self.hold_back(exchange, frame, is_delayed=is_delayed)

    def finish(self, exchange: Exchange, frame: bytes, response: BegunResponse) -> bytes:
        """Return the response as the client gets it, but for its throttle time."""
        return frame

    def hold_back(self, exchange: Exchange, frame: bytes, *, is_delayed: bool) -> bytes:
        """Return the response; nothing if the client has to wait for it."""
        return frame
