"""Tests requests to change quotas: the cases of Kafka's own tests, Kafka's error messages, and random requests."""

from collections.abc import Mapping
from random import Random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import Enforcement
from kafka_quota_proxy.config.terms import NO_TERMS, Terms, TermsChange, replacement
from kafka_quota_proxy.protocol.client_quotas import Alteration, Altered, AlterRequest, EntityParts, Op
from kafka_quota_proxy.proxy.rules import alter
from kafka_quota_proxy.proxy.rules.alter import Decision, decide, refuse, refuse_alter, with_unknown_outcome
from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule, keys_of
from tests.support.quota_requests import CLIENT_KEYS, some_alter

P, C, R, M = CLIENT_KEYS
RATE: Final = "connection_creation_rate"
ALICE: Final = (("user", "alice"),)
PAIR: Final = (("user", "user"), ("client-id", "client-id"))

Rules = dict[Entity, StoredRule]


def ask(
    rules: Mapping[Entity, StoredRule],
    *alterations: tuple[EntityParts, Mapping[str, float | None]],
    validate_only: bool = False,
    sources: Mapping[Entity, str] | None = None,
    terms: Mapping[Entity, TermsChange] | None = None,
    now_ms: int = 0,
) -> Decision:
    wanted = tuple(Alteration(entity, tuple(Op(*op) for op in ops.items())) for entity, ops in alterations)
    request = AlterRequest(1, 7, wanted, validate_only)
    return decide(rules, request, sources or {}, rules, terms=terms or {}, now_ms=now_ms)


def apply(rules: Rules, decision: Decision) -> None:
    for entity, rule in decision.changes:
        if rule is None:
            del rules[entity]
        else:
            rules[entity] = rule


def told(decision: Decision) -> list[tuple[int, str | None]]:
    return [result[:2] for result in decision.results]


def test_v48_limits_are_set_changed_and_removed() -> None:
    """Source: Kafka's ClientQuotasRequestTest.testAlterClientQuotasRequest (V48)."""
    rules: Rules = {}
    entity = Entity("user", "client-id")
    steps: list[tuple[dict[str, float | None], dict[str, float]]] = [
        ({P: 10_000.0, C: 20_000.0}, {P: 10_000.0, C: 20_000.0}),
        ({P: 15_000.0}, {P: 15_000.0, C: 20_000.0}),
        ({P: None}, {C: 20_000.0}),
        ({R: None}, {C: 20_000.0}),
        ({P: 5_000.0}, {P: 5_000.0, C: 20_000.0}),
        ({P: 20_000.0, C: None, R: 12.3}, {P: 20_000.0, R: 12.3}),
    ]
    for ops, limits in steps:
        decision = ask(rules, (PAIR, ops))
        apply(rules, decision)

        assert told(decision) == [(0, None)]
        assert rules[entity].limits == limits


@pytest.mark.parametrize(
    "ops", [{C: 50_000.0}, {P: 10_000.0}, {R: None}, {P: 10_000.0, C: 50_000.0, R: None}, {P: None, R: None}]
)
def test_v49_validated_request_changes_nothing(ops: dict[str, float | None]) -> None:
    """Source: Kafka's ClientQuotasRequestTest.testAlterClientQuotasRequestValidateOnly (V49), but for the last case."""
    rules: Rules = {Entity("user"): StoredRule(limits={P: 20_000.0, R: 23.45})}

    decision = ask(rules, ((("user", "user"),), ops), validate_only=True)

    assert decision.results == (Altered(0, None, (("user", "user"),)),)
    assert decision.changes == ()
    assert ask(rules, ((("user", "user"),), ops)).changes


def test_v62_removing_the_last_limit_removes_the_entity() -> None:
    """Source: Kafka's ClientQuotaControlManagerTest.testAlterAndRemove (V62)."""
    rules: Rules = {}
    entity = Entity("user-1")
    parts = (("user", "user-1"),)
    steps: list[tuple[dict[str, float | None], dict[str, float] | None]] = [
        ({P: 10_000.0}, {P: 10_000.0}),
        ({P: 10_001.0, C: 20_000.0}, {P: 10_001.0, C: 20_000.0}),
        ({P: None}, {C: 20_000.0}),
        ({R: None}, {C: 20_000.0}),
        ({C: None}, None),
        ({C: None}, None),
        ({R: 99.0, M: None, P: 10_002.0, C: 20_001.0}, {R: 99.0, P: 10_002.0, C: 20_001.0}),
    ]
    for ops, limits in steps:
        apply(rules, ask(rules, (parts, ops)))

        assert (rules[entity].limits if entity in rules else None) == limits


@pytest.mark.parametrize(
    ("entity", "message"),
    [
        ((("user", ""),), "Empty user not supported"),
        ((("client-id", ""),), "Empty client-id not supported"),
        ((("ip", ""),), "Empty ip not supported"),
        ((("", "name"),), "Unhandled client quota entity type: "),
        ((("foo", "bar"),), "Unhandled client quota entity type: foo"),
        ((("user", "user-1"), ("foo", "bar")), "Unhandled client quota entity type: foo"),
        ((("foo", "bar"), ("ip", "1.2.3.4")), "Unhandled client quota entity type: foo"),
        ((), "Invalid empty client quota entity"),
        (
            (("user", "u"), ("ip", "1.2.3.4")),
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        (
            (("ip", None), ("client-id", "c")),
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        ((("ip", "name with spaces"),), "'name with spaces' is not an IP address; write one such as 10.0.0.7"),
        ((("ip", "localhost"),), "'localhost' is not an IP address; write one such as 10.0.0.7"),
        ((("ip", "10.0.0.0/8"),), "'10.0.0.0/8' is not an IP address; write one such as 10.0.0.7"),
        ((("user", "a\udcffb"),), "The name of user is not UTF-8"),
    ],
)
def test_v52_v62_invalid_entity_has_kafkas_error(entity: EntityParts, message: str) -> None:
    """Source: ClientQuotasRequestTest (V52) and testInvalidEntityTypes (V62) in Kafka, but for the last cases."""
    for ops in ({P: 10_000.0}, {RATE: 1.0}, {}, {P: None}):
        decision = ask({}, (entity, ops))

        assert told(decision) == [(42, message)]
        assert not decision.changes


@pytest.mark.parametrize(
    ("entity", "ops", "message"),
    [
        (ALICE, {"bad": 1.0}, "Invalid configuration key bad"),
        (ALICE, {RATE: 1.0}, f"Invalid configuration key {RATE}"),
        (ALICE, {"": 1.0}, "Invalid configuration key "),
        ((("ip", "1.2.3.4"),), {P: 1.0}, f"Invalid configuration key {P}"),
        (ALICE, {P: 10_000.5}, f"{P} cannot be a fractional value."),
        (ALICE, {C: 1.000002}, f"{C} cannot be a fractional value."),
        ((("ip", None),), {RATE: 1.5}, f"{RATE} cannot be a fractional value."),
        (ALICE, {P: 0.0}, f"Quota {P} must be greater than 0"),
        (ALICE, {R: -0.0}, f"Quota {R} must be greater than 0"),
        (ALICE, {M: -1.0}, f"Quota {M} must be greater than 0"),
        (ALICE, {M: float("-inf")}, f"Quota {M} must be a finite number"),
        ((("ip", "1.2.3.4"),), {RATE: 0.0}, f"Quota {RATE} must be greater than 0"),
        (ALICE, {P: 1e19}, f"Proposed value for {P} is too large for a LONG."),
        ((("ip", "1.2.3.4"),), {RATE: 2147483648.0}, f"Proposed value for {RATE} is too large for an INT."),
        # A request with an invalid limit is refused even if it has a valid one too, in either order.
        (ALICE, {"not.a.quota.key": 0.0, R: 99.9}, "Invalid configuration key not.a.quota.key"),
        (ALICE, {R: 99.9, "not.a.quota.key": 0.0}, "Invalid configuration key not.a.quota.key"),
    ],
)
def test_v52_v62_invalid_limit_has_kafkas_error(
    entity: EntityParts, ops: dict[str, float | None], message: str
) -> None:
    """Source: ClientQuotasRequestTest (V52) and ClientQuotaControlManagerTest.testInvalidQuotaKeys (V62) in Kafka."""
    decision = ask({}, (entity, ops))

    assert told(decision) == [(42, message)]
    assert not decision.changes


def test_first_change_of_a_repeated_entity_is_made_with_one_error() -> None:
    turned = (("client-id", "client-id"), ("user", "user"))

    decision = ask({}, (PAIR, {P: 1.0}), (turned, {P: 2.0}))

    message = "Ignoring duplicate entity ClientQuotaEntity(entries={user=user, client-id=client-id})"
    assert decision.results == (Altered(42, message, PAIR),)
    assert decision.changes == (Change(Entity("user", "client-id"), StoredRule(limits={P: 1.0})),)


def test_v66_names_are_kept_as_they_are() -> None:
    """Source: testClientQuotasSanitized and testClientQuotasWithDefaultName in Kafka (V66)."""
    spaces, default = (("user", "user with spaces"),), (("client-id", "<default>"),)

    decision = ask({}, (spaces, {P: 20_000.0}), (default, {P: 20_000.0}))

    rule = StoredRule(limits={P: 20_000.0})
    assert decision.changes == (
        Change(Entity("user with spaces"), rule),
        Change(Entity(client_id="<default>"), rule),
    )


# -- rules that Kafka does not have


def test_rule_of_the_file_cannot_be_changed() -> None:
    sources = {Entity("alice"): "quotas.yaml:7", Entity(ip="::1"): "quotas.yaml:9"}
    same_address = (("ip", "0:0:0:0:0:0:0:1"),)

    decision = ask({}, (ALICE, {P: 1.0}), (PAIR, {P: 1.0}), (same_address, {RATE: 1.0}), sources=sources)

    assert told(decision) == [
        (44, "The quotas of user alice are set in quotas.yaml:7; change them there"),
        (0, None),
        (44, "The quotas of ip ::1 are set in quotas.yaml:9; change them there"),
    ]
    assert [change.entity for change in decision.changes] == [Entity("user", "client-id")]
    assert told(ask({}, (ALICE, {P: None}), sources=sources))[0][0] == 44
    # An invalid limit still has Kafka's error, and a request that changes nothing is not refused.
    assert told(ask({}, (ALICE, {P: 0.0}), sources=sources)) == [(42, f"Quota {P} must be greater than 0")]
    assert told(ask({}, (ALICE, {}), sources=sources)) == [(0, None)]


def test_more_keys_than_kafka_changes_at_a_time_are_refused_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alter, "MAX_CHANGED_KEYS", 4)
    # The results have the order of the request, and not the order in which Kafka returns them.
    entities = [(("user", "u"), ("client-id", str(number))) for number in range(3)]
    rules = {Entity("u", str(number)): StoredRule(limits={P: 1.0, C: 2.0}) for number in range(3)}

    within = ask({}, *((entity, {P: 1.0}) for entity in entities), (ALICE, {P: 1.0}))
    beyond = ask({}, (ALICE, {P: 1.0, C: 1.0}), *((entity, {P: 1.0}) for entity in entities))
    removed = ask(rules, *((entity, {P: None, C: None}) for entity in entities))
    unchanged = ask(rules, *((entity, {P: 1.0, C: 2.0}) for entity in entities))

    assert told(within) == [(0, None)] * 4
    message = "Request parameters do not satisfy the configured policy."
    assert beyond.results == tuple(Altered(44, message, entity) for entity in (ALICE, *entities))
    assert not beyond.changes
    assert told(removed) == [(44, message)] * 3
    assert told(unchanged) == [(0, None)] * 3


def test_full_store_allows_changes_but_no_new_entities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alter, "MAX_RULES", 2)
    rules = {Entity(name): StoredRule(limits={P: 1.0}) for name in ("a", "b", "c")}

    more = ask(rules, (ALICE, {P: 1.0}))
    changed = ask(rules, ((("user", "a"),), {P: 2.0}))
    less = ask(rules, ((("user", "a"),), {P: None}))
    swapped = ask(rules, ((("user", "a"),), {P: None}), (ALICE, {P: 1.0}))

    assert more.results == (Altered(44, "There are quotas of 3 entities; at most 2 are allowed", ALICE),)
    assert not more.changes
    assert [len(decision.changes) for decision in (changed, less, swapped)] == [1, 1, 2]


def test_refused_request_has_an_error_for_each_entity() -> None:
    request = AlterRequest(0, 7, (Alteration(PAIR, ()), Alteration((), ()), Alteration(PAIR, ())), False)

    assert refuse_alter(request, 31, "no") == (Altered(31, "no", PAIR), Altered(31, "no", ()), Altered(31, "no", PAIR))


# -- random requests


@given(seed=st.integers(0, 2**64))
def test_after_any_requests_each_rule_is_one_that_kafka_allows(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    rules: Rules = {}
    for _ in range(6):
        request = some_alter(random, 1)
        before = dict(rules)

        decision = decide(rules, request, {}, rules, now_ms=0)
        assert rules == before
        apply(rules, decision)

        assert request.validate_only <= (not decision.changes)
        entities = {frozenset(dict(alteration.entity).items()) for alteration in request.alterations}
        assert len(decision.results) == len(entities)
        assert {frozenset(result.entity) for result in decision.results} == entities
        for entity, rule in rules.items():
            assert rule.limits
            assert rule.limits.keys() <= keys_of(entity).keys()
            assert all(value > 0 for value in rule.limits.values())
        # The same request, sent again, changes nothing.
        if all(result.error_code == 0 for result in decision.results) and not request.validate_only:
            assert not decide(rules, request, {}, rules, now_ms=0).changes


OBSERVED: Final = Terms(enforcement=Enforcement.OBSERVE)


def test_terms_are_set_with_limits_without_or_not_at_all() -> None:
    rules: Rules = {}
    alice = Entity("alice")

    apply(rules, ask(rules, (ALICE, {P: 5.0}), terms={alice: replacement(OBSERVED)}))
    assert rules == {alice: StoredRule(limits={P: 5.0}, terms=OBSERVED)}
    apply(rules, ask(rules, (ALICE, {P: 6.0})))
    assert rules == {alice: StoredRule(limits={P: 6.0}, terms=OBSERVED)}
    assert ask(rules, (ALICE, {}), terms={alice: replacement(OBSERVED)}).changes == ()
    apply(rules, ask(rules, (ALICE, {}), terms={alice: replacement(NO_TERMS)}))
    assert rules == {alice: StoredRule(limits={P: 6.0})}
    apply(rules, ask(rules, (ALICE, {P: None}), terms={alice: replacement(NO_TERMS)}))
    assert rules == {}


END_MS: Final = 1_800_000_000_000
ENDED: Final = Terms(expires_ms=END_MS, enforcement=Enforcement.OBSERVE)


@pytest.mark.parametrize(
    ("ops", "now_ms", "rule"),
    [
        ({P: 5.0}, END_MS, StoredRule(limits={P: 5.0, C: 2.0})),
        # The rule has expired, so setting the limit that it had is a change.
        ({P: 1.0}, END_MS, StoredRule(limits={P: 1.0, C: 2.0})),
        ({P: 5.0, C: None}, END_MS + 1, StoredRule(limits={P: 5.0})),
        ({P: 5.0}, END_MS - 1, StoredRule(limits={P: 5.0, C: 2.0}, terms=ENDED)),
        ({C: None}, END_MS, StoredRule(limits={P: 1.0}, terms=ENDED)),
    ],
)
def test_a_limit_that_is_set_holds_though_the_rule_has_expired(
    ops: Mapping[str, float | None], now_ms: int, rule: StoredRule
) -> None:
    rules = {Entity("alice"): StoredRule(limits={P: 1.0, C: 2.0}, terms=ENDED)}

    decision = ask(rules, (ALICE, ops), now_ms=now_ms)
    apply(rules, decision)

    assert decision.results == (Altered(0, None, ALICE),)
    assert decision.changes == (Change(Entity("alice"), rule),)
    assert ask(rules, (ALICE, ops), now_ms=now_ms).changes == ()


def test_terms_that_fit_no_rule_are_refused() -> None:
    alice, address = Entity("alice"), Entity(ip="10.0.0.7")

    nobody = ask({}, (ALICE, {}), terms={alice: replacement(OBSERVED)})
    filed = ask({}, (ALICE, {}), terms={alice: replacement(NO_TERMS)}, sources={alice: "f.yaml:7"})
    of_ip = ask({}, ((("ip", "10.0.0.7"),), {RATE: 5.0}), terms={address: replacement(OBSERVED)})

    assert told(nobody) == [(42, "user alice has no limit that terms could apply to; set a limit")]
    assert told(filed) == [(44, "The quotas of user alice are set in f.yaml:7; change them there")]
    assert (
        told(of_ip)[0][1]
        == "Invalid terms: enforcement: is not for addresses; the setting of the listener applies to them"
    )
    assert (nobody.changes, filed.changes, of_ip.changes) == ((), (), ())


def test_each_entity_has_one_outcome() -> None:
    old = StoredRule(limits={P: 2.0})
    bob, nobody = (("user", "bob"),), (("group", "x"),)
    rules = {Entity("alice"): StoredRule(limits={P: 1.0}), Entity("bob"): old}
    asked = [(one, {P: 2.0}) for one in (ALICE, bob, ALICE, nobody)]

    decision = ask(rules, *asked)
    alice, of_bob, unknown = decision.outcomes

    assert (alice.old, alice.new, alice.error_code, alice.result) == (rules[Entity("alice")], old, 42, "applied")
    assert (of_bob.old, of_bob.new, of_bob.error_code, of_bob.result) == (old, old, 0, "unchanged")
    assert (unknown.old, unknown.new, unknown.error_code, unknown.result) == (None, None, 42, "refused")
    assert decision.before == {Entity("alice"): rules[Entity("alice")]}
    assert [one.result for one in ask(rules, *asked, validate_only=True).outcomes] == [
        "validated", "unchanged", "refused",
    ]  # fmt: skip


def test_a_request_that_is_refused_as_a_whole_has_one_outcome_for_each_entity() -> None:
    rules = {Entity("alice"): StoredRule(limits={P: 1.0})}
    request = AlterRequest(1, 7, tuple(Alteration(one, (Op(P, 2.0),)) for one in (ALICE, PAIR, ALICE)), False)

    decision = refuse(request, 44, "no", rules, {})

    assert [(one.entity, one.old, one.new, one[5:]) for one in decision.outcomes] == [
        (ALICE, rules[Entity("alice")], rules[Entity("alice")], (44, "no", "refused")),
        (PAIR, None, None, (44, "no", "refused")),
    ]
    assert decision.results == refuse_alter(request, 44, "no")
    assert not decision.changes


def test_only_changes_have_an_unknown_outcome() -> None:
    decision = with_unknown_outcome(ask({}, (ALICE, {P: 2.0}), (PAIR, {P: 0.0}), ((("user", "b"),), {})), 7, "late")

    assert [one.result for one in decision.outcomes] == ["unknown", "refused", "unchanged"]
    assert [code for code, _ in told(decision)] == [7, 42, 0]
