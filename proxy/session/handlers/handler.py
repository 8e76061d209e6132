"""The interface of a handler, and the edits that any response may need."""

from __future__ import annotations

from typing import NamedTuple

from kafka_quota_proxy.protocol.header import MAX_HEAD_BYTES, RequestHead
from kafka_quota_proxy.protocol.node_endpoints import EndpointHider
from kafka_quota_proxy.protocol.throttle_time import client_throttles_itself
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.session.address_rewrite import ADDRESSED, MOVED, may_name_leaders, streams
from kafka_quota_proxy.proxy.session.frame_edits import NO_EDIT, Edit, response_edit
from kafka_quota_proxy.proxy.session.in_flight import RequestProfile
from kafka_quota_proxy.proxy.session.state import SessionState


class BegunResponse(NamedTuple):
    """A response that has begun and was charged, and of which more is needed before it can pass.

    Attributes:
        profile: Of its request.
        frame_bytes: Its length, with the size prefix.
        wait_ms: The throttle time that it tells.
        is_delayed: Whether it is held for that long.
    """

    profile: RequestProfile
    frame_bytes: int
    wait_ms: int
    is_delayed: bool


class Handler:
    """Handles the requests of one family of APIs on one connection.

    Attributes:
        charges_responses: The size of a response is charged to the profile's bucket.
        edits_every_response: ``edit_response`` sees every response, and not only those that carry a throttle time.
        is_held_whole: A response is collected whole before it is edited, however long it is.
        is_login: Its requests are part of a login.
    """

    __slots__ = ("_state",)

    charges_responses = False
    edits_every_response = False
    is_held_whole = False
    is_login = False

    def __init__(self, state: SessionState) -> None:
        self._state = state

    @classmethod
    def is_needed(cls, state: SessionState, head: RequestHead) -> bool:
        """Return whether a request needs this handler on this listener; else it passes as any other."""
        return True

    # -- requests --

    def take(self, data: bytes, position: int, head: RequestHead, now_ms: int) -> Edit | None:
        """Decide on a request whose head has been read, and whose size is at ``position`` in the client's ``data``.

        Returns:
            The edit with which it passes; None: it does not pass now. Either the state is blocked then, or more bytes
            are needed.

        Raises:
            ProtocolError: It is no such request.
        """
        raise NotImplementedError

    def repeat(
        self, profile: RequestProfile, data: bytes, position: int, size_bytes: int, correlation_id: int, now_ms: int
    ) -> Edit | None:
        """Decide on a request whose head is that of ``profile``; as ``take``."""
        raise NotImplementedError

    @property
    def max_kept_bytes(self) -> int:
        """How much of a request may be kept before its rest has come."""
        return 2 * MAX_HEAD_BYTES

    # -- responses --

    def charge_response(self, profile: RequestProfile, bucket: Bucket, response_bytes: int, now_ms: int) -> int:
        """Charge ``bucket`` for a response, if ``charges_responses``; return its wait in milliseconds."""
        raise NotImplementedError

    def edit_response(self, response: BegunResponse, data: bytes, position: int, now_ms: int) -> Edit | None:
        """Return the edit of a response: its throttle time, and the addresses that it names; None: more is needed.

        Raises:
            ProtocolError: It is no response to its request.
        """
        profile, frame_bytes, wait_ms, is_delayed = response
        edit: Edit = NO_EDIT
        if wait_ms:
            told_ms = 0 if is_delayed and client_throttles_itself(profile.api_key, profile.api_version) else wait_ms
            throttle = response_edit(data, position, frame_bytes, profile.api_key, profile.api_version, told_ms)
            if throttle is None:
                return None
            edit = throttle
        addressed = self._edit_addresses(response, data, position, edit)
        if addressed is not None and edit and wait_ms and not is_delayed:
            # If the broker's own throttle time is larger, the client was told that one.
            self._state.account.mute(int.from_bytes(edit[2]), now_ms=now_ms)
        return addressed

    def _edit_addresses(self, response: BegunResponse, data: bytes, position: int, edit: Edit) -> Edit | None:
        """Return ``edit`` with the brokers' addresses replaced, on a listener whose clients come to this proxy only."""
        profile, frame_bytes, _, _ = response
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
        if streams(api_key, frame_bytes, come_bytes):
            self._state.responses.hidden = EndpointHider(api_key, api_version)
            return edit
        if come_bytes < frame_bytes:
            return None
        return addresses.moved(data, position, frame_bytes, api_key, api_version, edit)

    # -- the end --

    @property
    def charged_bucket(self) -> Bucket | None:
        """A bucket whose charge is still to be settled, besides those of pending requests."""
        return None

    def release(self) -> None:
        """Hold nothing back from now on."""

    def close(self) -> None:
        """Give back what is held: the connection has ended."""


def _with_throttle_time(front: Edit, position: int, throttle: Edit) -> Edit:
    """Return the edit of a response's front, with the throttle time, which lies in it, edited as well."""
    if not front or not throttle:
        return front
    begin, until, replacement = front
    at = throttle[0] - position
    return begin, until, replacement[:at] + throttle[2] + replacement[at + 4 :]
