"""Makes what a client and a broker send in a dialogue, and the quota rules.

The fuzzer's bytes decide the API, the version and the content.
"""

from struct import pack
from typing import Final

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, QuotaRule
from kafka_quota_proxy.config.principals import Principals
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.session import Session
from kafka_quota_proxy.proxy.session.in_flight import PendingRequest
from tests.fuzz import seeds
from tests.fuzz.source import Source
from tests.support.frames import framed
from tests.support.logins import (
    CLIENT_FINAL,
    CLIENT_FIRST,
    SERVER_FINAL,
    SERVER_FIRST,
    authenticate_request,
    authenticate_response,
    bearer,
    handshake_request,
    handshake_response,
    web_token,
)

PASSWORD: Final = b"a-password-that-nobody-may-see"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI", "SCRAM-SHA-512", "X" * 40)
_CLIENT_TOKENS: Final = (
    b"\0alice\0" + PASSWORD,
    CLIENT_FIRST,
    CLIENT_FINAL,
    bearer(web_token({"sub": "alice", "password": PASSWORD.decode()})),
    b"\x60\x82ticket",
    b"",
    b"\x01",
    CLIENT_FIRST + b",tokenauth=true",
    b"\0kafka\0" + PASSWORD,
)
_BROKER_TOKENS: Final = (b"", SERVER_FINAL, SERVER_FIRST, b"e=other-error", b"\x60\x81reply", b'{"status":"invalid"}')
# The beginnings of requests that the session buffers until more bytes arrive. In order they are no bytes, a header, a
# login and a follower's fetch.
ENDLESS: Final = (
    b"",
    pack(">ihhihBBI", 100_000_000, 0, 9, 7, 0, 2, 0, 0xFFFFFF7F),
    pack(">ihhihi", 520_000, 36, 1, 7, 0, 519_000),
    pack(">ihhih", 8_000_000, 1, 11, 7, 0),
)
WAITS_MS: Final = (1, 40, 999, 1_000, 12_000, 90_000, 4_000_000)
_LIMITS: Final = (None, 0.5, 700.0, 50_000.0, 1e12)
_REQUEST_LIMITS: Final = (None, 0.5, 1_000.0)
PRINCIPALS: Final = Principals(brokers=frozenset({"kafka"}), exempt=frozenset({"user"}))


class ClientMessages:
    """Makes the requests of one client. Each has the next correlation id."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._next_id = 1

    def request(self, api_keys: tuple[int, ...] = seeds.API_KEYS) -> bytes:
        """Return a valid request of one of the APIs."""
        source = self._source
        api_key = api_keys[source.below(len(api_keys))]
        version = source.below(seeds.versions(api_key))
        choice = source.byte()
        frame = seeds.request(api_key, version, choice & 3, (choice >> 2) & 3)
        self._next_id += 1
        return frame[:8] + pack(">i", self._next_id) + frame[12:]

    def login(self, session: Session) -> bytes:
        """Return a step of a login on the session's connection: a handshake or a token."""
        source = self._source
        choice = source.byte()
        login = session._requests.login
        self._next_id += 1
        if choice & 1:
            mechanism = MECHANISMS[source.below(len(MECHANISMS))]
            return handshake_request(mechanism, version=choice >> 1 & 1, correlation_id=self._next_id)
        token = _CLIENT_TOKENS[source.below(len(_CLIENT_TOKENS))]
        if login is not None and login.login.is_raw:
            return framed(token)
        return authenticate_request(token, version=(choice >> 1) % 4, correlation_id=self._next_id)


def right_answer(session: Session, variant: int = 1) -> bytes:
    """Return a valid response to the oldest request in flight, or a raw SASL token if no request is in flight."""
    if not session.state.in_flight:
        return framed(_BROKER_TOKENS[variant % len(_BROKER_TOKENS)])
    return answer_to(session.state.in_flight[0], variant)


def answer_to(oldest: PendingRequest, variant: int = 1) -> bytes:
    """Return a valid response to a request."""
    correlation_id, api_key, version = oldest.correlation_id, oldest.profile.api_key, oldest.profile.api_version
    if api_key == ApiKey.SASL_HANDSHAKE:
        return handshake_response(error_code=33 if variant == 3 else 0, correlation_id=correlation_id)
    if api_key == ApiKey.SASL_AUTHENTICATE:
        token = _BROKER_TOKENS[variant % len(_BROKER_TOKENS)]
        return authenticate_response(
            token, error_code=58 if variant == 3 else 0, version=version, correlation_id=correlation_id
        )
    # A request of an unknown version gets a response of the newest known version.
    frame = seeds.response(api_key, min(version, seeds.versions(api_key)), variant % seeds.VARIANTS)
    return frame[:4] + pack(">i", correlation_id) + frame[8:]


def quota_rules(source: Source) -> tuple[QuotaRule, ...]:
    """Return no rule, or one with the limits and the enforcement that the source decides."""
    choice = source.byte()
    if choice < 64:
        return ()
    produce, fetch = _LIMITS[choice % 5], _LIMITS[choice // 5 % 5]
    requests, percentage = _REQUEST_LIMITS[choice % 3], _REQUEST_LIMITS[choice // 7 % 3]
    enforcement = (None, None, *Enforcement)[source.below(5)]
    client_id = ("etl", DEFAULT)[choice & 1]
    if produce is None and fetch is None and requests is None and percentage is None:
        return ()
    return (
        QuotaRule(
            user=DEFAULT if choice >= 160 else None,
            client_id=client_id,
            producer_byte_rate=produce,
            consumer_byte_rate=fetch,
            request_rate=requests,
            request_percentage=percentage,
            enforcement=enforcement,
        ),
    )


def delays(rules: tuple[QuotaRule, ...]) -> bool:
    """Return whether a rule delays responses."""
    return any(rule.enforcement is Enforcement.DELAY for rule in rules)
