"""Reads the principal of a client from the requests and responses of its login, which are forwarded unchanged.

A client asks for a mechanism (SaslHandshake) and then sends its tokens in SaslAuthenticate requests. After a
SaslHandshake v0 it sends them bare: as a size and bytes, without a Kafka header. Of a token, nothing but the user's
name is kept.

A name counts only when the broker's response accepts it:

    PLAIN            a response without an error, or an empty bare token
    SCRAM            a response without an error, and with a token that begins with v= (the verifier)
    OAUTHBEARER      a response without an error and with an empty token. Any other token gives the reason of a failure,
                     and the client answers it once more (RFC 7628)
    any other        a response without an error; the name is then UNKNOWN

The name is also UNKNOWN for a delegation token, and for an OAUTHBEARER token that cannot be read. A failed login does
not change the principal.

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

# A client may name any mechanism, so the label of a metric is one of these names, or OTHER.
_SCRAM: Final = frozenset({sasl.SCRAM_SHA_256, sasl.SCRAM_SHA_512})
_READABLE: Final = _SCRAM | {sasl.PLAIN, sasl.OAUTHBEARER}
_KNOWN: Final = _READABLE | {sasl.GSSAPI}
OTHER: Final = "other"


class Verdict(Enum):
    """What a broker's response means for a login.

    All values except that of ``GOING_ON`` are results of logins that ``Counters.logins`` counts.
    """

    GOING_ON = "going_on"
    ACCEPTED = ACCEPTED
    UNKNOWN = UNKNOWN_USER
    FAILED = FAILED


@dataclass(slots=True, eq=False, repr=False)
class Login:
    """Reads the logins of one connection, one after another.

    Attributes:
        principal: The user that the broker has accepted, or None before the first login is accepted.
        mechanism: The mechanism of the current or last login, as it appears in the label of a metric.
        is_raw: Whether the client and the broker now send bare tokens.
        expires_ms: The time at which the login expires (KIP-368), or None if the broker has set no time.
        is_refused: Whether the broker has refused a SaslHandshake v0. Some clients send a bare token all the same.
        is_out_of_place: Whether the broker said in its last response that it expects no login now.
    """

    principal: str | None = None
    mechanism: str = OTHER
    expires_ms: int | None = None
    is_raw: bool = False
    is_refused: bool = False
    is_out_of_place: bool = False
    _lifetime_ms: int = 0  # the lifetime of the login that the last response has set
    _is_raw_wanted: bool = False
    _has_begun: bool = False  # a token was sent
    _is_awaited: bool = False
    _is_done: bool = False
    _user: str | None = None

    @property
    def is_readable(self) -> bool:
        """Whether the proxy can read tokens of the mechanism, so that it knows which token is the last."""
        return self.mechanism in _READABLE

    @property
    def is_awaited(self) -> bool:
        """Whether the broker has not answered the client's last token yet."""
        return self._is_awaited

    # -- the client's side --

    def ask(self, api_key: int, api_version: int, body: memoryview, *, claim: str) -> None:
        """Read the body of the client's SaslHandshake or SaslAuthenticate request.

        ``claim`` is the name of the claim that contains the user's name in an OAUTHBEARER token.

        Raises:
            ProtocolError: If the body cannot be read.
        """
        if api_key == ApiKey.SASL_HANDSHAKE:
            mechanism = sasl.read_handshake(body)
            self._restart(mechanism if mechanism in _KNOWN else OTHER)
            self._is_raw_wanted = api_version == sasl.RAW_HANDSHAKE
        else:
            self.ask_raw(sasl.read_authenticate(body, api_version), claim=claim)

    def ask_raw(self, token: bytes, *, claim: str) -> None:
        """Read a token of the client, whether it was sent bare or not. For ``claim`` see ``ask``."""
        self._is_awaited = True
        if not self._has_begun:
            # In every mechanism only the first token names the user.
            self._has_begun = True
            self._user = self._user_of(token, claim)

    def leave_raw(self) -> Verdict:
        """Note that the client now sends requests, so that the broker must have accepted its bare tokens."""
        self.is_raw = False
        return self._accept()

    # -- the broker's side --

    def answer(self, api_key: int, api_version: int, body: memoryview) -> Verdict:
        """Read the broker's response to the client's last SaslHandshake or SaslAuthenticate request.

        ``body`` is the response after its correlation id. Returns what the response means for the login.

        Raises:
            PrincipalChanged: If the client has logged in again, as another user. It must not get this response.
            ProtocolError: If the response cannot be read.
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
        """Remember when the login expires. ``verdict`` is what the broker's last response means for the login."""
        lifetime_ms, self._lifetime_ms = self._lifetime_ms, 0
        if lifetime_ms > 0 and verdict is not Verdict.FAILED:
            self.expires_ms = now_ms + lifetime_ms
        elif verdict is Verdict.ACCEPTED:
            self.expires_ms = None

    def has_expired(self, *, now_ms: int) -> bool:
        """Return whether the client's login has expired."""
        return self.expires_ms is not None and now_ms >= self.expires_ms

    def answer_raw(self, token: bytes) -> Verdict:
        """Read a SASL token of the broker that has no Kafka header. Returns what the token means for the login.

        Raises:
            UnexpectedResponse: If the client has sent no token that this token could answer.
            PrincipalChanged: If the client has logged in again, as another user. It must not get this token.
        """
        if not self.is_readable:
            return Verdict.GOING_ON
        if not self._is_awaited:
            raise UnexpectedResponse("a SASL token of the broker answers no token of the client")
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
            # A second login is one of the same user, even if the name cannot be read: the broker checks that.
            self.principal = before or UNKNOWN
            return Verdict.UNKNOWN
        if before not in (None, UNKNOWN, user):
            raise PrincipalChanged("a client logged in again as another user")
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
