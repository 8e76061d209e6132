"""Tests when a login counts, by the client's tokens and the broker's responses, and which user it gives."""

import pytest

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.errors import UnexpectedResponse
from kafka_quota_proxy.protocol.header import read_request_head
from kafka_quota_proxy.proxy.session.sasl_login import Login, Verdict
from tests.support.logins import (
    EMPTY,
    GSSAPI,
    READABLE,
    SASL_AUTHENTICATION_FAILED,
    SERVER_FINAL,
    SERVER_FIRST,
    Dialogue,
    authenticate_request,
    authenticate_response,
    bearer,
    handshake_request,
    handshake_response,
    oauthbearer,
    plain,
    scram,
    web_token,
)

HANDSHAKE, AUTHENTICATE = int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)
CHALLENGE = b'{"status":"invalid_token"}'


def body_of(request: bytes) -> memoryview:
    head = read_request_head(request, 0, 1_000_000)
    assert head is not None
    return memoryview(request)[head.body :]


def shake_hands(login: Login, mechanism: str, *, version: int = 1, error_code: int = 0) -> Verdict:
    request = handshake_request(mechanism, version=version)
    login.ask(HANDSHAKE, version, body_of(request), claim="sub")
    return login.answer(HANDSHAKE, version, memoryview(handshake_response(error_code=error_code))[8:])


def say(login: Login, asked: bytes, told: bytes = EMPTY, *, error_code: int = 0, version: int = 1) -> Verdict:
    """Exchange a pair of tokens. After a handshake v0 they are bare tokens."""
    if login.is_raw:
        login.ask_raw(asked, claim="sub")
        return login.answer_raw(told)
    login.ask(AUTHENTICATE, version, body_of(authenticate_request(asked, version=version)), claim="sub")
    response = authenticate_response(told, error_code=error_code, version=version)
    return login.answer(AUTHENTICATE, version, memoryview(response)[8:])


def log_in(login: Login, dialogue: Dialogue, *, handshake: int = 1, version: int = 1) -> list[Verdict]:
    verdicts = [shake_hands(login, dialogue.mechanism, version=handshake)]
    return verdicts + [say(login, asked, told, version=version) for asked, told in dialogue.tokens]


@pytest.mark.parametrize("dialogue", READABLE, ids=lambda dialogue: dialogue.mechanism)
@pytest.mark.parametrize(("handshake", "version"), [(0, 0), (1, 0), (1, 1), (1, 2)])
def test_user_counts_once_the_broker_accepts_the_login(dialogue: Dialogue, handshake: int, version: int) -> None:
    login = Login()
    assert shake_hands(login, dialogue.mechanism, version=handshake) is Verdict.GOING_ON
    assert login.is_raw is (handshake == 0)

    for asked, told in dialogue.tokens[:-1]:
        assert say(login, asked, told, version=version) is Verdict.GOING_ON
        assert login.principal is None
    last = say(login, *dialogue.tokens[-1], version=version)

    assert (last, login.principal) == (Verdict.ACCEPTED, dialogue.user)
    assert (login.is_raw, login.is_awaited, login.mechanism) == (False, False, dialogue.mechanism)


def test_the_claim_is_the_listeners() -> None:
    login = Login()
    shake_hands(login, "OAUTHBEARER")
    request = authenticate_request(bearer(web_token({"sub": "7f3a", "client_id": "etl"})))

    login.ask(AUTHENTICATE, 1, body_of(request), claim="client_id")
    login.answer(AUTHENTICATE, 1, memoryview(authenticate_response())[8:])

    assert login.principal == "etl"


@pytest.mark.parametrize("dialogue", READABLE, ids=lambda dialogue: dialogue.mechanism)
def test_failed_login_has_no_user(dialogue: Dialogue) -> None:
    for failing in range(len(dialogue.tokens)):
        login = Login()
        shake_hands(login, dialogue.mechanism)
        for asked, told in dialogue.tokens[:failing]:
            say(login, asked, told)

        verdict = say(login, dialogue.tokens[failing][0], error_code=SASL_AUTHENTICATION_FAILED)

        assert (verdict, login.principal, login.is_awaited) == (Verdict.FAILED, None, False)


@pytest.mark.parametrize("handshake", [0, 1])
def test_challenge_to_a_bearer_token_is_never_a_success(handshake: int) -> None:
    login = Login()
    shake_hands(login, "OAUTHBEARER", version=handshake)
    token = oauthbearer("alice").tokens[0][0]

    assert say(login, token, CHALLENGE) is Verdict.GOING_ON
    say(login, b"\x01", EMPTY)

    assert login.principal != "alice"


def test_bare_plain_response_must_be_empty() -> None:
    login = Login()
    shake_hands(login, "PLAIN", version=0)

    assert say(login, b"\0alice\0secret", b"no") is Verdict.FAILED
    assert login.principal is None


def test_bare_token_of_the_broker_that_answers_none_is_refused() -> None:
    login = Login()
    shake_hands(login, "PLAIN", version=0)

    with pytest.raises(UnexpectedResponse):
        login.answer_raw(EMPTY)


def test_only_the_first_message_names_a_user() -> None:
    login = Login()
    shake_hands(login, "SCRAM-SHA-256")
    say(login, *scram("alice").tokens[0])

    assert say(login, scram("bob").tokens[0][0], SERVER_FINAL) is Verdict.ACCEPTED
    assert login.principal == "alice"


def test_token_after_a_login_names_no_user() -> None:
    login = Login()
    log_in(login, plain("alice"))

    assert say(login, b"\0bob\0secret") is Verdict.GOING_ON
    assert login.principal == "alice"


@pytest.mark.parametrize(
    ("mechanism", "token"),
    [
        ("SCRAM-SHA-256", scram("id", extensions=",tokenauth=true").tokens[0][0]),
        ("OAUTHBEARER", bearer("opaque")),
        ("PLAIN", b"boss\0alice\0secret"),
    ],
)
@pytest.mark.parametrize("handshake", [0, 1])
def test_unreadable_user_is_unknown(mechanism: str, token: bytes, handshake: int) -> None:
    login = Login()
    shake_hands(login, mechanism, version=handshake)
    if mechanism == "SCRAM-SHA-256":
        say(login, token, SERVER_FIRST)
        verdict = say(login, b"c=biws", SERVER_FINAL)
    else:
        verdict = say(login, token)

    assert (verdict, login.principal) == (Verdict.UNKNOWN, "UNKNOWN")


def test_unread_mechanism_ends_once_with_an_unknown_user() -> None:
    login = Login()

    verdicts = log_in(login, GSSAPI)

    assert verdicts == [Verdict.GOING_ON, Verdict.UNKNOWN, Verdict.GOING_ON, Verdict.GOING_ON]
    assert (login.principal, login.mechanism) == ("UNKNOWN", "GSSAPI")


def test_unread_bare_tokens_end_at_the_first_request() -> None:
    login = Login()
    assert log_in(login, GSSAPI, handshake=0) == [Verdict.GOING_ON] * 4
    assert (login.principal, login.is_raw) == (None, True)

    assert login.leave_raw() is Verdict.UNKNOWN
    assert (login.principal, login.is_raw, login.is_awaited) == ("UNKNOWN", False, False)


def test_token_without_a_handshake_names_no_user() -> None:
    login = Login()

    assert say(login, b"\0alice\0secret") is Verdict.UNKNOWN
    assert login.principal == "UNKNOWN"
