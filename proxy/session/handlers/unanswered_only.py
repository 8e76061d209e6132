"""Drops the requests that the broker would answer, because their client can be sent no response any more."""

from __future__ import annotations

from kafka_quota_proxy.protocol import produce
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.protocol.header import RequestHead, read_request_head
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.frame_edits import Edit
from kafka_quota_proxy.proxy.session.handlers.handler import Handler
from kafka_quota_proxy.proxy.session.handlers.produce import ProduceHandler


class UnansweredOnlyHandler(Handler):
    """Handles all requests of a client that has gone, or that is drained while it produces with acks=0.

    Such a client would not notice the loss of a Produce. It repeats all other requests on a new connection.
    """

    __slots__ = ()

    def take(self, data: bytes, position: int, head: RequestHead, now_ms: int) -> Edit | None:
        """Let ``ProduceHandler`` decide on a Produce with acks=0, and drop any other request."""
        frame_end = position + 4 + head.size_bytes
        if head.api_key == ApiKey.PRODUCE:
            acks = produce.read_acks(data, head.body, head.api_version, end=frame_end)
            if acks is None:
                return None
            if acks == 0:
                return self._state.requests.handler(ProduceHandler).take(data, position, head, now_ms)
        if frame_end <= len(data):
            return position, frame_end, b""
        if frame_end - position > self.max_kept_bytes:
            self._state.take_no_more()  # it is too long to be collected, so what follows is dropped, too
            self._state.block(BlockedBy.END)
        return None


def end_of_answered(data: bytes, at: int, max_frame_bytes: int) -> tuple[int, int]:
    """Return the end of the requests from offset ``at`` on that the broker would answer, and their number.

    The end is beyond the end of ``data`` if the last of them is incomplete. The search ends at a Produce with acks=0,
    and at a request whose head is incomplete or cannot be read.
    """
    found = 0
    try:
        while at < len(data) and (head := read_request_head(data, at, max_frame_bytes)) is not None:
            frame_end = at + 4 + head.size_bytes
            is_produce = head.api_key == ApiKey.PRODUCE
            if is_produce and not produce.read_acks(data, head.body, head.api_version, end=frame_end):
                break
            at, found = frame_end, found + 1
    except ProtocolError:
        pass  # the connection is closed when this request is read again, or is being closed
    return at, found
