"""SaslHandshake, SaslAuthenticate and bare tokens: no request passes behind them until they are answered."""

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

# In the place of an api_key: a bare token of the broker, behind a SaslHandshake v0.
_TOKEN: Final = -1
# In the place of a token's size.
NEEDS_MORE: Final = -1
_RESPONSE_HEAD_BYTES: Final = 8


class LoginHandler(Handler):
    """Handles the logins of one connection.

    Attributes:
        login: What has been read of them.
    """

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
        """Read a bare token if the client is to send one; it passes as it is.

        Returns:
            The token's size in bytes; ``NEEDS_MORE``: its rest has not come; None: a request comes instead.

        Raises:
            ProtocolError: It may be neither.
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
                raise TokenAfterRefusal("it sent on behind a SaslHandshake v0 that the broker has refused")
        return None

    def _pass_token(self, data: bytes, position: int) -> int:
        """Pass a bare token. Whether a token that cannot be read will be answered is unknown."""
        login = self.login
        size_bytes = sasl.read_token_size(data, position)
        if size_bytes is None or position + 4 + size_bytes > len(data):
            return NEEDS_MORE
        token = data[position + 4 : position + 4 + size_bytes]
        login.ask_raw(token, claim=self._state.context.policy.oauthbearer_claim)
        if login.is_readable:
            self._await_response()
        return size_bytes

    def take(self, data: bytes, position: int, head: RequestHead, now_ms: int) -> Edit | None:
        """See ``Handler``.

        A broker that wants no login charges it as any other request; its response tells. A connection that may still be
        at its first login has no bucket: its principal is unknown, and ANONYMOUS would take one.
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
            charge = state.requests.charge_of(head, now_ms)
            state.requests.release_stale_buckets(now_ms)
            if state.requests.is_muted(now_ms) or not state.broker_turn.has_come(charge, size_bytes, now_ms):
                return None
        claim = state.context.policy.oauthbearer_claim
        login.ask(api_key, api_version, memoryview(data)[body:frame_end], claim=claim)
        if charge is not None:
            charge.begin()
        profile = RequestProfile(self, api_key, api_version, charge=charge)
        state.in_flight.append(PendingRequest(profile, correlation_id, size_bytes, 0, charge))
        self._await_response()
        return NO_EDIT

    def _await_response(self) -> None:
        state = self._state
        state.in_flight.hold()
        state.responses.reads_all = True
        state.requests.profile = None  # the next request is a token, or another principal's

    @property
    def max_kept_bytes(self) -> int:
        """See ``Handler``."""
        return 4 + sasl.MAX_LOGIN_BYTES

    # -- responses --

    def begin_token(self, data: bytes, position: int) -> BegunResponse | None:
        """Return the broker's bare token as a response; None: its size has not come."""
        token_bytes = sasl.read_token_size(data, position)
        return None if token_bytes is None else BegunResponse(self._token_profile, 4 + token_bytes, 0, is_delayed=False)

    def edit_response(self, response: BegunResponse, data: bytes, position: int, now_ms: int) -> Edit | None:
        """Read the response, which passes as it is; as ``Handler``."""
        profile, frame_bytes, _, _ = response
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
        """Go on after the broker's response, as the principal that it has accepted."""
        state, login = self._state, self.login
        state.in_flight.open()
        state.responses.reads_all = login.is_raw or state.context.addresses is not None
        if verdict is not Verdict.GOING_ON:
            state.context.counters.login(login.mechanism, verdict.value)
        if verdict in (Verdict.ACCEPTED, Verdict.UNKNOWN) and login.principal is not None:
            state.account.log_in(login.principal)

    def close(self) -> None:
        """See ``Handler``."""
        if self.login.is_awaited:
            self._state.context.counters.login(self.login.mechanism, FAILED)
