"""Tests which requests between brokers, and which logins, are charged to the quotas on requests.

As in Kafka's ``KafkaApis``, requests that the cluster authorises are exempt, and refused ones are charged.
"""

import pytest

from kafka_quota_proxy.config.model import DEFAULT, QuotaRule
from kafka_quota_proxy.config.principals import Principals
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.entity_usage import UsageTotals
from tests.protocol.support import kio_messages
from tests.support.frames import other_request, other_response
from tests.support.logins import (
    Dialogue,
    authenticate_request,
    authenticate_response,
    handshake_request,
    handshake_response,
    plain,
    rounds,
)
from tests.support.wire import Wire

FIVE_A_SECOND = QuotaRule(client_id=DEFAULT, request_rate=5.0)
TEN_PERCENT = QuotaRule(client_id=DEFAULT, request_percentage=10.0)
ILLEGAL_SASL_STATE = 34
WRITE_TXN_MARKERS, ALTER_PARTITION = 27, 56
BROKERS = [(WRITE_TXN_MARKERS, 1), (ALTER_PARTITION, 3)]


def ask_as_broker(wire: Wire, api_key: int, version: int, number: int = 7, *, takes_ms: int = 0) -> None:
    request = kio_messages.example(kio_messages.request_class(api_key, version), array_length=0)
    wire.client(kio_messages.request_frame(request, correlation_id=number))
    wire.wait(takes_ms)
    answer = kio_messages.example(kio_messages.response_class(api_key, version), array_length=0)
    wire.broker(kio_messages.response_frame(answer, correlation_id=number))


@pytest.mark.parametrize(("api_key", "version"), BROKERS)
def test_brokers_request_of_a_client_is_charged(api_key: int, version: int) -> None:
    wire = Wire(FIVE_A_SECOND, TEN_PERCENT)

    ask_as_broker(wire, api_key, version, takes_ms=1)

    assert wire.bucket("request_rate").usage.requests == 1
    assert wire.bucket("request").usage.amount > 100_000  # in ns, a fifth of a millisecond


def test_client_that_floods_with_brokers_requests_waits() -> None:
    wire = Wire(FIVE_A_SECOND)
    for number in range(50):
        ask_as_broker(wire, WRITE_TXN_MARKERS, 1, number)
        assert wire.muted_for_ms == 0

    ask_as_broker(wire, WRITE_TXN_MARKERS, 1, 50)

    assert wire.muted_for_ms == 200


@pytest.mark.parametrize(("api_key", "version"), BROKERS)
@pytest.mark.parametrize("by", ["its listener", "its name"])
def test_brokers_request_of_a_broker_is_not_charged(api_key: int, version: int, by: str) -> None:
    if by == "its listener":
        wire = Wire(FIVE_A_SECOND, is_inter_broker=True)
    else:
        wire = Wire(FIVE_A_SECOND, principals=Principals(brokers=frozenset({"ANONYMOUS"})))

    ask_as_broker(wire, api_key, version)

    assert wire.bucket("request_rate").usage.requests == 0


def log_in(wire: Wire, dialogue: Dialogue, *, version: int = 1) -> None:
    for asked, told in rounds(dialogue, version=version):
        wire.client(asked)
        wire.broker(told)


def refused_handshake(wire: Wire, number: int = 1, *, version: int = 1, pieces: bool = False) -> None:
    wire.client(handshake_request("PLAIN", version=version, correlation_id=number))
    answer = handshake_response(error_code=ILLEGAL_SASL_STATE, correlation_id=number)
    wire.broker(*(answer[at : at + 1] for at in range(len(answer)))) if pieces else wire.broker(answer)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("pieces", [False, True])
def test_unexpected_handshake_is_charged(version: int, pieces: bool) -> None:
    wire = Wire(FIVE_A_SECOND)
    wire.client(other_request(1))
    wire.broker(other_response(1))

    refused_handshake(wire, 2, version=version, pieces=pieces)

    assert wire.bucket("request_rate").usage.totals == UsageTotals(2, 2)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_unexpected_token_is_charged(version: int) -> None:
    wire = Wire(FIVE_A_SECOND)
    wire.client(other_request(1))
    wire.broker(other_response(1))

    wire.client(authenticate_request(b"\0alice\0secret", version=version))
    wire.broker(authenticate_response(error_code=ILLEGAL_SASL_STATE, version=version))

    assert wire.bucket("request_rate").usage.totals == UsageTotals(2, 2)


def test_flood_of_handshakes_on_a_listener_without_logins_waits() -> None:
    """The first handshake is free, because a login may follow, and then the new user is charged."""
    wire = Wire(FIVE_A_SECOND)
    for number in range(51):
        refused_handshake(wire, number)
        assert wire.muted_for_ms == 0

    refused_handshake(wire, 51)

    assert wire.muted_for_ms == 200
    assert wire.bucket("request_rate").usage.requests == 51


def test_flood_of_handshakes_behind_a_login_waits() -> None:
    wire = Wire(FIVE_A_SECOND)
    log_in(wire, plain("alice"))
    for number in range(50):
        refused_handshake(wire, number)
        assert wire.muted_for_ms == 0

    refused_handshake(wire, 50)

    assert wire.muted_for_ms == 200
    assert wire.bucket("request_rate").usage.requests == 51


@pytest.mark.parametrize("version", [1, 2])
def test_login_again_is_not_charged(version: int) -> None:
    """Kafka handles a repeated login, like the first one, below the layer that charges requests (KIP-368)."""
    wire = Wire(FIVE_A_SECOND, TEN_PERCENT)
    log_in(wire, plain("alice"), version=version)
    wire.client(other_request(9))
    wire.broker(other_response(9))

    log_in(wire, plain("alice"), version=version)

    for kind in ("request", "request_rate"):
        assert (wire.bucket(kind).usage.requests, wire.bucket(kind).reserved.amount) == (1, 0)
    assert wire.listening.service.served == 0


def test_login_as_first_request_makes_no_bucket() -> None:
    """Otherwise each client would have a second bucket, as ANONYMOUS before its login."""
    wire = Wire(FIVE_A_SECOND)
    log_in(wire, plain("alice"))

    assert len(wire.listening.quotas.manager(QuotaKind.REQUEST_RATE)) == 0
