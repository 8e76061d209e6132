"""Tests changes and rules as JSON. Other JSON is refused with the place and the reason."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.addresses import parse_ip
from kafka_quota_proxy.config.model import DEFAULT, Enforcement, Shaping
from kafka_quota_proxy.config.schedule import Ramp, Schedule
from kafka_quota_proxy.config.strict_json import StrictJsonError, parse_json
from kafka_quota_proxy.config.terms import NO_TERMS, Terms, TermsChange
from kafka_quota_proxy.protocol.client_quotas import Alteration, Op
from kafka_quota_proxy.proxy.rules.alter import REFUSED, UNKNOWN, Outcome
from kafka_quota_proxy.proxy.rules.codec import (
    JsonFormError,
    RequestedChanges,
    Result,
    decode_entity,
    decode_rule,
    encode_entity,
    encode_rule,
    read_changes,
    read_results,
    read_rules,
    read_status,
    status_as_json,
    written_changes,
    written_results,
)
from kafka_quota_proxy.proxy.rules.effective import RuleStatus
from kafka_quota_proxy.proxy.rules.model import Entity, StoredRule, keys_of

P = "producer_byte_rate"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[]", "(body): must be an object"),
        (b'{"changes":[],"when":1}', "(body): 'when' is unknown; known: changes, dry_run"),
        (b'{"changes":{}}', "changes: must be a list"),
        (b'{"changes":[],"dry_run":1}', "dry_run: must be true or false"),
        (b'{"changes":[7]}', "changes[0]: must be an object"),
        (b'{"changes":[{"entity":{"user":"a"}}]}', "changes[0].limits: is missing"),
        (b'{"changes":[{"entity":{},"limits":{}}]}', "changes[0].entity: names no user, client-id or ip"),
        (
            b'{"changes":[{"entity":{"ip":"host.example"},"limits":{}}]}',
            "changes[0].entity.ip: 'host.example' is not an IP address; write one such as 10.0.0.7",
        ),
        (
            b'{"changes":[{"entity":{"ip":"::1"},"limits":{}},{"entity":{"ip":"::0001"},"limits":{}}]}',
            "changes[1].entity: is given twice",
        ),
        (b'{"changes":[{"entity":{"group":"a"},"limits":{}}]}', "changes[0].entity: 'group' is not an entity type"),
        (
            b'{"changes":[{"entity":{"user":"' + b"a" * 32_768 + b'"},"limits":{}}]}',
            "changes[0].entity.user: names have at most 32767 bytes",
        ),
        (b'{"changes":[{"entity":{"user":7},"limits":{}}]}', "changes[0].entity.user: must be text, or null"),
        (b'{"changes":[{"entity":{"user":"a"},"limits":{"x":"1"}}]}', "changes[0].limits: 'x' must be a number"),
        (b'{"changes":[{"entity":{"user":"a"},"limits":{"x":true}}]}', "changes[0].limits: 'x' must be a number"),
        (
            b'{"changes":[{"entity":{"user":"a"},"limits":{}},{"entity":{"user":"a"},"limits":{}}]}',
            "changes[1].entity: is given twice",
        ),
        (b'{"changes":[{"entity":{"user":"a"},"limits":{},"terms":{"ramp":1}}]}', "changes[0].terms.ramp: must be"),
        (b'{"changes":[{"entity":{"user":"a"},"limits":{},"terms":1}]}', "changes[0].terms: must be a mapping"),
    ],
)
def test_malformed_change_is_refused_with_its_place(body: bytes, said: str) -> None:
    with pytest.raises(JsonFormError) as caught:
        read_changes(parse_json(body))

    assert str(caught.value).startswith(said)


def test_number_beyond_floats_is_read_as_infinity() -> None:
    body = b'{"changes":[{"entity":{"user":"a"},"limits":{"x":1' + b"0" * 400 + b"}}]}"

    ((alteration,), _, _) = read_changes(parse_json(body))

    assert alteration.ops[0].value == float("inf")


values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["changes", "entity", "limits", "terms", "dry_run", "user", "ip", P, "rules", "results", "old"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.binary(max_size=60) | values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_read_or_refused_with_a_message(data: bytes) -> None:
    for reads in (read_rules, read_results):
        with suppress(JsonFormError):
            reads(data)
    with suppress(JsonFormError, StrictJsonError):
        read_changes(parse_json(data))


NAMES = st.one_of(st.just(DEFAULT), st.text(min_size=1, max_size=8))
ENTITIES = st.one_of(
    st.builds(Entity, NAMES, st.one_of(st.none(), NAMES), st.none()),
    st.builds(Entity, st.none(), NAMES, st.none()),
    st.builds(Entity, st.none(), st.none(), st.just(DEFAULT) | st.ip_addresses().map(str).map(parse_ip)),
)
LIMITS = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
TERMS = st.sampled_from(
    [
        NO_TERMS,
        Terms(enforcement=Enforcement.OBSERVE, shaping=Shaping.PACED, expires_ms=1_800_000_000_000),
        Terms(
            schedule=Schedule(
                time_zone="Europe/Berlin", days=frozenset({0, 5}), begin_minute=1, otherwise=(("connections", 1),)
            ),
            ramp=Ramp(start=(("producer_byte_rate", 5.0),), begins_ms=1_800_000_000_000, over_ms=1_000, steps=3),
        ),
    ]
)
ALICE = Entity("alice")


@given(data=st.data(), entity=ENTITIES, terms=TERMS)
def test_rule_that_was_written_is_read(data: st.DataObject, entity: Entity, terms: Terms) -> None:
    limits = data.draw(st.dictionaries(st.sampled_from(sorted(keys_of(entity))), LIMITS, min_size=1))
    rule = StoredRule(limits=limits, terms=terms)

    assert decode_entity(encode_entity(entity).encode()) == entity
    assert decode_rule(entity, encode_rule(rule).encode()) == rule


def test_rule_is_written_as_the_api_has_it() -> None:
    rule = StoredRule(limits={"producer_byte_rate": 5.0}, terms=Terms(expires_ms=1_800_000_000_000))

    assert encode_entity(Entity("alice", DEFAULT)) == '{"user":"alice","client-id":null}'
    assert encode_rule(rule) == '{"limits":{"producer_byte_rate":5.0},"terms":{"expires":"2027-01-15T08:00:00Z"}}'


@pytest.mark.parametrize(
    "names",
    [
        None,
        7,
        [],
        {},
        {"topic": "t"},
        {"user": ""},
        {"user": 7},
        {"ip": "::1", "user": "a"},
        {"ip": "host.example"},
        {"ip": "::0001"},
    ],
)
def test_other_json_is_not_an_entity(names: object) -> None:
    with pytest.raises(JsonFormError):
        decode_entity(json.dumps(names).encode())


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (None, "a rule has limits, and may have terms"),
        ([], "a rule has limits, and may have terms"),
        ({}, "a rule has limits, and may have terms"),
        ({"limits": {"producer_byte_rate": 1.0}, "more": 1}, "a rule has limits, and may have terms"),
        ({"limits": None}, "a rule has no limits"),
        ({"limits": 7}, "a rule has no limits"),
        ({"limits": {}}, "a rule has no limits"),
        ({"limits": {"connection_creation_rate": 1.0}}, "'connection_creation_rate' is not a key of user alice"),
        *(
            ({"limits": {"producer_byte_rate": value}}, "producer_byte_rate is not a number above 0")
            for value in (None, "1", True, 0, -1.0, [1.0])
        ),
        (
            {"limits": {"producer_byte_rate": 1.0}, "terms": {"expires": "soon"}},
            "terms of user alice: expires: 'soon' is not an instant",
        ),
    ],
)
def test_other_json_is_not_a_rule(rule: object, message: str) -> None:
    with pytest.raises(JsonFormError, match=message):
        decode_rule(ALICE, json.dumps(rule).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000])
def test_other_bytes_are_not_json(data: bytes) -> None:
    with pytest.raises(JsonFormError, match="not JSON"):
        decode_entity(data)


def test_changes_that_were_written_are_read() -> None:
    ops = (Op(P, 5.0), Op("consumer_byte_rate", None))
    changes = RequestedChanges(
        (Alteration((("user", "alice"),), ops), Alteration((("client-id", None),), ())),
        {ALICE: TermsChange(removed=frozenset({"ramp"}))},
        is_dry_run=True,
    )

    assert read_changes(parse_json(written_changes(changes))) == changes


def test_null_instead_of_limits_removes_all() -> None:
    ((alteration,), _, _) = read_changes(parse_json(b'{"changes":[{"entity":{"user":"alice"},"limits":null}]}'))

    assert alteration.ops == tuple(Op(key, None) for key in keys_of(ALICE))


@pytest.mark.parametrize(
    ("code", "is_unknown", "error"), [(0, False, None), (42, False, "no"), (42, True, "no")], ids=str
)
def test_results_that_were_written_are_read(code: int, is_unknown: bool, error: str | None) -> None:
    new = StoredRule(limits={P: 5.0}, terms=NO_TERMS)
    outcome = Outcome((("user", "alice"),), (), None, None, new, code, error, UNKNOWN if is_unknown else REFUSED)

    written = "".join(written_results([outcome, outcome], is_dry_run=False))

    assert read_results(written.encode()) == [Result(ALICE, None, new, error, is_unknown)] * 2
    assert json.loads("".join(written_results([], is_dry_run=True))) == {"dry_run": True, "results": []}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"rules": [{"entity": {"user": "a"}, "limits": {}}]}, "rules[0].limits: must be at least one key"),
        ({"rules": [{"entity": {"user": "a"}, "limits": {P: None}}]}, "rules[0].limits: must be at least one key"),
        ({"rules": [{"entity": {"user": "a"}, "limits": {P: 1}}] * 2}, "rules[1].entity: has two rules"),
    ],
)
def test_malformed_list_of_rules_is_refused_with_its_place(body: object, said: str) -> None:
    with pytest.raises(JsonFormError) as caught:
        read_rules(json.dumps(body).encode())

    assert str(caught.value).startswith(said)


def test_hidden_rules_are_read() -> None:
    rule = {"entity": {"user": "alice"}, "limits": {P: 1}}
    body = json.dumps({"rules": [rule, {**rule, "shadowed_by": "proxy.yaml:7"}]}).encode()

    assert len(read_rules(body)) == 2


@pytest.mark.parametrize("status", [RuleStatus(None, "not yet"), RuleStatus({P: 5.0}, "")])
def test_status_that_was_written_is_read(status: RuleStatus) -> None:
    assert read_status(status_as_json(status)) == status
    assert read_status(None) is None


def test_other_json_is_no_status() -> None:
    with pytest.raises(JsonFormError, match="now: must have limits and why"):
        read_status({"limits": None})
