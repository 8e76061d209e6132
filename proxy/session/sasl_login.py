"""The principal of a client, read from its login as that passes. Requests and responses in, verdicts out.

A client asks for a mechanism (SaslHandshake) and then sends its tokens, in SaslAuthenticate requests or, behind a
handshake v0, bare. All of them go to the broker, which answers. Nothing is answered or changed here, and nothing of a
token is kept but the name in it.

A name counts only when the broker has accepted it:

    PLAIN            no error (bare: an empty token)
    SCRAM            no error, and a token that begins with v=: the verifier
    OAUTHBEARER      no error, and an empty token: another says why not, and is answered once more (RFC 7628)
    any other        no error; the name is UNKNOWN

The owner of a delegation token and of an opaque web token is UNKNOWN, too. A failed login changes nothing.

Source: ``SaslServerAuthenticator`` in Apache Kafka; KIP-43, KIP-152, KIP-368 (logging in again).
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from kafka_quota_proxy.config.principals import UNKNOWN
from kafka_quota_proxy.protocol import sasl
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.errors import PrincipalChanged, UnexpectedResponse
from kafka_quota_proxy.proxy.session.counters import ACCEPTED, FAILED, UNKNOWN_USER

# The APIs of a login.
LOGIN_APIS: Final = frozenset({int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)})

# Clients choose the name of a mechanism. As a label it is one of these, or OTHER.
_SCRAM: Final = frozenset({sasl.SCRAM_SHA_256, sasl.SCRAM_SHA_512})
_READABLE: Final = _SCRAM | {sasl.PLAIN, sasl.OAUTHBEARER}
_KNOWN: Final = _READABLE | {sasl.GSSAPI}
OTHER: Final = "other"


class Verdict(Enum):
    """The meaning of a broker's response for a login; all values but the first are results in ``Counters.logins``."""

    GOING_ON = "going_on"
    ACCEPTED = ACCEPTED
    UNKNOWN = UNKNOWN_USER
    FAILED = FAILED


@dataclass(slots=True, eq=False, repr=False)
class Login:
    """The logins of one connection, one after another.

    Attributes:
        principal: The user that the broker has accepted; None before that.
        mechanism: Of the current or last login, as a metric's label.
        is_raw: Whether both sides send bare tokens now.
        expires_ms: When the broker's session ends (KIP-368); it closes a connection that sends a request later. None:
            the broker has not said.
        is_refused: Whether the broker has refused bare tokens; some clients send theirs all the same.
        is_out_of_place: Whether the broker's last response was that it expects no login now.
    """

    principal: str | None = None
    mechanism: str = OTHER
    expires_ms: int | None = None
    is_raw: bool = False
    is_refused: bool = False
    is_out_of_place: bool = False
    _lifetime_ms: int = 0  # of the last response
    _is_raw_wanted: bool = False
    _has_begun: bool = False  # a token was sent
    _is_awaited: bool = False
    _is_done: bool = False
    _user: str | None = None

    @property
    def is_readable(self) -> bool:
        """Whether the mechanism's tokens can be read. Otherwise it is unknown which of them is the last."""
        return self.mechanism in _READABLE

    @property
    def is_awaited(self) -> bool:
        """Whether a token of the client has no response yet."""
        return self._is_awaited

    # -- the client's side --

    def ask(self, api_key: int, api_version: int, body: memoryview, *, claim: str) -> None:
        """Take the body of a SaslHandshake or a SaslAuthenticate request; ``claim`` of a web token holds the name.

        Raises:
            ProtocolError: It is no such request.
        """
        if api_key == ApiKey.SASL_HANDSHAKE:
            mechanism = sasl.read_handshake(body)
            self._restart(mechanism if mechanism in _KNOWN else OTHER)
            self._is_raw_wanted = api_version == sasl.RAW_HANDSHAKE
        else:
            self.ask_raw(sasl.read_authenticate(body, api_version), claim=claim)

    def ask_raw(self, token: bytes, *, claim: str) -> None:
        """Take a bare token."""
        self._is_awaited = True
        if not self._has_begun:
            # Only a mechanism's first message names its user.
            self._has_begun = True
            self._user = self._user_of(token, claim)

    def leave_raw(self) -> Verdict:
        """Note that the client sends requests: its bare tokens, which cannot be read, were accepted."""
        self.is_raw = False
        return self._accept()

    # -- the broker's side --

    def answer(self, api_key: int, api_version: int, body: memoryview) -> Verdict:
        """Take the response to ``ask``; ``body`` lies behind its correlation_id.

        Raises:
            PrincipalChanged: The client is another user now; this response must not reach it.
            ProtocolError: It is no such response.
        """
        if api_key == ApiKey.SASL_AUTHENTICATE:
            response = sasl.read_authenticate_response(body, api_version)
            self._lifetime_ms = response.session_lifetime_ms
            self.is_out_of_place = response.error_code == sasl.ILLEGAL_SASL_STATE
            return self._judge(response.error_code, response.token)
        error_code = sasl.read_handshake_error(body)
        self.is_out_of_place = error_code == sasl.ILLEGAL_SASL_STATE
        if error_code:
            is_refused = self._is_raw_wanted and not self.is_out_of_place
            verdict = self._fail()
            self.is_refused = is_refused
            return verdict
        self.is_raw = self._is_raw_wanted
        return Verdict.GOING_ON

    def renew(self, verdict: Verdict, *, now_ms: int) -> None:
        """Note when the session of a verdict ends, which ``answer`` gave just now."""
        lifetime_ms, self._lifetime_ms = self._lifetime_ms, 0
        if lifetime_ms > 0 and verdict is not Verdict.FAILED:
            self.expires_ms = now_ms + lifetime_ms
        elif verdict is Verdict.ACCEPTED:
            self.expires_ms = None

    def has_expired(self, *, now_ms: int) -> bool:
        """Return whether the broker's session has ended."""
        return self.expires_ms is not None and now_ms >= self.expires_ms

    def answer_raw(self, token: bytes) -> Verdict:
        """Take the broker's bare token.

        Raises:
            UnexpectedResponse: It answers no token of the client.
            PrincipalChanged: As for ``answer``.
        """
        if not self.is_readable:
            return Verdict.GOING_ON
        if not self._is_awaited:
            raise UnexpectedResponse("a token of a login answers none of the client's")
        if self.mechanism == sasl.PLAIN and token:
            return self._fail()
        return self._judge(0, token)

    def _judge(self, error_code: int, token: bytes) -> Verdict:
        self._is_awaited = False
        if error_code or (self.mechanism in _SCRAM and sasl.is_scram_failure(token)):
            return self._fail()
        if self.mechanism in _SCRAM and not sasl.is_scram_success(token):
            return Verdict.GOING_ON
        if self.mechanism == sasl.OAUTHBEARER and token:
            self._user = None
            return Verdict.GOING_ON
        return self._accept()

    def _accept(self) -> Verdict:
        if self._is_done:
            return Verdict.GOING_ON
        user, before = self._user, self.principal
        self._restart(self.mechanism)
        self._is_done = self._has_begun = True
        if user is None:
            # A second login is the same user: the broker sees to that even if the name cannot be read.
            self.principal = before or UNKNOWN
            return Verdict.UNKNOWN
        if before not in (None, UNKNOWN, user):
            raise PrincipalChanged("a client that is logged in has logged in again as another user")
        self.principal = user
        return Verdict.ACCEPTED

    def _fail(self) -> Verdict:
        self._restart(self.mechanism)
        return Verdict.FAILED

    def _restart(self, mechanism: str) -> None:
        self.mechanism = mechanism
        self.is_raw = self.is_refused = False
        self._is_raw_wanted = self._has_begun = self._is_awaited = self._is_done = False
        self._user = None

    def _user_of(self, token: bytes, claim: str) -> str | None:
        if self.mechanism == sasl.PLAIN:
            return sasl.plain_user(token)
        if self.mechanism in _SCRAM:
            return sasl.scram_user(token)
        return sasl.oauthbearer_user(token, claim=claim) if self.mechanism == sasl.OAUTHBEARER else None
