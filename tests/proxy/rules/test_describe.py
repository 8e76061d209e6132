"""Tests which rules match a filter, against Kafka's own cases and a simple oracle, and Kafka's errors."""

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import DEFAULT, EntityName
from kafka_quota_proxy.protocol.client_quotas import (
    MATCH_DEFAULT,
    MATCH_EXACT,
    MATCH_SPECIFIED,
    Component,
    Described,
    DescribeRequest,
    DescribeResponse,
)
from kafka_quota_proxy.proxy.rules.describe import describe, refuse_describe
from kafka_quota_proxy.proxy.rules.model import ENTITY_TYPES, Entity, StoredRule, entity_of
from tests.support.quota_requests import some_describe

# The user, client-id and request_percentage of the rules in ClientQuotasRequestTest.
MATCHED: list[tuple[EntityName, EntityName, float]] = [
    ("user-1", "client-id-1", 50.50),
    ("user-2", "client-id-1", 51.51),
    ("user-3", "client-id-2", 52.52),
    (DEFAULT, "client-id-1", 53.53),
    ("user-1", DEFAULT, 54.54),
    ("user-3", DEFAULT, 55.55),
    ("user-1", None, 56.56),
    ("user-2", None, 57.57),
    ("user-3", None, 58.58),
    (DEFAULT, None, 59.59),
    (None, "client-id-2", 60.60),
]
RULES: Mapping[Entity, StoredRule] = {
    Entity(user, client_id): StoredRule(limits={"request_percentage": limit}) for user, client_id, limit in MATCHED
}
IP_RULES: Mapping[Entity, StoredRule] = {
    Entity(ip=ip): StoredRule(limits={"connection_creation_rate": 100.0}) for ip in ("1.2.3.4", DEFAULT)
}


def exact(entity_type: str, name: str) -> Component:
    return Component(entity_type, MATCH_EXACT, name)


def default(entity_type: str) -> Component:
    return Component(entity_type, MATCH_DEFAULT, None)


def any_of(entity_type: str) -> Component:
    return Component(entity_type, MATCH_SPECIFIED, None)


def ask(*components: Component, strict: bool, rules: Mapping[Entity, StoredRule] = RULES) -> DescribeResponse:
    return describe(rules, DescribeRequest(1, 7, components, strict))


def limits(response: DescribeResponse) -> list[float]:
    """Return the limits in the response. They identify the rules, because no two rules have the same limit."""
    assert (response.error_code, response.error_message) == (0, "")
    assert response.entries is not None
    return sorted(value for entry in response.entries for _, value in entry.values)


def components_of(entity: Entity) -> list[Component]:
    named = zip(ENTITY_TYPES, entity, strict=True)
    return [default(kind) if name is DEFAULT else exact(kind, str(name)) for kind, name in named if name is not None]


@pytest.mark.parametrize(("user", "client_id", "limit"), MATCHED)
def test_v51_each_entity_is_found_by_its_own_filter(user: EntityName, client_id: EntityName, limit: float) -> None:
    """Source: Kafka's ClientQuotasRequestTest.testDescribeClientQuotasMatchExact (V51)."""
    entity = Entity(user, client_id)

    response = ask(*components_of(entity), strict=True)

    assert limits(response) == [limit]
    assert response.entries
    assert [name for _, name in response.entries[0].entity] == [
        None if name is DEFAULT else name for name in (user, client_id) if name is not None
    ]


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([exact("user", "user-1")], False, [50.50, 54.54, 56.56]),
        ([exact("user", "unknown")], False, []),
        ([exact("client-id", "client-id-2")], False, [52.52, 60.60]),
        ([default("user")], False, [53.53, 59.59]),
        ([exact("user", "user-2")], True, [57.57]),
        ([exact("client-id", "client-id-1")], True, []),
        ([any_of("user")], True, [56.56, 57.57, 58.58, 59.59]),
        ([any_of("user")], False, [limit for user, _, limit in MATCHED if user is not None]),
        ([any_of("client-id")], True, [60.60]),
        ([any_of("client-id")], False, [limit for _, client_id, limit in MATCHED if client_id is not None]),
        ([], False, [limit for _, _, limit in MATCHED]),
        ([], True, []),
        ([any_of("user"), default("client-id")], True, [54.54, 55.55]),
    ],
)
def test_v50_filters_match_in_part(components: list[Component], strict: bool, found: list[float]) -> None:
    """Source: Kafka's ClientQuotasRequestTest.testDescribeClientQuotasMatchPartial (V50), but for the last case."""
    assert limits(ask(*components, strict=strict)) == sorted(found)


@pytest.mark.parametrize("at_once", [1, 2, 2_000])
def test_answers_are_sorted_by_entity_and_key(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_quota_proxy.proxy.rules.describe._AT_ONCE", at_once)
    entities = [
        Entity(ip=DEFAULT),
        Entity(ip="10.0.0.7"),
        Entity(client_id="a"),
        Entity(DEFAULT),
        Entity("alice"),
        Entity("alice", DEFAULT),
        Entity("alice", "etl"),
        Entity("bob"),
    ]
    keys = ["consumer_byte_rate", "producer_byte_rate"]
    for turned in (entities, entities[::-1], entities[3:] + entities[:3]):
        rules = {entity: StoredRule(limits=dict.fromkeys(reversed(keys), 1.0)) for entity in turned}

        response = ask(strict=False, rules=rules)

        assert response.entries
        assert [entity_of(dict(entry.entity)) for entry in response.entries] == entities
        assert response.entries[6] == Described(
            (("user", "alice"), ("client-id", "etl")), tuple((key, 1.0) for key in keys)
        )


def test_v54_any_address_is_each_that_has_a_rule_and_the_default() -> None:
    """Source: Kafka's ClientQuotasRequestTest.testAlterIpQuotasRequest (V54)."""
    response = ask(any_of("ip"), strict=True, rules=IP_RULES)

    values = (("connection_creation_rate", 100.0),)
    assert response.entries == (Described((("ip", None),), values), Described((("ip", "1.2.3.4"),), values))
    assert limits(ask(any_of("ip"), strict=True)) == []
    assert limits(ask(exact("ip", "::ffff:1.2.3.4"), strict=True, rules=IP_RULES)) == [100.0]


def test_v66_client_with_the_name_of_the_default_is_not_the_default() -> None:
    """Source: Kafka's ClientQuotasRequestTest.testClientQuotasWithDefaultName (V66)."""
    rules = {Entity(client_id="<default>"): StoredRule(limits={"producer_byte_rate": 20_000.0})}

    assert limits(ask(default("client-id"), strict=True, rules=rules)) == []
    assert limits(ask(exact("client-id", "<default>"), strict=True, rules=rules)) == [20_000.0]


@pytest.mark.parametrize(
    ("components", "error_code", "message"),
    [
        ([exact("", "x")], 42, "Invalid empty entity type."),
        ([exact("user", "a"), any_of("user")], 42, "Entity type user cannot appear more than once in the filter."),
        ([exact("other", "name")], 35, "Unsupported entity type other"),
        ([Component("user", 0, None)], 42, "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        (
            [Component("user", 1, "a")],
            42,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            [Component("user", 2, "")],
            42,
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        ([Component("user", 3, None)], 42, "Unknown match type 3"),
        ([Component("user", -1, "a")], 42, "Unknown match type -1"),
        # Of several faults, the first one is reported.
        ([exact("user", "a"), exact("other", "x"), exact("", "x")], 35, "Unsupported entity type other"),
    ],
)
def test_v52_invalid_filter_has_kafkas_error(components: list[Component], error_code: int, message: str) -> None:
    """Source: Kafka's testClientQuotasUnsupportedEntityTypes (V52) and ClientQuotasImage.describe."""
    assert ask(*components, strict=True) == DescribeResponse(0, error_code, message, None)


@pytest.mark.parametrize("other", [any_of("user"), exact("client-id", "c"), default("user")])
@pytest.mark.parametrize("strict", [False, True])
def test_v52_addresses_stand_alone_in_a_filter(other: Component, strict: bool) -> None:
    """Source: Kafka's ClientQuotasRequestTest.testDescribeClientQuotasInvalidFilterCombination (V52)."""
    for components in ((any_of("ip"), other), (other, exact("ip", "1.2.3.4"))):
        response = ask(*components, strict=strict)

        assert response.error_code == 42
        assert str(response.error_message).startswith("Invalid entity filter component combination.")


@given(seed=st.integers(0, 2**64))
def test_found_entities_are_those_that_match_one_by_one(seed: int) -> None:
    """The test applies the rule of KIP-546 to each entity."""
    random = Random(seed)  # noqa: S311
    names: list[EntityName] = ["alice", "bob", DEFAULT, "<default>"]
    entities = [Entity(random.choice([None, *names]), random.choice(names)) for _ in range(6)]
    addresses: list[EntityName] = ["10.0.0.7", DEFAULT]
    entities.append(Entity(ip=random.choice(addresses)))
    rules = {entity: StoredRule(limits={"a": 1.0}) for entity in entities}
    request = some_describe(random, 1)

    response = describe(rules, request)

    if response.entries is None:
        assert response.error_code in (35, 42)
        return
    found = {frozenset(entry.entity) for entry in response.entries}
    for entity in rules:
        parts = {k: None if n is DEFAULT else n for k, n in zip(ENTITY_TYPES, entity, strict=True) if n is not None}
        fits = all(
            kind in parts and (match_type == MATCH_SPECIFIED or parts[kind] == match)
            for kind, match_type, match in request.components
        )
        if request.is_strict:
            fits = fits and len(parts) == len(request.components) > 0
        assert (frozenset(parts.items()) in found) == fits


def test_unauthorized_describe_is_refused() -> None:
    assert refuse_describe(31, "Cluster authorization failed.") == DescribeResponse(
        0, 31, "Cluster authorization failed.", None
    )
