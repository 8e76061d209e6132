"""Tests the outcome that each entity of a request gets."""

from kafka_quota_proxy.config.terms import Terms
from kafka_quota_proxy.protocol.client_quotas import Alteration, Altered, Op
from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule
from kafka_quota_proxy.proxy.rules.outcome import outcomes

P = "producer_byte_rate"
ALICE = (("user", "alice"),)
OLD, NEW = StoredRule(limits={P: 1.0}), StoredRule(limits={P: 2.0}, terms=Terms(expires_ms=1))


def test_each_entity_has_one_outcome() -> None:
    bob, nobody = (("user", "bob"),), (("group", "x"),)
    asked = [Alteration(one, (Op(P, 2.0),)) for one in (ALICE, bob, ALICE, nobody)]
    results = [Altered(42, "twice", ALICE), Altered(0, None, bob), Altered(42, "unknown", nobody)]
    changes = [Change(Entity("alice"), NEW)]

    alice, of_bob, unknown = outcomes(asked, results, changes, {Entity("alice"): OLD, Entity("bob"): OLD}, {})

    assert (alice.old, alice.new, alice.error_code) == (OLD, NEW, 42)
    assert (of_bob.old, of_bob.new, of_bob.error_code) == (OLD, OLD, 0)
    assert (unknown.old, unknown.new, unknown.error_message) == (None, None, "unknown")
