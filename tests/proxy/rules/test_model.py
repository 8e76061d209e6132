"""Tests entities and their names in Kafka's protocol."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import DEFAULT
from kafka_quota_proxy.proxy.rules.model import (
    CLIENT_KEYS,
    IP_KEYS,
    Entity,
    entity_of,
    is_known,
    keys_of,
    names_of,
)

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
