"""Contains the base class of handlers that read a request as a whole before they decide what to do with it.

If necessary, such a handler also reads the broker's response as a whole.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from kafka_quota_proxy.protocol.errors import FrameTooLarge
from kafka_quota_proxy.protocol.header import RequestHead
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.frame_edits import NO_EDIT, Edit, edited, response_edit
from kafka_quota_proxy.proxy.session.handlers.handler import BegunResponse, Handler
from kafka_quota_proxy.proxy.session.in_flight import PendingRequest, RequestProfile
from kafka_quota_proxy.proxy.session.request_charge import RequestCharge
from kafka_quota_proxy.proxy.session.state import SessionState

# The longest response that is read whole. The proxy lets a follower's fetch ask for at most 64 MiB, but a single batch
# may be larger, and up to v2 a Fetch has no limit for all partitions together.
MAX_HELD_BYTES: Final = 512 * 1024 * 1024


class Hold(NamedTuple):
    """The decision that the request waits, and is decided on again at ``until_ms`` at the latest."""

    until_ms: int
    blocked_by: BlockedBy


class Answered(NamedTuple):
    """The decision that the proxy answers the client's request. ``frame`` is the whole response."""

    frame: bytes


class Ask(NamedTuple):
    """The decision that the proxy first sends ``frame``, a whole request of its own, to the broker.

    When the response to ``frame`` has arrived, the handler decides on the client's request again.
    """

    frame: bytes


class Forward(NamedTuple):
    """The decision to forward the request. If ``frame`` is not empty, it is forwarded instead of the request."""

    frame: bytes
    is_answer_read: bool  # whether `Exchange.answer` gets the whole response; otherwise it is forwarded as it arrives


Decision = Hold | Answered | Ask | Forward


class Exchange(Protocol):
    """Receives the broker's whole response to one request at a time, and makes the response for the client from it.

    Attributes:
        api_key: The API key of the last request that was sent to the broker.
    """

    api_key: int

    def answer(self, data: bytes, position: int, frame_bytes: int, *, now_ms: int) -> bytes:
        """Return the response for the client, made from a whole response of the broker.

        The result is empty if the client does not get a response yet.

        Raises:
            ProtocolError: If the broker's response cannot be read, or does not answer the request.
        """


class WholeRequestHandler(Handler):
    """Carries out what was decided about a whole request, and replaces the broker's whole response.

    Subclasses make the decision. An ``Exchange`` makes the response for the client from the broker's response.
    """

    __slots__ = ("_exchange",)

    edits_every_response = True
    is_held_whole = True

    def __init__(self, state: SessionState) -> None:
        super().__init__(state)
        self._exchange: Exchange | None = None  # the exchange of the pending or last request

    def execute(
        self, decision: Decision, exchange: Exchange, position: int, head: RequestHead, charge: RequestCharge | None
    ) -> Edit | None:
        """Carry out ``decision``, and return what ``Handler.take`` returns.

        ``exchange`` will receive the broker's response, if the decision requires reading it.
        """
        state = self._state
        frame_end = position + 4 + head.size_bytes
        if isinstance(decision, Hold):
            state.held_until_ms = decision.until_ms
            state.block(decision.blocked_by)
            return None
        if isinstance(decision, Answered):
            state.to_client.append(decision.frame)
            state.broker_turn.leave()
            return position, frame_end, b""
        self._exchange = exchange
        if isinstance(decision, Ask):
            state.requests.question = decision.frame
            self._expect(exchange.api_key, head, 0, None)
            state.block(BlockedBy.EARLIER_ANSWERS)
            return None
        if decision.is_answer_read:
            self._expect(exchange.api_key, head, head.size_bytes, charge)
        else:
            state.requests.other.pass_on(head, charge)
        return (position, frame_end, decision.frame) if decision.frame else NO_EDIT

    def _expect(self, api_key: int, head: RequestHead, size_bytes: int, charge: RequestCharge | None) -> None:
        profile = RequestProfile(self, api_key, head.api_version, head.client_id, charge=charge)
        self._state.in_flight.append(PendingRequest(profile, head.correlation_id, size_bytes, 0, charge))

    def edit_response(self, response: BegunResponse, data: bytes, position: int, now_ms: int) -> Edit | None:
        """Replace a response with the result of ``Exchange.answer``. Returns None if more bytes are needed."""
        profile, frame_bytes, throttle_time_ms, _, is_exact = response
        if frame_bytes > MAX_HELD_BYTES:
            raise FrameTooLarge(f"a response of {frame_bytes} bytes, which must be read whole, is too long to be held")
        exchange = self._exchange
        if position + frame_bytes > len(data) or exchange is None:
            return None
        frame = exchange.answer(data, position, frame_bytes, now_ms=now_ms)
        frame = self.finish(exchange, frame, response)
        if (throttle_time_ms or is_exact) and frame:  # the longest wait, here that of other quotas
            throttle = response_edit(
                frame,
                0,
                len(frame),
                profile.api_key,
                profile.api_version,
                throttle_time_ms,
                is_exact=is_exact,
            )
            frame = edited(frame, throttle)
        return position, position + frame_bytes, frame

    def finish(self, exchange: Exchange, frame: bytes, response: BegunResponse) -> bytes:
        """Return the response for the client. ``frame`` is what ``exchange`` made from the broker's response.

        This class returns ``frame`` unchanged. Subclasses may override the method to edit ``frame`` further.
        """
        return frame
