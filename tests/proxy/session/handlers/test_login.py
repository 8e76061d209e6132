"""Tests logins through a session: which user is charged, what waits or is refused, and that no secret is kept."""

import gc
import logging
from collections.abc import Callable, Iterator

import pytest

from kafka_quota_proxy.config.model import DEFAULT, QuotaRule
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.protocol.errors import (
    FrameTooLarge,
    LoginTooLarge,
    PrincipalChanged,
    ProtocolError,
    TokenAfterRefusal,
)
from kafka_quota_proxy.protocol.sasl import MAX_LOGIN_BYTES
from kafka_quota_proxy.proxy.quota.entity import Tags
from tests.support.frames import (
    api_versions_response,
    fetch_request,
    fetch_response,
    framed,
    other_request,
    produce_request,
    produce_response,
)
from tests.support.logins import (
    EMPTY,
    GSSAPI,
    READABLE,
    SASL_AUTHENTICATION_FAILED,
    UNSUPPORTED_SASL_MECHANISM,
    Dialogue,
    authenticate_request,
    authenticate_response,
    bearer,
    handshake_request,
    handshake_response,
    oauthbearer,
    plain,
    rounds,
    scram,
    web_token,
)
from tests.support.wire import Wire

ALICE = QuotaRule(user="alice", producer_byte_rate=500.0, consumer_byte_rate=500.0)
USERS = QuotaRule(user=DEFAULT, producer_byte_rate=1e9, consumer_byte_rate=1e9)
WAYS = [
    (0, 0),
    (1, 0),
    (1, 1),
    (1, 2),
]  # versions of SaslHandshake and SaslAuthenticate, which is not used after SaslHandshake v0
DIALOGUES = [*READABLE, GSSAPI]


def log_in(wire: Wire, dialogue: Dialogue, *, handshake: int = 1, version: int = 1) -> None:
    for asked, told in rounds(dialogue, handshake=handshake, version=version):
        assert wire.client(asked) == asked
        assert wire.broker(told) == told


def users(wire: Wire) -> set[str]:
    return {bucket.tags.user for bucket in wire.listening.quotas.produce}


def pay(wire: Wire, correlation_id: int = 9) -> str:
    """Send a Produce request. Return the user that is charged."""
    request = produce_request(correlation_id)
    assert wire.client(request) == request
    wire.broker(produce_response(correlation_id))
    return str(wire.session.account.bucket(QuotaKind.PRODUCE, b"etl", wire.now_ms).tags.user)


# -- which user is charged


@pytest.mark.parametrize("dialogue", DIALOGUES, ids=lambda dialogue: dialogue.mechanism)
@pytest.mark.parametrize(("handshake", "version"), WAYS)
def test_login_is_forwarded_unchanged_and_its_user_is_charged(dialogue: Dialogue, handshake: int, version: int) -> None:
    wire = Wire(ALICE, USERS)

    log_in(wire, dialogue, handshake=handshake, version=version)

    assert pay(wire) == dialogue.user
    assert wire.session.is_idle


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def test_requests_before_a_login_charge_the_old_principal() -> None:
    wire = Wire(ALICE, USERS)
    wire.client(fetch_request(5), handshake_request("PLAIN"))
    anonymous = wire.session.account.bucket(QuotaKind.FETCH, b"etl", wire.now_ms)

    wire.broker(fetch_response(5, size_bytes=900), handshake_response())
    wire.client(authenticate_request(b"\0alice\0secret"))
    wire.broker(authenticate_response())

    assert (anonymous.tags.user, anonymous.usage.amount) == ("ANONYMOUS", 900)
    assert wire.bucket("fetch").usage.amount == 0
    assert wire.bucket("fetch").tags.user == "alice"


# -- before the broker accepts the login


@pytest.mark.parametrize("dialogue", READABLE, ids=lambda dialogue: dialogue.mechanism)
def test_failed_login_leaves_no_principal_and_no_bucket(dialogue: Dialogue) -> None:
    wire = Wire(ALICE, USERS)
    *before, (last, _) = rounds(dialogue)
    for asked, told in before:
        wire.client(asked)
        wire.broker(told)
    wire.client(last)
    refusal = authenticate_response(error_code=SASL_AUTHENTICATION_FAILED)

    assert wire.broker(refusal) == refusal

    assert wire.session.account.principal == "ANONYMOUS"
    assert users(wire) == set()
    assert wire.listening.counters.logins == {(dialogue.mechanism, "failed"): 1}


@pytest.mark.parametrize(("error_code", "version"), [(33, 1), (34, 0), (34, 1)])
def test_a_handshake_that_is_refused_changes_nothing(error_code: int, version: int) -> None:
    """Error 34 (ILLEGAL_SASL_STATE) means that the broker wants no login on this listener, so no token follows."""
    wire = Wire(USERS)
    wire.client(handshake_request("PLAIN", version=version))
    refusal = handshake_response(error_code=error_code)

    assert wire.broker(refusal) == refusal

    assert pay(wire) == "ANONYMOUS"


# -- what a client sends ahead


@pytest.mark.parametrize("whole", [True, False])
def test_a_bare_token_behind_a_refusal_is_not_read_as_a_request(whole: bool) -> None:
    """Otherwise the password of a client that does not wait would be read as a header, and logged."""
    wire = Wire(ALICE)
    refusal = handshake_response(error_code=UNSUPPORTED_SASL_MECHANISM)
    wire.client(handshake_request("PLAIN", version=0))
    wire.broker(refusal)
    token = framed(b"\0alice\0marked-secret")

    with pytest.raises(TokenAfterRefusal) as refused:
        wire.client(*([token] if whole else [token[:5], token[5:]]))

    assert wire.session.state.to_broker == []
    assert "marked" not in str(refused.value)
    assert wire.listening.counters.unknown_apis == {}


def test_another_handshake_may_follow_a_refusal() -> None:
    wire = Wire(ALICE)
    wire.client(handshake_request("GSSAPI", version=0))
    wire.broker(handshake_response(error_code=UNSUPPORTED_SASL_MECHANISM))

    for piece in (handshake_request("PLAIN", version=0)[:5], handshake_request("PLAIN", version=0)[5:]):
        wire.client(piece)
    wire.broker(handshake_response())
    wire.client(framed(b"\0alice\0secret"))
    wire.broker(framed(b""))

    assert pay(wire) == "alice"


@pytest.mark.parametrize("dialogue", READABLE, ids=lambda dialogue: dialogue.mechanism)
@pytest.mark.parametrize("handshake", [0, 1])
def test_nothing_is_forwarded_behind_an_unanswered_login(dialogue: Dialogue, handshake: int) -> None:
    wire = Wire(USERS)
    parts = rounds(dialogue, handshake=handshake)
    ahead = produce_request(9) + fetch_request(10)

    passed = [wire.client(b"".join(asked for asked, _ in parts) + ahead)]
    for _, told in parts:
        assert wire.session.state.blocked_by is not None
        assert wire.session.needs.wake_at_ms <= wire.now_ms  # the session waits for a response, and not for a time
        assert wire.broker(told) == told
        passed.append(wire.to_broker())

    assert passed == [*(asked for asked, _ in parts), ahead]
    wire.broker(produce_response(9), fetch_response(10))
    assert users(wire) == {dialogue.user}


def test_half_close_behind_a_bare_token_is_answered_first() -> None:
    wire = Wire(USERS)
    for asked, told in rounds(plain("alice"), handshake=0)[:1]:
        wire.client(asked)
        wire.broker(told)
    wire.client(framed(b"\0alice\0secret"))

    wire.session.receive_end_from_client()

    assert not wire.session.is_idle
    assert wire.broker(framed(EMPTY)) == framed(EMPTY)
    assert wire.session.is_idle


@pytest.mark.parametrize("answered", [True, False])
def test_kerberos_tokens_are_forwarded_without_an_answer(answered: bool) -> None:
    """The last bare token has no response, and the proxy does not know which token is the last."""
    wire = Wire(USERS)
    for asked, told in rounds(GSSAPI, handshake=0):
        assert wire.client(asked) == asked
        if told != framed(EMPTY) or answered:
            wire.broker(told)

    assert pay(wire) == "UNKNOWN"


# -- a second login


@pytest.mark.parametrize("dialogue", [plain("bob"), scram("bob"), oauthbearer("bob")], ids=lambda one: one.mechanism)
@pytest.mark.parametrize("handshake", [0, 1])
def test_second_login_as_another_user_closes_the_connection(dialogue: Dialogue, handshake: int) -> None:
    wire = Wire(ALICE, USERS)
    log_in(wire, plain("alice"))
    *before, (last, told) = rounds(dialogue, handshake=handshake)
    for asked, answer in before:
        wire.client(asked)
        wire.broker(answer)
    wire.client(last, produce_request(9))

    with pytest.raises(PrincipalChanged):
        wire.broker(told)

    assert wire.to_client() == b""
    assert wire.to_broker() == b""
    assert wire.session.account.principal == "alice"
    assert users(wire) <= {"alice"}


# -- bounds


@pytest.mark.parametrize("over", [0, 1])
def test_a_login_may_have_512_kib(over: int) -> None:
    wire = Wire(USERS)
    wire.client(handshake_request("OAUTHBEARER"))
    wire.broker(handshake_response())
    overhead = len(authenticate_request(b"")) - 4
    token = b"n,,\x01auth=Bearer x\x01" + bytes(MAX_LOGIN_BYTES - overhead)
    request = authenticate_request(token[: MAX_LOGIN_BYTES - overhead + over])

    if over:
        with pytest.raises(LoginTooLarge):
            wire.client(request[:100])
    else:
        assert wire.client(*cut(request, 65_536)) == request
        wire.broker(authenticate_response())
        assert pay(wire) == "UNKNOWN"


@pytest.mark.parametrize("over", [0, 1])
def test_a_bare_token_may_have_512_kib(over: int) -> None:
    wire = Wire(USERS)
    wire.client(handshake_request("OAUTHBEARER", version=0))
    wire.broker(handshake_response())
    token = framed(bytes(MAX_LOGIN_BYTES + over))

    if over:
        with pytest.raises(LoginTooLarge):
            wire.client(token[:5])
    else:
        assert wire.client(*cut(token, 65_536)) == token


def test_a_listener_that_bounds_frames_bounds_logins() -> None:
    wire = Wire(max_frame_size_bytes=1_000)

    with pytest.raises(FrameTooLarge):
        wire.client(authenticate_request(bytes(2_000)))


def test_a_brokers_answer_to_a_login_is_bounded() -> None:
    wire = Wire()
    wire.client(authenticate_request(b"token"))

    with pytest.raises(LoginTooLarge):
        wire.broker(authenticate_response(bytes(MAX_LOGIN_BYTES))[:100])


# -- violations and garbage


@pytest.mark.parametrize("handshake", [1, None])
def test_bare_token_outside_a_login_is_refused(handshake: int | None) -> None:
    wire = Wire()
    if handshake is not None:
        log_in(wire, plain("alice"), handshake=handshake)

    assert wire.broker(framed(EMPTY)) == b""  # this may be the start of a longer frame
    with pytest.raises(ProtocolError):
        wire.broker(bytes(8))


# -- counters


def test_logins_are_counted_by_mechanism_and_result() -> None:
    wire = Wire()
    log_in(wire, plain("alice"))
    log_in(wire, plain("alice"), handshake=0)
    log_in(wire, GSSAPI)
    wire.client(handshake_request("MINE"))
    wire.broker(handshake_response(error_code=33))

    counters = wire.listening.counters
    assert counters.logins == {
        ("PLAIN", "accepted"): 2,
        ("GSSAPI", "unknown"): 1,
        ("other", "failed"): 1,
    }
    assert counters.newly_unknown == {"GSSAPI"}


@pytest.mark.parametrize("handshake", [0, 1])
def test_a_login_that_ends_with_its_connection_has_failed(handshake: int) -> None:
    """A broker refuses a bare token by closing the connection without a response."""
    wire = Wire()
    *_, (asked, _) = rounds(plain("alice"), handshake=handshake)
    wire.client(handshake_request("PLAIN", version=handshake))
    wire.broker(handshake_response())
    wire.client(asked)

    wire.session.close(now_ms=wire.now_ms, has_passed=False)

    assert wire.listening.counters.logins == {("PLAIN", "failed"): 1}


# -- secrets


MARK = "m4rk3d"
SECRETS = {
    "PLAIN": f"\0alice\0{MARK}".encode(),
    "OAUTHBEARER": bearer(web_token({"sub": "alice", "jti": "x"}) + MARK),
    "SCRAM-SHA-256": f"n,,n=alice,r={MARK}".encode(),
    "GSSAPI": f"\x60{MARK}".encode(),
}


@pytest.mark.parametrize("mechanism", SECRETS)
@pytest.mark.parametrize("handshake", [0, 1])
@pytest.mark.parametrize("end", ["accepted", "refused", "garbage", "again"])
def test_no_part_of_a_secret_is_logged_or_kept(
    mechanism: str, handshake: int, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wire = Wire(ALICE, USERS)
    secret = SECRETS[mechanism]
    raised: Exception | None = None
    try:
        if end == "again":
            log_in(wire, plain("bob"))
        wire.client(handshake_request(mechanism, version=handshake))
        wire.broker(handshake_response())
        wire.client(*cut(framed(secret) if handshake == 0 else authenticate_request(secret), 11))
        if end == "refused":
            wire.broker(authenticate_response(error_code=58))
        elif end == "garbage":
            wire.broker(b"\xff" * 20)
        else:
            final = b"v=x" if mechanism.startswith("SCRAM") else EMPTY
            wire.broker(framed(final) if handshake == 0 else authenticate_response(final))
    except ProtocolError as error:
        raised = error

    shown = [repr(wire.session), repr(wire.session._requests.login), repr(raised), str(raised), caplog.text]
    shown += [repr(value) for value in everything_under(wire)]
    assert MARK not in "".join(shown)
    assert "alice" not in repr(wire.session._requests.login)


def everything_under(wire: Wire) -> Iterator[object]:
    """Yield all strings and bytes that the session, or the context that it shares with others, refers to."""
    seen: set[int] = set()
    todo: list[object] = [wire.session, wire.listening]
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, type) or callable(one):
            continue
        seen.add(id(one))
        if isinstance(one, str | bytes | bytearray | memoryview):
            yield bytes(one) if isinstance(one, memoryview) else one
        else:
            todo += gc.get_referents(one)


# -- the user of a connection in the connection quota --


def open_now(wire: Wire) -> dict[Tags, int]:
    return wire.listening.quotas.connections.open_now()


def test_connection_counts_for_its_principal_from_its_first_request() -> None:
    wire = Wire(QuotaRule(user=DEFAULT, connections=5))

    wire.client(other_request(1, api_key=18, version=0))
    wire.broker(api_versions_response(1))
    log_in(wire, plain("alice"))
    assert open_now(wire) == {}
    wire.client(other_request(8))

    assert open_now(wire) == {("alice", ""): 1}
    wire.broker(framed(b"\0\0\0\x08"))
    log_in(wire, plain("alice"))
    pay(wire)
    assert open_now(wire) == {("alice", ""): 1}
    wire.session.close(now_ms=wire.now_ms, has_passed=True)
    assert open_now(wire) == {}


@pytest.mark.parametrize("request_of", [other_request, produce_request, fetch_request])
def test_connection_over_the_limit_forwards_only_earlier_requests(request_of: Callable[[int], bytes]) -> None:
    wire = Wire(QuotaRule(client_id=DEFAULT, connections=0))
    first = other_request(1, api_key=18, version=0)

    assert wire.client(first + request_of(2) + request_of(3)) == first
    assert wire.client(request_of(4)) == b""

    session = wire.session
    assert session.state.blocked_by is not None
    assert "has 0 connections open, and a rule allows 0" in session.account.refusal
    session.release(now_ms=wire.now_ms)
    assert wire.to_broker() == b""
    assert session.needs.wake_at_ms == 0
    session.close(now_ms=wire.now_ms, has_passed=True)
    assert open_now(wire) == {}
