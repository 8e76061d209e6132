"""Tests which requests about client quotas a session answers itself, and which it forwards to the broker."""

from struct import iter_unpack

import pytest

from kafka_quota_proxy.config.model import Enforcement, QuotaRule
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.client_quotas import (
    Alteration,
    AlterRequest,
    AlterResponse,
    Component,
    DescribeRequest,
    DescribeResponse,
    Op,
    read_describe_response,
    read_request,
    write_response,
)
from kafka_quota_proxy.protocol.codec import MAX_ELEMENTS, framed
from kafka_quota_proxy.protocol.errors import (
    FrameTooLarge,
    LoginExpired,
    ProtocolError,
    TooManyElements,
    UnknownVersion,
)
from kafka_quota_proxy.proxy.rules.api import (
    MAX_REFUSED_BYTES,
    MAX_REFUSED_ELEMENTS,
    MAX_REQUEST_BYTES,
    Administration,
    Origin,
    QuotaRequest,
    Ticket,
    unauthorized,
)
from tests.support.frames import api_versions_response, other_request, other_response, produce_request, produce_response
from tests.support.logins import (
    Dialogue,
    authenticate_request,
    authenticate_response,
    handshake_request,
    handshake_response,
    plain,
    rounds,
    scram,
)
from tests.support.quota_request_frames import read_alter_response, write_alter_request, write_describe_request
from tests.support.wire import Wire

REFUSED = (
    "Cluster authorization failed. The user ANONYMOUS, as nobody logs in, is not in principals.admins of "
    "kafka-quota-proxy."
)
ALICE = (("user", "alice"),)
CHANGE = AlterRequest(1, 7, (Alteration(ALICE, (Op("producer_byte_rate", 1.0),)), Alteration((), ())), False)
QUESTION = DescribeRequest(0, 8, (Component("user", 2, None),), True)
ANSWER = write_response(AlterResponse(0, ()), correlation_id=7, api_version=1)
BOTH = (write_alter_request(CHANGE, client_id="etl"), write_describe_request(QUESTION, client_id="etl"))


class SlowHandler:
    """Takes requests at once. A test sets their responses later."""

    def __init__(self) -> None:
        self.taken: list[tuple[QuotaRequest, Origin, object, Ticket]] = []
        self.refusals: list[tuple[str, str]] = []
        self.is_full = False

    def submit(self, ticket: Ticket) -> bool:
        if not self.is_full:
            assert ticket.head is not None
            request = read_request(ticket.frame, ticket.head)
            self.taken.append((request, ticket.origin, ticket.owner, ticket))
        return not self.is_full

    def refused(self, origin: Origin, message: str, now_ms: int) -> None:
        self.refusals.append((origin.principal, message))


def administered(
    *rules: QuotaRule,
    admins: frozenset[str] = frozenset({"ANONYMOUS"}),
    enforcement: Enforcement = Enforcement.RESPOND,
) -> tuple[Wire, SlowHandler]:
    wire, handler = Wire(*rules, enforcement=enforcement), SlowHandler()
    wire.session.account.peer_host = "10.0.0.1"
    administration = Administration(admins, handler, "clients")
    wire.listening.policy = wire.listening.policy._replace(administration=administration)
    return wire, handler


def test_administrator_is_answered_when_the_answer_is_ready() -> None:
    wire, handler = administered()

    assert wire.client(BOTH[0]) == b""
    assert wire.session.state.blocked_by is not None
    assert wire.to_client() == b""
    ((request, origin, owner, ticket),) = handler.taken
    assert (request, owner) == (CHANGE, wire)
    assert origin == Origin("ANONYMOUS", "etl", "10.0.0.1", "clients")
    wire.resume()
    wire.wait(10_000)
    assert len(handler.taken) == 1
    assert wire.to_client() == b""

    ticket.answer = ANSWER
    assert wire.resume() == b""

    assert wire.to_client() == ANSWER
    assert wire.session.state.blocked_by is None
    assert wire.session.is_idle


def test_requests_behind_wait_and_earlier_ones_are_answered_first() -> None:
    wire, handler = administered()
    ahead, behind = other_request(1), produce_request(2)

    assert wire.client(ahead + BOTH[0] + BOTH[1] + behind) == ahead
    assert handler.taken == []
    assert wire.broker(other_response(1)) == other_response(1)
    assert [taken[0] for taken in handler.taken] == [CHANGE]
    handler.taken[0][3].answer = ANSWER
    wire.resume()
    assert [taken[0] for taken in handler.taken] == [CHANGE, QUESTION]
    handler.taken[1][3].answer = b"second"

    assert wire.resume() == behind
    assert wire.to_client() == ANSWER + b"second"
    assert wire.broker(produce_response(2)) == produce_response(2)


def test_request_is_taken_when_a_relay_has_passed_the_rest_of_the_response_before_it() -> None:
    wire, handler = administered()
    wire.client(other_request(1), BOTH[0])
    ahead = other_response(1, size_bytes=9_000)
    wire.broker(ahead[:1_000])

    wire.session.state.responses.pass_body(2_000, wire.now_ms)
    assert handler.taken == []
    wire.session.state.responses.pass_body(len(ahead) - 3_000, wire.now_ms)

    assert [request for request, *_ in handler.taken] == [CHANGE]


def test_large_request_is_collected_until_it_is_whole() -> None:
    wire, handler = administered()
    large = CHANGE._replace(alterations=tuple(Alteration((("user", "u" * 30_000),), ()) for _ in range(100)))
    frame = write_alter_request(large, client_id="etl")

    assert wire.client(*(frame[at : at + 262_144] for at in range(0, len(frame), 262_144))) == b""

    assert [taken[0] for taken in handler.taken] == [large]


def test_other_principal_is_refused_as_kafka_refuses() -> None:
    wire, handler = administered(admins=frozenset({"admin"}))

    assert wire.client(*BOTH) == b""

    answers = wire.to_client()
    end = 4 + int.from_bytes(answers[:4])
    altered, described = read_alter_response(answers[:end], 1), read_describe_response(answers[end:], 0)
    assert [result[:2] for result in altered.results] == [(31, REFUSED)] * 2
    assert [result.entity for result in altered.results] == [ALICE, ()]
    assert described[1:] == (31, REFUSED, None)
    assert (answers[4:8], answers[end + 4 : end + 8]) == (bytes([0, 0, 0, 7]), bytes([0, 0, 0, 8]))
    assert handler.taken == []
    assert handler.refusals == [("ANONYMOUS", REFUSED)] * 2


def test_a_refusal_names_the_user_who_has_logged_in_in_one_short_line() -> None:
    assert unauthorized("alice") == (
        "Cluster authorization failed. The user alice is not in principals.admins of kafka-quota-proxy."
    )
    assert "\n" not in unauthorized("a\nb")
    assert len(unauthorized("\U0001f600" * 30_000)) < 1_000


@pytest.mark.parametrize(
    "come",
    [
        [],
        [(handshake_request("PLAIN"), handshake_response())],
        [
            (handshake_request("PLAIN"), handshake_response()),
            (authenticate_request(plain("admin").tokens[0][0]), authenticate_response(error_code=58)),
        ],
        rounds(scram("admin"))[:-1],
        rounds(plain("alice")),
    ],
    ids=["at once", "after the handshake", "after a login that failed", "in the middle of a login", "as somebody else"],
)
def test_connection_is_no_administrators_before_login(come: list[tuple[bytes, bytes]]) -> None:
    wire, handler = administered(admins=frozenset({"admin"}))
    for asked, told in come:
        wire.client(asked)
        wire.broker(told)
    wire.to_client()

    assert wire.client(BOTH[0]) == b""

    assert [result[:2] for result in read_alter_response(wire.to_client(), 1).results] == [
        (31, unauthorized(wire.session.account.principal))
    ] * 2
    assert handler.taken == []


def test_nothing_passes_while_a_login_is_under_way() -> None:
    wire, handler = administered(admins=frozenset({"admin"}))
    wire.client(handshake_request("PLAIN"))
    wire.broker(handshake_response())
    wire.client(authenticate_request(plain("admin").tokens[0][0]))
    wire.to_client()

    assert wire.client(BOTH[0]) == b""
    assert (handler.taken, wire.to_client()) == ([], b"")

    wire.broker(authenticate_response())
    assert [taken[1].principal for taken in handler.taken] == ["admin"]


def test_without_administrators_or_between_brokers_requests_are_forwarded() -> None:
    wire = Wire()

    assert wire.client(*BOTH) == b"".join(BOTH)


def versions_told(wire: Wire) -> dict[int, tuple[int, int]]:
    """Return the versions that a client gets from a broker that knows only Produce and Fetch."""
    wire.client(other_request(3, api_key=ApiKey.API_VERSIONS, version=0))
    answer = api_versions_response(3)
    frame = wire.broker(answer[:9]) + wire.broker(answer[9:])
    entries = iter_unpack(">hhh", frame[14:])
    assert frame[:4] == (len(frame) - 4).to_bytes(4)
    return {key: (lowest, highest) for key, lowest, highest in entries}


def test_client_answered_here_sees_our_versions() -> None:
    here = {int(ApiKey.DESCRIBE_CLIENT_QUOTAS): (0, 1), int(ApiKey.ALTER_CLIENT_QUOTAS): (0, 1)}

    for admins in (frozenset({"ANONYMOUS"}), frozenset({"admin"})):
        told = versions_told(administered(admins=admins)[0])
        assert {key: told[key] for key in told if key in (48, 49)} == here

    assert versions_told(Wire()).keys().isdisjoint(here)


def test_unreadable_request_ends_the_connection() -> None:
    many = CHANGE._replace(alterations=(Alteration((), ()),) * (MAX_ELEMENTS + 1))
    faults: list[tuple[bytes, type[ProtocolError]]] = [
        (framed(b"\x00\x31\x00\x02", BOTH[0][8:]), UnknownVersion),
        (framed(b"\x00\x30\x00\x02", BOTH[1][8:]), UnknownVersion),
        (framed(BOTH[0][4:], bytes(MAX_REQUEST_BYTES)), FrameTooLarge),
        (framed(BOTH[0][4:-1]), ProtocolError),
    ]
    for admins in (frozenset({"ANONYMOUS"}), frozenset({"admin"})):
        for frame, error in faults:
            wire, handler = administered(admins=admins)
            with pytest.raises(error):
                wire.client(frame)
            assert handler.taken == []
    with pytest.raises(TooManyElements):
        administered()[0].client(write_alter_request(many, client_id=None))


def test_request_that_its_thread_cannot_read_ends_the_connection() -> None:
    wire, handler = administered()
    wire.client(BOTH[0])
    handler.taken[0][3].error = TooManyElements("too many")

    with pytest.raises(TooManyElements, match="too many"):
        wire.resume()


def test_ending_connection_gets_the_answer_under_way_and_no_later_one() -> None:
    wire, handler = administered()
    wire.client(*BOTH)

    wire.session.take_no_more()

    assert not wire.session.has_answered
    handler.taken[0][3].answer = ANSWER
    wire.wait(1_000)
    assert wire.to_client() == ANSWER
    assert wire.session.has_answered
    assert len(handler.taken) == 1
    assert int(ApiKey.ALTER_CLIENT_QUOTAS) == 49


@pytest.mark.parametrize("after", [None, Administration(frozenset(), SlowHandler())])
def test_request_under_way_is_answered_after_the_administrators_change(after: Administration | None) -> None:
    wire, handler = administered()
    wire.client(*BOTH)

    wire.listening.policy = wire.listening.policy._replace(administration=after)
    assert wire.resume() == b""
    handler.taken[0][3].answer = ANSWER
    passed = wire.resume()

    answers = wire.to_client()
    assert answers.startswith(ANSWER)
    if after is None:
        assert (answers, passed) == (ANSWER, BOTH[1])
    else:
        assert passed == b""
        assert read_describe_response(answers[len(ANSWER) :], 0).error_code == 31


def test_refused_client_may_send_small_requests_only() -> None:
    many = CHANGE._replace(alterations=(Alteration((), ()),) * (MAX_REFUSED_ELEMENTS + 1))
    few = CHANGE._replace(alterations=many.alterations[1:])
    head_of_long = framed(BOTH[0][4:], bytes(MAX_REFUSED_BYTES))[:50]
    wire, _ = administered(admins=frozenset({"admin"}))

    wire.client(write_alter_request(few, client_id="etl"))
    assert len(read_alter_response(wire.to_client(), 1).results) == MAX_REFUSED_ELEMENTS

    with pytest.raises(TooManyElements):
        wire.client(write_alter_request(many, client_id="etl"))
    with pytest.raises(FrameTooLarge):
        administered(admins=frozenset({"admin"}))[0].client(head_of_long)


@pytest.mark.parametrize("admins", [frozenset({"admin"}), frozenset({"ANONYMOUS"})])
@pytest.mark.parametrize("enforcement", [Enforcement.RESPOND, Enforcement.DELAY])
def test_answered_request_is_charged_like_a_forwarded_one(admins: frozenset[str], enforcement: Enforcement) -> None:
    wire, handler = administered(QuotaRule(client_id="etl", request_rate=1), admins=admins, enforcement=enforcement)

    wire.client(BOTH[1] * 100)
    for taken in handler.taken:  # ``resume`` lets the next request in, which adds to this list
        taken[3].answer = write_response(DescribeResponse(0, 0, None, ()), correlation_id=8, api_version=0)
        wire.resume()

    answers = wire.to_client()
    assert wire.muted_for_ms > 0
    assert wire.session.state.blocked_by is not None
    at, told = 0, []
    while at < len(answers):
        end = at + 4 + int.from_bytes(answers[at : at + 4])
        told.append(read_describe_response(answers[at:end], 0).throttle_time_ms)
        at = end
    assert len(told) < 100
    assert told[-1] == (wire.muted_for_ms if enforcement is Enforcement.RESPOND else 0)


def test_client_that_does_not_read_is_not_served() -> None:
    wire, handler = administered(admins=frozenset({"admin"}))
    wire.session.pause_answers()

    wire.client(*BOTH)

    assert wire.to_client() == b""
    assert wire.session.state.blocked_by is not None
    wire.session.resume_answers()
    wire.resume()
    assert len(wire.to_client()) > 0
    assert handler.taken == []


def test_request_is_submitted_again_if_the_queue_was_full() -> None:
    wire, handler = administered()
    handler.is_full = True
    wire.client(BOTH[0])
    assert wire.session.state.blocked_by is not None

    handler.is_full = False
    wire.wait(1_000)

    assert [taken[0] for taken in handler.taken] == [CHANGE]


def test_closed_connection_drops_its_request() -> None:
    wire, handler = administered()
    wire.client(BOTH[0])

    wire.session.close(now_ms=wire.now_ms, has_passed=False)

    assert handler.taken[0][3].is_dropped


def logged_in(wire: Wire, login: Dialogue, *, lifetime_ms: int) -> None:
    wire.client(handshake_request(login.mechanism))
    wire.broker(handshake_response())
    for asked, told in login.tokens:
        wire.client(authenticate_request(asked))
        is_last = (asked, told) == login.tokens[-1]
        wire.broker(authenticate_response(told, lifetime_ms=lifetime_ms if is_last else 0))


@pytest.mark.parametrize("login", [plain("admin"), scram("admin")])
def test_expired_login_ends_administration(login: Dialogue) -> None:
    wire, handler = administered(admins=frozenset({"admin"}))
    logged_in(wire, login, lifetime_ms=60_000)

    wire.wait(59_999)
    wire.client(BOTH[0])
    handler.taken[0][3].answer = ANSWER
    wire.resume()
    assert wire.to_client() == ANSWER
    wire.wait(1)

    with pytest.raises(LoginExpired):
        wire.client(BOTH[0])
    assert len(handler.taken) == 1


@pytest.mark.parametrize("lifetime_ms", [0, 60_000])
def test_client_that_logs_in_again_stays_administrator(lifetime_ms: int) -> None:
    wire, handler = administered(admins=frozenset({"admin"}))
    logged_in(wire, scram("admin"), lifetime_ms=60_000)
    wire.wait(70_000)

    logged_in(wire, scram("admin"), lifetime_ms=lifetime_ms)
    wire.wait(50_000)
    wire.client(BOTH[0])

    assert len(handler.taken) == 1
