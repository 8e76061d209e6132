"""Tests how a broker's quotas become rules: every form of entity, values without effect, and unknown keys."""

from random import Random

import pytest

from kafka_quota_proxy.config.model import DEFAULT
from kafka_quota_proxy.config.units import UNLIMITED
from kafka_quota_proxy.protocol.client_quotas import Described, DescribeRequest, DescribeResponse
from kafka_quota_proxy.proxy.rules.alter import decide
from kafka_quota_proxy.proxy.rules.broker.broker_rules import RefusedError, rules_of
from kafka_quota_proxy.proxy.rules.describe import describe
from kafka_quota_proxy.proxy.rules.model import Entity, StoredRule, apply, differences
from tests.support.quota_requests import some_alter

P = "producer_byte_rate"
NO_LIMIT = float(UNLIMITED)


def told(*entries: tuple[tuple[tuple[str, str | None], ...], dict[str, float]]) -> DescribeResponse:
    described = tuple(Described(entity, tuple(values.items())) for entity, values in entries)
    return DescribeResponse(0, 0, None, described)


def rule(**limits: float) -> StoredRule:
    return StoredRule(limits=limits)


def test_an_address_rate_of_0_admits_no_connection() -> None:
    found = rules_of(
        told(
            ((("ip", "::ffff:10.0.0.7"),), {"connection_creation_rate": 0.0}),
            ((("ip", None),), {"connection_creation_rate": 9.0}),
        )
    )

    assert found.rules == {
        Entity(ip="10.0.0.7"): rule(connection_creation_rate=0.0),
        Entity(ip=DEFAULT): rule(connection_creation_rate=9.0),
    }
    assert found.passed_over == ()


def test_unknown_keys_and_invalid_rates_are_skipped_and_logged() -> None:
    found = rules_of(
        told(
            ((("user", "alice"),), {P: 5.0, "new_rate": 7.0, "consumer_byte_rate": 0.0}),
            ((("user", "bob"),), {"new_rate": 7.0}),
            ((("group", "g"),), {P: 5.0}),
            ((("ip", "10.0.0.7"), ("user", "alice")), {P: 5.0}),
            ((("ip", "host.example"),), {"connection_creation_rate": 5.0}),
            ((), {P: 5.0}),
        )
    )

    assert found.rules == {Entity(user="alice"): rule(producer_byte_rate=5.0)}
    assert found.passed_over == (
        "the unknown key new_rate",
        "consumer_byte_rate=0 of user alice: is not a rate above 0",
        "an entity of 'group', which is not supported",
        "an entity of 'ip' and 'user', which is not supported",
        "the quotas of ip host.example, as 'host.example' is not an IP address; write one such as 10.0.0.7",
        "an entity of no type, which is not supported",
    )


def test_entities_above_the_bound_are_skipped() -> None:
    found = rules_of(told(*(((("user", f"u{n}"),), {P: 5.0}) for n in range(5))), most=3)

    assert len(found.rules) == 3
    assert found.passed_over == ("there are more than 3 entities: the others have no rule at this proxy",)


def test_missing_authorization_names_the_needed_right() -> None:
    refused = DescribeResponse(0, 31, "Cluster authorization failed.", None)
    with pytest.raises(RefusedError, match="--operation DescribeConfigs --cluster") as caught:
        rules_of(refused)
    assert caught.value.is_lasting

    with pytest.raises(RefusedError, match="the broker answers with error 42") as caught:
        rules_of(DescribeResponse(0, 42, None, None))
    assert not caught.value.is_lasting


@pytest.mark.parametrize("seed", range(50))
def test_differences_turn_the_old_rules_into_the_new(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    rules: dict[Entity, StoredRule] = {}
    followed: dict[Entity, StoredRule] = {}
    for _ in range(20):
        apply(rules, decide(rules, some_alter(random, 1), {}, rules, now_ms=0).changes)
        now = rules_of(describe(rules, DescribeRequest(1, 1, (), False))).rules
        changes = differences(followed, now)
        assert len({entity for entity, _ in changes}) == len(changes)
        assert all(followed.get(entity) != rule for entity, rule in changes)
        apply(followed, changes)
        assert followed == now
    assert followed == rules
