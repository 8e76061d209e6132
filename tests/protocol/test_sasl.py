"""Tests which user a login names: the examples of RFCs, Kafka's rules, and messages of other clients."""

import asyncio
import json
from base64 import urlsafe_b64encode
from importlib import import_module
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_quota_proxy.protocol import sasl
from kafka_quota_proxy.protocol.errors import LoginTooLarge, MalformedLength, Truncated
from kafka_quota_proxy.protocol.header import read_request_head
from tests.support.cases import each_case
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

MAX_FRAME_BYTES = 104_857_600
# Any text that may be a user's name, often with commas and equals signs.
NAMES = st.text(
    st.sampled_from("=,aé2CD3 ") | st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1
)


def body_of(request: bytes) -> bytes:
    head = read_request_head(request, 0, MAX_FRAME_BYTES)
    assert head is not None
    return request[head.body :]


# -- frames


@pytest.mark.parametrize("version", [0, 1])
def test_mechanism_of_a_handshake_is_read(version: int) -> None:
    assert sasl.read_handshake(body_of(handshake_request("SCRAM-SHA-512", version=version))) == "SCRAM-SHA-512"


@pytest.mark.parametrize("error_code", [0, 33, 34])
def test_error_code_of_a_handshake_response_is_read(error_code: int) -> None:
    assert sasl.read_handshake_error(handshake_response(error_code=error_code)[8:]) == error_code


@each_case("version", [0, 1, 2, 3])
@each_case("token", [b"", b"\0alice\0secret", bytes(200_000)])
def test_token_of_a_request_is_read(version: int, token: bytes) -> None:
    assert sasl.read_authenticate(body_of(authenticate_request(token, version=version)), version) == token


@each_case("version", [0, 1, 2, 3])
@each_case("error_code, token", [(0, b""), (0, SERVER_FIRST), (58, b"")])
def test_error_code_token_and_lifetime_of_a_response_are_read(version: int, error_code: int, token: bytes) -> None:
    response = authenticate_response(token, error_code=error_code, version=version, lifetime_ms=77_000_000_000)

    lifetime_ms = 77_000_000_000 if version else 0
    assert sasl.read_authenticate_response(response[8:], version) == (error_code, token, lifetime_ms)
    if version:
        with pytest.raises(Truncated):
            sasl.read_authenticate_response(response[8:-2], version)


def test_null_token_is_refused() -> None:
    with pytest.raises(MalformedLength, match="cannot be null"):
        sasl.read_authenticate(b"\xff\xff\xff\xff", 1)
    with pytest.raises(MalformedLength, match="cannot be null"):
        sasl.read_authenticate(b"\0\0", 2)


def test_token_longer_than_its_frame_is_truncated() -> None:
    with pytest.raises(Truncated):
        sasl.read_authenticate(b"\0\0\0\x09short", 1)


def test_login_frame_above_kafkas_limit_is_refused() -> None:
    sasl.check_login_size(512 * 1024)
    with pytest.raises(LoginTooLarge, match="524289 bytes, above the limit of 524288"):
        sasl.check_login_size(512 * 1024 + 1)


def test_raw_token_has_the_same_limit_and_may_be_empty() -> None:
    assert sasl.read_token_size(b"\0\0\0\0", 0) == 0
    assert sasl.read_token_size(b"x\0\x08\0\0", 1) == 512 * 1024
    assert sasl.read_token_size(b"\0\0\0", 0) is None
    for size in (b"\0\x08\0\x01", b"\xff\xff\xff\xff", b"\x16\x03\x01\0", b"GET "):
        with pytest.raises(LoginTooLarge, match="below 0 or above 524288") as caught:
            sasl.read_token_size(size, 0)
        assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\0\0\0", None),
        (b"\0\0\0\x20", None),
        (b"\0\0\0\0", False),
        (b"\0\0\0\x20\x60", False),
        (b"\0\0\0\x20\x05\x04", False),
        (b"\0\0\0\x20\0\x12", True),
    ],
)
def test_kafka_request_is_distinguished_from_a_kerberos_token(data: bytes, expected: bool | None) -> None:
    assert sasl.is_request(data, 0) is expected
    assert sasl.is_request(b"before" + data, 6) is expected


# -- PLAIN


@each_case(
    "token, user",
    [
        # These are the examples of RFC 4616, section 4. In the second, one user acts for another, which Kafka forbids.
        (b"\0tim\0tanstaaftanstaaf", "tim"),
        (b"Ursel\0Kurt\0xipj3plmq", None),
        (b"tim\0tim\0secret", "tim"),
        ("\0zoë\0secret".encode(), "zoë"),
        (b"\0tim\0", "tim"),  # the broker refuses an empty password
        (b"\0\0secret", None),
        (b"\0tim", None),
        (b"\0tim\0secret\0more", None),
        (b"\0\xff\0secret", None),
        (b"", None),
    ],
)
def test_user_of_a_plain_token_is_read(token: bytes, user: str | None) -> None:
    assert sasl.plain_user(token) == user


# -- SCRAM


def test_the_example_of_rfc_7677_names_its_user() -> None:
    assert sasl.scram_user(CLIENT_FIRST) == "user"
    assert sasl.scram_user(CLIENT_FINAL) is None


@each_case(
    "token, user",
    [
        (b"n,,n=a=2Cb=3Dc,r=x", "a,b=c"),
        (b"n,,n==3D2C,r=x", "=2C"),
        (b"n,a=tim,n=tim,r=x", "tim"),
        (b"n,a=a=2Cb,n=a=2Cb,r=x", "a,b"),
        (b"n,,m=ext,n=tim,r=x", "tim"),
        (b"n,,n=tim,r=x,other=1", "tim"),
        (b"n,,n=tim,r=x,tokenauth=false", "tim"),
        ("n,,n=zoë,r=x".encode(), "zoë"),
        # The name of a delegation token is not that of its owner.
        (b"n,,n=id,r=x,tokenauth=true", None),
        (b"n,,n=id,r=x,tokenauth=TRUE", None),
        (b"n,,n=id,r=x,tokenauth=false,tokenauth=true", None),
        (b"n,a=ann,n=tim,r=x", None),
        (b"n,,n=a=b,r=x", None),
        (b"n,,n=a=2cb,r=x", None),
        (b"n,,n=a=3=2CD,r=x", None),
        (b"n,,n=,r=x", None),
        (b"n,,r=x,n=tim", None),
        (b"n,,n=tim", None),
        (b"n,,n=\xff,r=x", None),
        (b"n,", None),
        (b"", None),
    ],
)
def test_user_of_a_scram_message_is_read(token: bytes, user: str | None) -> None:
    assert sasl.scram_user(token) == user


@given(name=NAMES)
@example(name="=2C=3D,=")
def test_scram_messages_of_aiokafka_name_their_user(name: str) -> None:
    conn: Any = import_module("aiokafka.conn")
    client = conn.ScramAuthenticator(
        loop=None,
        sasl_plain_username=name,
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_password="pencil",  # noqa: S106
    )

    assert sasl.scram_user(client.first_message().encode()) == name


def test_only_the_verifier_is_a_success() -> None:
    messages = [SERVER_FIRST, SERVER_FINAL, b"e=other-error", b"", b"V=x", b"v"]

    assert [sasl.is_scram_success(message) for message in messages] == [False, True, False, False, False, False]
    assert [sasl.is_scram_failure(message) for message in messages] == [False, False, True, False, False, False]


# -- OAUTHBEARER


def base64url(text: str) -> str:
    return urlsafe_b64encode(text.encode(errors="surrogatepass")).decode().rstrip("=")


@each_case(
    "claims, claim, user",
    [
        ({"sub": "alice"}, "sub", "alice"),
        ({"sub": "alice", "azp": "etl"}, "azp", "etl"),
        ({"sub": "zoë, =?>~~~"}, "sub", "zoë, =?>~~~"),
        ({"sub": "alice"}, "azp", None),
        ({"sub": ""}, "sub", None),
        ({"sub": " alice "}, "sub", None),
        ({"sub": 7}, "sub", None),
        ({"sub": None}, "sub", None),
        ({"sub": ["alice"]}, "sub", None),
        ({"sub": "\ud800"}, "sub", None),
        (["sub"], "sub", None),
        ("sub", "sub", None),
    ],
)
def test_user_of_a_web_token_is_read(claims: object, claim: str, user: str | None) -> None:
    assert sasl.oauthbearer_user(bearer(web_token(claims)), claim=claim) == user


@each_case(
    "token",
    [
        "opaque",
        "a.b",
        "a.b.c.d.e",  # encrypted
        "a.!.c",
        "a..c",
        f"a.{base64url('{')}.c",
        f"a.!!!!{base64url(json.dumps({'sub': 'alice'}))}.c",
        f"a.{base64url('[' * 100_000)}.c",
        f"a.{base64url('9' * 10_000)}.c",
        f"a.{base64url(json.dumps({'sub': 'alice'}))[:-1]}.c",
    ],
)
def test_unreadable_web_token_has_no_user(token: str) -> None:
    assert sasl.oauthbearer_user(bearer(token), claim="sub") is None


@each_case(
    "message, user",
    [
        # This is RFC 7628, section 4.1, with a token that names a user.
        ("n,a=alice,\x01host=server.example.com\x01port=143\x01auth=Bearer {}\x01\x01", "alice"),
        ("n,,\x01auth=bearer   {}\x01traceId=7\x01\x01", "alice"),
        ("n,,\x01auth=Bearer x.y.z\x01auth=Bearer {}\x01\x01", "alice"),
        ("n,,\x01auth=Bearer {}\x01auth=Bearer x.y.z\x01\x01", None),
        ("n,a=bob,\x01auth=Bearer {}\x01\x01", None),
        ("n,,\x01auth=Basic {}\x01\x01", None),
        ("n,,\x01key=Bearer {}\x01\x01", None),
        ("n,\x01auth=Bearer {}\x01\x01", None),
        ("\x01", None),
        ("", None),
    ],
)
def test_web_token_is_found_where_kafka_finds_it(message: str, user: str | None) -> None:
    assert sasl.oauthbearer_user(message.format(web_token({"sub": "alice"})).encode(), claim="sub") == user


def test_messages_of_other_clients_with_web_tokens_name_their_user() -> None:
    class Provider:
        async def token(self) -> str:
            return web_token({"sub": "alice"})

        def extensions(self) -> dict[str, str]:
            return {"logicalCluster": "lkc-7"}

    conn: Any = import_module("aiokafka.conn")
    message, _ = asyncio.run(conn.OAuthAuthenticator(sasl_oauth_token_provider=Provider()).step(None))

    assert sasl.oauthbearer_user(message, claim="sub") == "alice"


# -- any bytes


@pytest.mark.parametrize("filler", [b"=2C", b",", b"a=", b"\0", b"\x01", b"n,,n=a"])
def test_longest_token_is_read_quickly(filler: bytes) -> None:
    """Half a megabyte takes milliseconds. Slow code would run into the timeout of pytest."""
    token = filler * (sasl.MAX_LOGIN_BYTES // len(filler))

    for whole in (
        token,
        b"n,,n=" + token + b",r=x",
        b"n,,n=" + token + b"=,r=x",
        bearer("e30." + token.decode() + "."),
    ):
        sasl.plain_user(whole)
        sasl.scram_user(whole)
        sasl.oauthbearer_user(whole, claim="sub")


def test_repr_of_a_response_hides_its_token() -> None:
    assert "marked" not in repr(sasl.AuthenticateResponse(0, b"marked", 0))
