"""Tests entities: their names, their texts, and what became of a change of each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import DEFAULT
from kafka_quota_proxy.config.quota_kinds import parse_limit
from kafka_quota_proxy.proxy.rules.model import (
    CLIENT_KEYS,
    IP_KEYS,
    Entity,
    StoredRule,
    entity_of,
    is_known,
    keys_of,
    names_of,
)
from kafka_quota_proxy.proxy.rules.text import in_order, shown_entity, shown_limit, shown_limits
from tests.support.quota_rules import names

NAMES = st.one_of(st.none(), st.text(min_size=1, max_size=8))


@given(names=st.dictionaries(st.sampled_from(["user", "client-id"]), NAMES, min_size=1))
def test_names_that_were_read_are_written(names: dict[str, str | None]) -> None:
    assert names_of(entity_of(names)) == names


def test_user_with_the_name_of_the_default_is_not_the_default() -> None:
    literal, default = entity_of({"user": "<default>"}), entity_of({"user": None})

    assert literal != default
    assert {literal: 1, default: 2}[literal] == 1
    assert (names_of(literal), names_of(default)) == ({"user": "<default>"}, {"user": None})


@pytest.mark.parametrize(
    ("entity", "keys"),
    [
        (Entity(user="u"), CLIENT_KEYS),
        (Entity(client_id=DEFAULT), CLIENT_KEYS),
        (Entity(user="u", client_id="c"), CLIENT_KEYS),
        (Entity(ip=DEFAULT), IP_KEYS),
    ],
)
def test_v62_addresses_have_one_key_and_all_others_four(entity: Entity, keys: object) -> None:
    """Source: Kafka's ClientQuotaControlManagerTest.testConfigKeysForEntityType (V62)."""
    assert keys_of(entity) is keys
    assert (len(CLIENT_KEYS), list(IP_KEYS)) == (4, ["connection_creation_rate"])


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"user": "alice", "client-id": None}, True),
        ({"ip": "10.0.0.7"}, True),
        ({"ip": None}, True),
        ({"ip": "host.example"}, False),
        ({"ip": "10.0.0.0/8"}, False),
        ({"ip": "10.0.0.7", "user": "alice"}, False),
        ({"group": "g"}, False),
        ({}, False),
    ],
)
def test_host_names_and_other_types_have_no_rules(names: dict[str, str | None], expected: bool) -> None:
    assert is_known(names) is expected


P, C, R = "producer_byte_rate", "consumer_byte_rate", "request_percentage"


@pytest.mark.parametrize(
    ("entity", "shown"),
    [
        (Entity("alice", DEFAULT), "user alice, client-id <default>"),
        (Entity(DEFAULT), "user <default>"),
        (Entity("<default>"), 'user "<default>"'),
        (Entity("a, client-id b"), 'user "a, client-id b"'),
        (Entity("CN=né"), "user CN=né"),
        (Entity("\x1b[31m"), 'user "\\u001b[31m"'),
        (Entity(ip="10.0.0.7"), "ip 10.0.0.7"),
    ],
)
def test_entities_are_written_distinctly(entity: Entity, shown: str) -> None:
    assert shown_entity(entity) == shown


@given(names, names)
def test_control_characters_of_names_are_escaped(user: str, client_id: str) -> None:
    assert shown_entity(Entity(user, client_id)).isprintable()


@given(st.floats(1e-12, 2**31 - 1) | st.integers(1, 2**53).map(float))
def test_written_limit_reads_back_exactly(value: float) -> None:
    for key in (P, R):
        if key == P or value <= 2**31 - 1:
            assert parse_limit(key, shown_limit(key, value)) == value


def test_limits_are_in_the_order_of_the_documentation() -> None:
    limits = {R: 12.5, "new_key": 1.0, C: 1e6, P: float(2**63 - 1)}

    assert [key for key, _ in in_order(limits)] == [P, C, R, "new_key"]
    assert shown_limits(StoredRule(limits=limits)) == (f"{P}=9223372036854775807 {C}=1MB {R}=12.5 new_key=1")
