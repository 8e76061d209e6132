"""Contains the base class of all handlers, with the edits that a response of any API may need."""

from __future__ import annotations

from typing import Final, NamedTuple

from librt.strings import read_i32_be

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION
from kafka_quota_proxy.protocol.header import MAX_HEAD_BYTES, RequestHead
from kafka_quota_proxy.protocol.node_endpoints import EndpointHider, has_no_endpoints
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.session.address_rewrite import ADDRESSED, MOVED, may_name_leaders, streams
from kafka_quota_proxy.proxy.session.frame_edits import NO_EDIT, Edit, response_edit
from kafka_quota_proxy.proxy.session.in_flight import RequestProfile
from kafka_quota_proxy.proxy.session.request_charge import RequestCharge
from kafka_quota_proxy.proxy.session.state import SessionState

# The longest head that is kept for comparison. Names may have 32 KB, which is too much to keep for each connection.
_MAX_PROFILE_BYTES: Final = 1024


class BegunResponse(NamedTuple):
    """A response that has begun to arrive and was charged, but has to be edited or delayed before it is forwarded.

    Attributes:
        profile: What is known about the request, for example its API, its version and its handler.
        frame_bytes: The length of the response, including the size prefix.
        throttle_time_ms: The throttle time to write into the response, in milliseconds. If the broker's is longer, that
            stays.
        delay_ms: How long the response is held back, in milliseconds. 0 if it is not held back.
        is_exact: Whether the throttle time replaces that of the broker, even a longer one.
    """

    profile: RequestProfile
    frame_bytes: int
    throttle_time_ms: int
    delay_ms: int
    is_exact: bool = False


class Handler:
    """Handles the requests of one family of APIs on one connection, and the responses to them.

    Attributes:
        charges_responses: Whether the quota on bytes is charged for the size of each response. Otherwise it is charged
            for the size of each request.
        edits_every_response: Whether ``edit_response`` is called for every response, not only if a throttle time has to
            be written.
        is_held_whole: Whether a response is collected whole before it is edited, however long it is.
        is_login: Whether the handled requests are part of a login.
    """

    __slots__ = ("_state",)

    charges_responses = False
    edits_every_response = False
    is_held_whole = False
    is_login = False

    def __init__(self, state: SessionState) -> None:
        self._state = state

    # -- requests --

    def take(self, data: bytes, position: int, head: RequestHead, now_ms: int) -> Edit | None:
        """Decide whether the request that begins at ``position`` in ``data`` is forwarded now, and how it is edited.

        ``head`` contains the request's size and header, which were already read.

        Returns:
            The edit with which the request is forwarded, or None if it is not forwarded now.
            ``SessionState.blocked_by`` then says what the request waits for, and is None if more of its bytes are
            needed.

        Raises:
            ProtocolError: If the request cannot be read, or is not allowed.
        """
        raise NotImplementedError

    def repeat(
        self, profile: RequestProfile, data: bytes, position: int, size_bytes: int, correlation_id: int, now_ms: int
    ) -> Edit | None:
        """Decide as ``take`` does on a request that has the same head as an earlier request.

        ``profile`` is the profile of the earlier request, which makes it unnecessary to read the head again.
        """
        raise NotImplementedError

    def _profile(
        self,
        data: bytes,
        position: int,
        head: RequestHead,
        *,
        bucket: Bucket,
        charge: RequestCharge | None,
        front_end: int | None,
        acks: int = 1,
    ) -> RequestProfile:
        """Return the profile of a request, and keep it for later requests with the same head.

        ``front_end`` is the offset in ``data`` at which the head ends. If it is None, the profile is not kept.
        """
        profile = RequestProfile(
            self, head.api_key, head.api_version, head.client_id, acks=acks, bucket=bucket, charge=charge
        )
        profile.front_end = (front_end or head.body) - position
        if front_end is not None and profile.front_end <= _MAX_PROFILE_BYTES:
            profile.api = read_i32_be(data, position + 4)
            profile.front = data[position + 12 : front_end]
            profile.generation = self._state.context.quotas.generation
            if head.api_version <= HIGHEST_VERSION[head.api_key]:
                self._state.requests.profile = profile
        return profile

    @property
    def max_kept_bytes(self) -> int:
        """How many bytes of a request may be held in memory while the rest of the request has not arrived."""
        return 2 * MAX_HEAD_BYTES

    # -- responses --

    def charge_response(
        self, profile: RequestProfile, bucket: Bucket, response_bytes: int, data: bytes, position: int, now_ms: int
    ) -> int:
        """Charge ``bucket`` for a response. Returns how many milliseconds the client then has to wait.

        ``response_bytes`` excludes the size prefix. The response begins at ``position`` in ``data``, and may not have
        arrived completely.
        """
        raise NotImplementedError

    def edit_response(self, response: BegunResponse, data: bytes, position: int, now_ms: int) -> Edit | None:
        """Return the edit of a response's throttle time and of brokers' addresses, or None if more bytes are needed.

        Raises:
            ProtocolError: If the response cannot be read.
        """
        profile, frame_bytes, throttle_time_ms, delay_ms, is_exact = response
        edit: Edit = NO_EDIT
        if throttle_time_ms or is_exact:
            throttle = response_edit(
                data, position, frame_bytes, profile.api_key, profile.api_version, throttle_time_ms, is_exact=is_exact
            )
            if throttle is None:
                return None
            edit = throttle
        addressed = self._edit_addresses(response, data, position, edit)
        if addressed is not None and edit and throttle_time_ms and not delay_ms and not is_exact:
            # The response keeps the broker's own throttle time if that is larger, so the client is muted for as long.
            self._state.account.mute(int.from_bytes(edit[2]), now_ms=now_ms)
        return addressed

    def _edit_addresses(self, response: BegunResponse, data: bytes, position: int, edit: Edit) -> Edit | None:
        """Return ``edit`` with the edit of brokers' addresses added, or None if more bytes are needed."""
        profile, frame_bytes = response.profile, response.frame_bytes
        api_key, api_version = profile.api_key, profile.api_version
        context = self._state.context
        addresses = context.addresses
        if addresses is None or api_key not in ADDRESSED:
            return edit
        if api_key not in MOVED:
            front = addresses.change(data, position, api_key, api_version)
            return None if front is None else _with_throttle_time(front, position, edit)
        come_bytes = len(data) - position
        if not may_name_leaders(api_key, api_version):
            return edit
        is_streamed = streams(api_key, frame_bytes, come_bytes)
        if is_streamed:
            if not has_no_endpoints(data, position, frame_bytes, api_key, api_version):
                self._state.responses.hidden = EndpointHider(api_key, api_version)
            return edit
        if is_streamed is None or come_bytes < frame_bytes:
            return None
        return addresses.moved(data, position, frame_bytes, api_key, api_version, edit)

    # -- the end --

    @property
    def charged_bucket(self) -> Bucket | None:
        """A bucket that the handler will charge later, in addition to those of the pending requests, or None."""
        return None

    def release(self) -> None:
        """Hold no request and no response back any more, because the proxy is about to stop throttling."""

    def close(self) -> None:
        """Free what the handler has set aside in the quotas, and wait for nothing, because the connection has ended."""


def _with_throttle_time(front: Edit, position: int, throttle: Edit) -> Edit:
    """Return ``front``, an edit of the first bytes of a response, with the edit of the throttle time included."""
    if not front or not throttle:
        return front
    begin, until, replacement = front
    at = throttle[0] - position
    return begin, until, replacement[:at] + throttle[2] + replacement[at + 4 :]
