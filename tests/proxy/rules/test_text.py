"""Tests how entities and limits are written as text: exactly, and without control characters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import DEFAULT
from kafka_quota_proxy.config.quota_kinds import parse_limit
from kafka_quota_proxy.proxy.rules.model import Entity, StoredRule
from kafka_quota_proxy.proxy.rules.text import in_order, shown_entity, shown_limit, shown_limits
from tests.support.quota_rules import names

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
