"""Tests the differences between two sets of rules, as lines and as changes from one set to the other."""

import json

from hypothesis import given, settings

from kafka_quota_proxy.protocol.client_quotas import AlterRequest
from kafka_quota_proxy.proxy.cli.quotas.rules_file import changes_of, differences, lines
from kafka_quota_proxy.proxy.rules.alter import decide
from kafka_quota_proxy.proxy.rules.codec import RequestedChanges, read_changes, written_changes
from kafka_quota_proxy.proxy.rules.model import Entity, StoredRule, apply
from tests.support.cases import FEW_EXAMPLES
from tests.support.quota_rules import some_rules

P, C = "producer_byte_rate", "consumer_byte_rate"
Rules = dict[Entity, StoredRule]


@settings(max_examples=40)
@given(some_rules, some_rules)
def test_changes_produce_the_new_rules(old: Rules, wanted: Rules) -> None:
    new = {entity: None for entity in old if entity not in wanted} | wanted
    asked = changes_of(differences(old, new), is_dry_run=False)

    read = read_changes(json.loads(written_changes(asked)))
    rules = dict(old)
    request = AlterRequest(0, 0, read.alterations, False)
    decision = decide(rules, request, {}, rules, now_ms=0, terms=read.terms)
    apply(rules, decision.changes)

    # Random terms may not fit the limits. Those are refused.
    refused = {result.entity for result in decision.results if result.error_code}
    assert refused == set() or any("Invalid terms" in str(result.error_message) for result in decision.results)
    for entity in new:
        is_refused = any(dict(parts) == _names(entity) for parts in refused)
        assert rules.get(entity) == (old.get(entity) if is_refused else wanted.get(entity))


def _names(entity: Entity) -> dict[str, str | None]:
    parts = zip(("user", "client-id", "ip"), entity, strict=True)
    return {kind: name if isinstance(name, str) else None for kind, name in parts if name is not None}


@FEW_EXAMPLES
@given(some_rules)
def test_equal_rules_need_no_change(rules: Rules) -> None:
    assert differences(rules, rules) == ()
    assert changes_of((), is_dry_run=True) == RequestedChanges((), {}, True)


@given(some_rules, some_rules)
def test_each_difference_has_a_line_and_no_line_a_control_character(old: Rules, new: Rules) -> None:
    for difference in differences(old, new):
        differing = list(lines(difference))
        assert differing
        assert all(line[0] in "+~-" and line.isprintable() for line in differing)
