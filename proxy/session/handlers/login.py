"""Handles logins: SaslHandshake, SaslAuthenticate, and SASL tokens without a Kafka header (bare tokens).

No other request is forwarded until the broker has answered the login.
"""

from __future__ import annotations

from typing import Final

from kafka_quota_proxy.protocol import sasl
from kafka_quota_proxy.protocol.errors import TokenAfterRefusal
from kafka_quota_proxy.protocol.header import RequestHead
from kafka_quota_proxy.proxy.session.counters import FAILED
from kafka_quota_proxy.proxy.session.frame_edits import NO_EDIT, Edit
from kafka_quota_proxy.proxy.session.handlers.handler import BegunResponse, Handler
from kafka_quota_proxy.proxy.session.in_flight import PendingRequest, RequestProfile
from kafka_quota_proxy.proxy.session.sasl_login import Login, Verdict
from kafka_quota_proxy.proxy.session.state import SessionState

# The api_key in the profile of a bare token, which has no api_key. Bare tokens follow a SaslHandshake v0.
_TOKEN: Final = -1
# Is returned in the place of a token's size if more bytes are needed.
NEEDS_MORE: Final = -1
_RESPONSE_HEAD_BYTES: Final = 8


class LoginHandler(Handler):
    """Handles the logins of one connection. ``login`` holds what was read from them, such as the client's principal."""

    __slots__ = ("_token_profile", "login")

    edits_every_response = True
    is_login = True

    def __init__(self, state: SessionState) -> None:
        super().__init__(state)
        self.login = Login()
        self._token_profile = RequestProfile(self, _TOKEN, 0)
        state.requests.login = self

    # -- requests --

    def take_token(self, data: bytes, position: int) -> int | None:
        """Read a bare token of the client if one is expected. The token is forwarded unchanged.

        Returns:
            The size of the token in bytes. None if the next bytes are a request. ``NEEDS_MORE`` if more bytes are
            needed.

        Raises:
            ProtocolError: If neither a token nor a request is allowed next, or the token cannot be read.
        """
        login = self.login
        if login.is_raw:
            is_request = not login.is_readable and sasl.is_request(data, position)
            if not is_request:
                return NEEDS_MORE if is_request is None else self._pass_token(data, position)
            self._conclude(login.leave_raw())
        elif login.is_refused:
            is_handshake = sasl.is_handshake(data, position)
            if is_handshake is None:
                return NEEDS_MORE
            if not is_handshake:
                raise TokenAfterRefusal("the client sent bytes after a SaslHandshake v0 that the broker refused")
        return None

    def _pass_token(self, data: bytes, position: int) -> int:
        """Read a bare token, and return its size in bytes or ``NEEDS_MORE``."""
        login = self.login
        size_bytes = sasl.read_token_size(data, position)
        if size_bytes is None or position + 4 + size_bytes > len(data):
            return NEEDS_MORE
        token = data[position + 4 : position + 4 + size_bytes]
        login.ask_raw(token, claim=self._state.context.policy.oauthbearer_claim)
        if login.is_readable:  # otherwise the proxy does not know whether the broker answers this token
            self._await_response()
        return size_bytes

    def take(self, data: bytes, position: int, head: RequestHead, now_ms: int) -> Edit | None:
        """Read a SaslHandshake or SaslAuthenticate request, which is forwarded unchanged.

        The first login of a connection is not charged to the quotas on requests, because the client's principal is
        unknown. Later logins are charged, and also a login that the broker does not expect, because the broker charges
        it, too.
        """
        state, login = self._state, self.login
        size_bytes, api_key, api_version, correlation_id, _, body = head
        sasl.check_login_size(size_bytes)
        frame_end = position + 4 + size_bytes
        if frame_end > len(data):
            return None
        charge = None
        may_be_charged = state.account.is_counted or login.principal is not None or login.is_out_of_place
        if may_be_charged and state.context.quotas.limits_requests:
            charge = state.charge_of(head, now_ms)
            if charge is not None and (
                state.requests.is_muted(now_ms) or not state.broker_turn.has_come(charge, size_bytes, now_ms)
            ):
                return None
        claim = state.context.policy.oauthbearer_claim
        login.ask(api_key, api_version, memoryview(data)[body:frame_end], claim=claim)
        if charge is not None:
            state.broker_turn.begin(charge, now_ms)
        profile = RequestProfile(self, api_key, api_version, charge=charge)
        state.in_flight.append(PendingRequest(profile, correlation_id, size_bytes, 0, charge))
        self._await_response()
        return NO_EDIT

    def _await_response(self) -> None:
        state = self._state
        state.hold_requests()
        state.responses.reads_all = True
        state.requests.profile = None  # the next bytes may be a token, or a request of another principal

    @property
    def max_kept_bytes(self) -> int:
        """How many bytes of a login request or token may be held in memory while the rest has not arrived."""
        return 4 + sasl.MAX_LOGIN_BYTES

    # -- responses --

    def begin_token(self, data: bytes, position: int) -> BegunResponse | None:
        """Return a ``BegunResponse`` for a bare token of the broker, or None if its size has not arrived yet."""
        token_bytes = sasl.read_token_size(data, position)
        return None if token_bytes is None else BegunResponse(self._token_profile, 4 + token_bytes, 0, 0)

    def edit_response(self, response: BegunResponse, data: bytes, position: int, now_ms: int) -> Edit | None:
        """Read a whole login response of the broker, or a SASL token without a Kafka header.

        It is forwarded unchanged. Returns an empty edit, or None if more bytes are needed.
        """
        profile, frame_bytes = response.profile, response.frame_bytes
        login = self.login
        sasl.check_login_size(frame_bytes - 4)
        if position + frame_bytes > len(data):
            return None
        frame = memoryview(data)[position : position + frame_bytes]
        if profile.api_key == _TOKEN:
            self._conclude(login.answer_raw(bytes(frame[4:])))
        else:
            verdict = login.answer(profile.api_key, profile.api_version, frame[_RESPONSE_HEAD_BYTES:])
            login.renew(verdict, now_ms=self._state.now_ns // 1_000_000)
            self._conclude(verdict)
        return NO_EDIT

    def _conclude(self, verdict: Verdict) -> None:
        """Let requests be forwarded again after the broker's response, and log the client in if ``verdict`` says so."""
        state, login = self._state, self.login
        state.allow_requests()
        state.responses.reads_all = login.is_raw or state.context.addresses is not None
        if verdict is not Verdict.GOING_ON:
            state.context.counters.login(login.mechanism, verdict.value)
        if verdict in (Verdict.ACCEPTED, Verdict.UNKNOWN) and login.principal is not None:
            state.account.log_in(login.principal)
            if state.context.queue is not None:
                state.context.queue.has_logins = True

    def close(self) -> None:
        """Count a login as failed if the broker has not answered the client's last token."""
        if self.login.is_awaited:
            self._state.context.counters.login(self.login.mechanism, FAILED)
