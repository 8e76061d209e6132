"""Tests requests to change quotas that the proxy forwards: what the broker changed, and when the rules show it."""

from kafka_quota_proxy.protocol.client_quotas import (
    ALTER,
    Alteration,
    Altered,
    AlterRequest,
    AlterResponse,
    Op,
    write_response,
)
from kafka_quota_proxy.protocol.header import read_request_head
from kafka_quota_proxy.proxy.rules.api import Ticket
from kafka_quota_proxy.proxy.rules.broker.broker_rules import rules_of
from kafka_quota_proxy.proxy.rules.broker.forwarded_alter import (
    MAX_BYTES,
    ForwardedAlter,
    can_wait,
    has_changes,
)
from kafka_quota_proxy.proxy.rules.model import Entity, StoredRule
from kafka_quota_proxy.proxy.rules.outcome import NOBODY
from tests.proxy.rules.broker.test_broker_rules import told
from tests.support.quota_request_frames import write_alter_request

ALICE = (("user", "alice"), ("client-id", None))
BOB = (("user", "bob"),)
P = "producer_byte_rate"
C = "consumer_byte_rate"
SET = Alteration(ALICE, (Op(P, 5.0), Op(C, None)))


class Follower:
    def __init__(self) -> None:
        self.awaited: list[tuple[Alteration, ...]] = []

    def await_change(self, changed: tuple[Alteration, ...], answer: bytes, owner: object) -> Ticket:
        self.awaited.append(changed)
        return Ticket(answer, NOBODY, owner)


def awaited(request: AlterRequest, *results: Altered) -> list[tuple[Alteration, ...]]:
    """Return the changes that the response to a client waits for."""
    follower = Follower()
    passing = ForwardedAlter(follower, write_alter_request(request, client_id="c"))
    answer = write_response(AlterResponse(0, results), correlation_id=7, api_version=request.api_version)
    assert passing.answer(b"before" + answer + b"behind", 6, len(answer), now_ms=0) == answer
    ticket = passing.await_change(answer, None)
    assert (ticket is None) == (not follower.awaited)
    assert ticket is None or ticket.frame == answer
    return follower.awaited


def test_an_acknowledged_change_is_waited_for() -> None:
    other = Alteration(BOB, (Op(P, 6.0),))
    done, refused = Altered(0, None, ALICE[::-1]), Altered(42, "no", BOB)

    assert awaited(AlterRequest(1, 7, (SET, other), False), refused, done) == [(SET,)]
    assert awaited(AlterRequest(0, 7, (SET, other), False), refused, done) == [(SET,)]


def test_a_malformed_request_or_answer_passes_unchanged() -> None:
    follower = Follower()
    frame = write_alter_request(AlterRequest(1, 7, (SET,), False), client_id="c")
    answer = write_response(AlterResponse(0, (Altered(0, None, ALICE),)), correlation_id=7, api_version=1)

    assert ForwardedAlter(follower, frame[:-1] + b"\7").await_change(answer, None) is None
    assert ForwardedAlter(follower, frame).await_change(answer[:-2], None) is None
    many = AlterRequest(1, 7, (Alteration(BOB, tuple(Op(str(n), 1.0) for n in range(1_001))),), False)
    assert ForwardedAlter(follower, write_alter_request(many, client_id=None)).await_change(answer, None) is None
    assert follower.awaited == []


def test_only_a_request_of_moderate_size_and_a_known_version_is_read() -> None:
    head = read_request_head(write_alter_request(AlterRequest(1, 7, (SET,), False), client_id="c"), 0, 1_000_000)
    assert head is not None
    assert head.api_key == ALTER

    assert can_wait(head)
    assert can_wait(head._replace(size_bytes=MAX_BYTES))
    assert not can_wait(head._replace(size_bytes=MAX_BYTES + 1))
    assert not can_wait(head._replace(api_version=2))


def test_a_change_is_visible_once_each_value_is_as_set() -> None:
    entity = Entity("alice", rules_entity()[1])
    rules = {entity: StoredRule(limits={P: 5.0})}

    assert has_changes(rules, (SET,))
    assert not has_changes({}, (SET,))
    assert not has_changes({entity: StoredRule(limits={P: 4.0})}, (SET,))
    assert not has_changes({entity: StoredRule(limits={P: 5.0, C: 1.0})}, (SET,))
    assert has_changes({**rules, Entity("x"): StoredRule(limits={C: 1.0})}, (SET,))
    # This change removes the limit.
    assert has_changes({}, (Alteration(ALICE, (Op(P, None),)),))
    assert not has_changes(rules, (Alteration(ALICE, (Op(P, None),)),))


def rules_entity() -> Entity:
    (entity,) = rules_of(told((ALICE, {P: 5.0}))).rules
    return entity
