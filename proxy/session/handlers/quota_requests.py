"""Handles DescribeClientQuotas and AlterClientQuotas.

Depending on the listener's settings, the proxy answers these requests itself or forwards them to the broker.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import Enforcement
from kafka_quota_proxy.protocol.api import API_NAMES, HIGHEST_VERSION
from kafka_quota_proxy.protocol.client_quotas import read_request
from kafka_quota_proxy.protocol.errors import FrameTooLarge, LoginExpired, UnknownVersion
from kafka_quota_proxy.protocol.header import RequestHead
from kafka_quota_proxy.proxy.quota.request_time import NO_TIME
from kafka_quota_proxy.proxy.rules.api import (
    MAX_REFUSED_BYTES,
    MAX_REFUSED_ELEMENTS,
    MAX_REQUEST_BYTES,
    Origin,
    Ticket,
    refusal,
    unauthorized,
)
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.frame_edits import Edit, edited, response_edit
from kafka_quota_proxy.proxy.session.handlers.handler import Handler
from kafka_quota_proxy.proxy.session.request_charge import RequestCharge, longest_wait
from kafka_quota_proxy.proxy.session.state import SessionState

# How soon to look again for a decision. Most connections are woken earlier, when their decision is made.
LOOKS_AGAIN_MS: Final = 1_000


class _Pending(NamedTuple):
    """A request that the proxy itself will answer, once the quota manager has decided on its ticket."""

    ticket: Ticket
    head: RequestHead
    charge: RequestCharge | None


class QuotaRequestHandler(Handler):
    """Handles one connection's requests to describe or alter client quotas, one at a time."""

    __slots__ = ("_is_coming", "_pending")

    is_held_whole = True

    def __init__(self, state: SessionState) -> None:
        super().__init__(state)
        self._pending: _Pending | None = None
        self._is_coming = False  # whether a request has arrived only in part

    def take(self, data: bytes, position: int, head: RequestHead, now_ms: int) -> Edit | None:
        """Answer a request about client quotas, or forward it if the listener has no administrators."""
        state = self._state
        administration = state.context.policy.administration
        if administration is None:
            return state.requests.other.take(data, position, head, now_ms)
        principal, frame_end = state.account.principal, position + 4 + head.size_bytes
        is_admin = principal in administration.admins
        self._check(head, is_admin=is_admin, now_ms=now_ms)
        self._is_coming = frame_end > len(data)
        if self._is_coming or not state.may_answer():
            return None
        charge = state.charge_of(head, now_ms)
        if charge is not None:
            if is_admin:
                # An administrator does not queue for a busy broker, because a change of quotas may help the broker.
                charge = charge._replace(identity=None)
            if state.requests.is_muted(now_ms) or not state.broker_turn.has_come(charge, head.size_bytes, now_ms):
                return None
        frame, head_of_frame = data[position:frame_end], head._replace(body=head.body - position)
        client_id = head.client_id.decode("utf-8", "replace")
        origin = Origin(principal, client_id, state.account.peer_host, administration.listener)
        if is_admin:
            ticket = Ticket(origin, state.owner, frame=frame, head=head_of_frame)
            if administration.handler.submit(ticket):
                self._pending = _Pending(ticket, head, charge)
                state.requests.waiting = self
            state.held_until_ms = now_ms + LOOKS_AGAIN_MS
            state.block(BlockedBy.QUOTA_CHANGE)
            return None
        message = unauthorized(principal)
        answer = refusal(read_request(frame, head_of_frame, most_elements=MAX_REFUSED_ELEMENTS), message)
        administration.handler.refused(origin, message, now_ms)
        state.to_client.append(answer if charge is None else self._charge(charge, head, answer, now_ms))
        return position, frame_end, b""

    def _check(self, head: RequestHead, *, is_admin: bool, now_ms: int) -> None:
        """Raise ``ProtocolError`` if the proxy cannot answer a request about client quotas.

        The reason may be an unknown version, an expired login, or the size of the request.
        """
        size_bytes, api_key, api_version, _, _, _ = head
        login = self._state.requests.login
        if api_version > HIGHEST_VERSION[api_key]:
            raise UnknownVersion(f"version {api_version} of {API_NAMES[api_key]} is neither supported nor offered")
        if login is not None and login.login.has_expired(now_ms=now_ms):
            raise LoginExpired(
                "the login has expired, and the client sent a request about client quotas without a new login"
            )
        if size_bytes > (MAX_REQUEST_BYTES if is_admin else MAX_REFUSED_BYTES):
            raise FrameTooLarge(f"a request of {size_bytes} bytes about client quotas is too long to be held")

    def take_decision(self, now_ms: int) -> int:
        """Answer the waiting request, if the decision has been made.

        Returns:
            The size in bytes of the request that is now answered, or 0 if no request is answered.

        Raises:
            ProtocolError: If the request could not be read.
        """
        state = self._state
        pending = self._pending
        if pending is None:
            return 0
        ticket, head, charge = pending
        if ticket.error is not None:
            raise ticket.error
        if ticket.answer is None:
            state.held_until_ms = now_ms + LOOKS_AGAIN_MS
            state.block(BlockedBy.QUOTA_CHANGE)
            return 0
        self._pending = state.requests.waiting = None
        state.held_until_ms = 0
        answer = ticket.answer
        state.to_client.append(answer if charge is None else self._charge(charge, head, answer, now_ms))
        return 4 + head.size_bytes

    def _charge(self, charge: RequestCharge, head: RequestHead, answer: bytes, now_ms: int) -> bytes:
        """Charge a request that the proxy answers, and return ``answer`` with the throttle time written into it."""
        state = self._state
        account = state.account
        state.broker_turn.begin(charge, now_ms)
        scale = state.context.quotas.request_time_scale
        charges = charge.settle(NO_TIME, head.size_bytes, len(answer) - 4, scale=scale, now_ms=now_ms)
        found = longest_wait(account, charges, now_ms=now_ms)
        state.broker_turn.charge_turn(charge)
        state.broker_turn.leave()
        if found is None:
            return answer
        # The proxy's own answer is not held back. With the enforcement `delay` the client is muted instead.
        wait_ms = account.throttle(*found, now_ms=now_ms, has_answer=False)
        if wait_ms and account.enforcement(found[0]) is Enforcement.RESPOND:
            answer = edited(answer, response_edit(answer, 0, len(answer), head.api_key, head.api_version, wait_ms))
        return answer

    # -- the end --

    @property
    def max_kept_bytes(self) -> int:
        """How many bytes of a request may be held in memory while the rest of the request has not arrived."""
        return 4 + MAX_REQUEST_BYTES if self._is_coming else super().max_kept_bytes

    def close(self) -> None:
        """Drop the pending request about client quotas, because the connection has ended."""
        if self._pending is not None:
            self._pending.ticket.drop()
