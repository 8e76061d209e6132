"""Forwards a broker's responses to the client, edits them if necessary, and charges the requests that they answer."""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_be

from kafka_quota_proxy.config.model import Enforcement
from kafka_quota_proxy.protocol import sasl
from kafka_quota_proxy.protocol.errors import FrameTooSmall, ProtocolError, UnexpectedResponse
from kafka_quota_proxy.protocol.node_endpoints import EndpointHider, has_no_endpoints
from kafka_quota_proxy.protocol.partial_frame import PartialFrame, bytes_to_wait_for
from kafka_quota_proxy.protocol.throttle_time import client_throttles_itself
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.session.frame_edits import MAX_HELD_RESPONSE_BYTES
from kafka_quota_proxy.proxy.session.handlers.handler import BegunResponse
from kafka_quota_proxy.proxy.session.in_flight import PendingRequest, RequestProfile
from kafka_quota_proxy.proxy.session.state import SessionState

_RESPONSE_HEAD_BYTES: Final = 8  # size_bytes and correlation_id


class ResponseStream:
    """Takes the bytes that the broker sends to one client, and forwards its responses.

    Attributes:
        begun: A response that was charged when it began, but needs more bytes or a delay before it is forwarded. None
            if there is no such response.
        data: Bytes of responses that are not forwarded yet. They begin at ``_at``.
        left: How many bytes of a response that was already charged are not forwarded yet.
        least_wait_ms: The shortest throttle time for the next response, in milliseconds. 0 sets no minimum.
        reads_all: Whether every response is read, because of a login or because brokers' addresses are replaced.
        sees_all: Whether ``_lacks_rest`` is asked about each response before the response is charged, and ``_throttle``
            even if no bucket causes a wait.
        hidden: Replaces the brokers' addresses in a response that is partly forwarded, or None if there is no such
            response.
    """

    __slots__ = (
        "_at", "_is_read_whole", "_pieces", "_state", "begun", "data", "hidden", "least_wait_ms", "left", "reads_all",
        "sees_all",
    )  # fmt: skip

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self.data = b""
        self._at = 0
        self._pieces: PartialFrame | None = None
        self._is_read_whole = False  # whether the response at the front is kept until all of it has arrived
        self.begun: BegunResponse | None = None
        self.left = 0
        self.least_wait_ms = 0
        self.reads_all = state.context.addresses is not None
        self.sees_all = False
        self.hidden: EndpointHider | None = None

    # -- calls of the session --

    def receive(self, data: bytes, *, now_ms: int) -> None:
        """Take bytes from the broker. Raises ``ProtocolError`` if they are not responses to the client's requests."""
        if self.data:
            if self._pieces is None:
                data = self.data[self._at :] + data
            elif data := self._pieces.add(data):
                self._pieces = None
            else:
                return
            if self._state.delayed_until_ms:
                self.data = data
                self._at = 0
                return
        elif self.left > len(data):
            self.left -= len(data)
            if self.hidden is not None:
                data = self.hidden.feed(data)
            self._state.to_client.append(data)
            return
        self._pass_on(data, 0, now_ms)

    @property
    def body_left(self) -> int:
        """How many of the next bytes from the broker may pass to the client as they are. See ``pass_body``."""
        return 0 if self.hidden is not None or self.data else self.left

    def pass_body(self, size_bytes: int, now_ms: int) -> None:
        """Note that the next bytes of a response went to the client as they were: at most ``body_left``.

        Raises:
            ProtocolError: If the client's next request waited for this response, and violates Kafka's protocol.
        """
        self.left -= size_bytes
        if not self.left and self._state.blocked_by is not None:
            self._state.requests.resume(now_ms)

    def resume(self, now_ms: int) -> None:
        """Forward the responses that were held back. Raises ``ProtocolError`` as ``receive`` does."""
        self._pass_on(self.data, self._at, now_ms)

    @property
    def is_open(self) -> bool:
        """Whether a response has begun to arrive, but has not been forwarded as a whole yet."""
        return bool(self.left or self.data)

    def stop_delaying(self) -> None:
        """If a quota delays a response, let the response be forwarded without a delay."""
        if self.begun is not None:
            self.begun = self.begun._replace(delay_ms=0)

    @property
    def kept_bytes(self) -> int:
        """The number of bytes of responses that have arrived and are not forwarded yet."""
        return len(self._pieces or self.data)

    def unread(self) -> tuple[bytes, int]:
        """Return the kept bytes, and how many of the next bytes belong to a response that was already charged.

        The next bytes are the kept bytes and those that follow.
        """
        kept = self.data[self._at :] if self._pieces is None else self._pieces.join()
        return kept, self.left if self.begun is None else self.begun.frame_bytes

    # -- the loop over responses --

    def _pass_on(self, data: bytes, start: int, now_ms: int) -> None:  # noqa: C901 - one loop is faster
        """Forward the responses from offset ``start`` on, as far as possible, and keep the rest of ``data``."""
        state = self._state
        in_flight = state.in_flight
        end = len(data)
        position = start + self.left
        self.left = 0
        if self.hidden is not None:
            start = self._pass_hidden(data, start, position)
        while position < end:
            delay_ms = 0
            begun = self.begun
            if begun is None:
                if position + _RESPONSE_HEAD_BYTES > end or not in_flight:
                    begun = self._begin_token(data, position)
                    if begun is None:
                        break
                elif (not state.in_flight_limit and not sasl.has_error_code(data, position)) or (
                    self.sees_all and self._lacks_rest(data, position)
                ):
                    break
                else:
                    response_bytes: int = read_i32_be(data, position)
                    correlation_id: int = read_i32_be(data, position + 4)
                    pending = in_flight[0]
                    if pending.correlation_id != correlation_id or response_bytes < 4:
                        raise _unexpected(pending, response_bytes, correlation_id)
                    del in_flight[0]
                    profile, frame_bytes = pending.profile, 4 + response_bytes
                    begun = self._charge(pending, response_bytes, data, position, now_ms)
            if begun is not None:
                profile, frame_bytes, _, delay_ms, _ = begun
            if (
                begun is not None
                or profile.is_edited
                or (self.reads_all and _has_endpoints(profile, data, position, frame_bytes))
            ):
                begun = begun or BegunResponse(profile, frame_bytes, 0, 0)
                edit = profile.handler.edit_response(begun, data, position, now_ms)
                if edit is None:
                    self.begun = begun
                    break
                self.begun = None
                begin, until, replacement = edit or (position, position, b"")
                if delay_ms or self.hidden is not None:
                    self.left = frame_bytes + len(replacement) - (until - begin)
                    if replacement:
                        data = data[:begin] + replacement + data[until:]
                    if not delay_ms:
                        state.to_client.append(data[start:position])
                        self._pass_on(data, position, now_ms)
                        return
                    state.delayed_until_ms = now_ms + delay_ms
                    state.broker_turn.stop_service()
                    break
                if replacement:
                    state.to_client += (data[start:begin], replacement)
                    start = until
                elif until > begin:  # an edit without a replacement keeps the response from the client
                    state.to_client.append(data[start:begin])
                    start = until
            position += frame_bytes
        self._end_turn(data, start, position, now_ms)

    def _end_turn(self, data: bytes, start: int, position: int, now_ms: int) -> None:
        """Send the bytes of ``data`` from ``start`` to ``position``, keep the rest, and resume a blocked request."""
        state = self._state
        end = len(data)
        if position > end:
            self.left = position - end
            position = end
        if position > start:
            is_whole = start == 0 and position == end  # then no copy is needed, and compiled slices always copy
            state.to_client.append(data if is_whole else data[start:position])
        if position < end:
            self._keep(data, position)
        elif self.data:
            self.data = b""
        if state.blocked_by is not None:
            state.requests.resume(now_ms)

    def _keep(self, data: bytes, position: int) -> None:
        """Keep the bytes of ``data`` from ``position`` on, which are not forwarded yet."""
        self.data = data
        self._at = position
        if not self._state.delayed_until_ms:
            # More bytes are collected before the response is parsed again. If it is held whole, it may have many MB.
            is_held_whole = self._is_read_whole or (self.begun is not None and self.begun.profile.handler.is_held_whole)
            most_bytes = None if is_held_whole else MAX_HELD_RESPONSE_BYTES
            front = self.data = data[position:]
            self._at = 0
            self._pieces = PartialFrame(front, bytes_to_wait_for(front, most_bytes=most_bytes))

    def _pass_hidden(self, data: bytes, start: int, position: int) -> int:
        """Forward what has arrived of a response, with brokers' addresses replaced.

        Returns:
            The offset of the next byte, which is not forwarded yet.
        """
        until = min(position, len(data))
        if self.hidden is not None:
            self._state.to_client.append(self.hidden.feed(data[start:until]))
            if until == position:
                self._state.to_client.append(self.hidden.end())
                self.hidden = None
        return until

    # -- the beginning of a response --

    def _charge(
        self, pending: PendingRequest, response_bytes: int, data: bytes, position: int, now_ms: int
    ) -> BegunResponse | None:
        """Charge the request whose response begins at ``position``.

        Returns:
            The response with its throttle time, or None if it needs no throttle time.
        """
        state, profile, charge = self._state, pending.profile, pending.charge
        state.answered = profile.api_key
        bucket = profile.bucket
        wait_ms = 0
        if bucket is not None:
            if bucket.reserved.amount == pending.reserved_bytes:
                bucket.reserved.amount = 0
            else:
                bucket.reserved.settle(pending.reserved_bytes)
            if profile.charges_response:
                wait_ms = profile.handler.charge_response(profile, bucket, response_bytes, data, position, now_ms)
            else:
                wait_ms = bucket.charge(pending.size_bytes, now_ms=now_ms)
                if bucket.line is not None:
                    bucket.line.end_request(pending.size_bytes)
        elif charge is None and state.broker_turn.queued is not None:
            state.broker_turn.move_up()  # this answers a request of the proxy itself, and the client's request waits
        if charge is not None:
            if profile.handler.is_login and not sasl.is_illegal_sasl_state(
                data, position, profile.api_key, profile.api_version
            ):
                charge.forget()  # Kafka does not charge a login either, as it handles logins before it charges
                state.broker_turn.end_service()
                state.broker_turn.move_up()
            else:
                bucket, wait_ms = state.broker_turn.settle(
                    pending, bucket, wait_ms, response_bytes, data, position, now_ms
                )
        if wait_ms > 0 or self.least_wait_ms or self.sees_all:
            return self._throttle(pending, bucket, wait_ms, response_bytes, now_ms)
        return None

    def _throttle(
        self, pending: PendingRequest, bucket: Bucket | None, wait_ms: int, response_bytes: int, now_ms: int
    ) -> BegunResponse | None:
        """Throttle the client because ``bucket`` is over its limit, and return the response with its throttle time."""
        account, profile = self._state.account, pending.profile
        least_wait_ms, self.least_wait_ms = self.least_wait_ms, 0
        if wait_ms > 0 and bucket is not None:
            place = self._state.place_in(bucket.line)
            wait_ms = account.throttle(bucket, wait_ms, now_ms=now_ms, place=place)
            account.broker_began_ms = now_ms
            if wait_ms > 0 and account.enforcement(bucket) is Enforcement.DELAY:
                # A client that would wait once more by itself is told nothing.
                told_ms = 0 if client_throttles_itself(profile.api_key, profile.api_version) else wait_ms
                return BegunResponse(profile, 4 + response_bytes, told_ms, wait_ms)
        wait_ms = max(wait_ms, least_wait_ms)
        return BegunResponse(profile, 4 + response_bytes, wait_ms, 0) if wait_ms else None

    def _lacks_rest(self, data: bytes, position: int) -> bool:
        """Return whether the response at ``position`` is charged only when the rest of it has arrived."""
        return False

    def _begin_token(self, data: bytes, position: int) -> BegunResponse | None:
        """Return the SASL token without a Kafka header that begins at ``position``, or None if more bytes are needed.

        Raises:
            UnexpectedResponse: If the broker may not send such a token now, and the bytes are a response to no request.
        """
        login = self._state.requests.login
        if login is not None and login.login.is_raw:
            return login.begin_token(data, position)
        if position + _RESPONSE_HEAD_BYTES > len(data):
            return None
        correlation_id: int = read_i32_be(data, position + 4)
        raise UnexpectedResponse(f"a response with correlation_id {correlation_id} answers no request")


def _has_endpoints(profile: RequestProfile, data: bytes, position: int, frame_bytes: int) -> bool:
    return not has_no_endpoints(data, position, frame_bytes, profile.api_key, profile.api_version)


def _unexpected(pending: PendingRequest, response_bytes: int, correlation_id: int) -> ProtocolError:
    """Return the error for a response that does not answer the oldest request."""
    if response_bytes < 4:
        return FrameTooSmall(f"a response of {response_bytes} bytes cannot hold a correlation_id")
    profile = pending.profile
    return UnexpectedResponse(
        f"a response has correlation_id {correlation_id}, expected was {pending.correlation_id} "
        f"(api_key {profile.api_key}, version {profile.api_version})"
    )
