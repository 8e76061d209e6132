"""Tests that explanations agree with the rules that the proxy applies."""

import pytest

from kafka_quota_proxy.config.load import load_bytes
from kafka_quota_proxy.config.model import Enforcement, Shaping
from kafka_quota_proxy.proxy.cli.explanation.model import Rules
from kafka_quota_proxy.proxy.cli.explanation.resolve import explain
from tests.support.eight_levels import CONFIG

FOR_OTHERS = "{ip: <default>, connection_creation_rate: 5}"


def rules_of(text: str) -> Rules:
    loaded = load_bytes(text.encode(), file="c.yaml")
    return Rules(config=loaded.config, kafka_sources=loaded.kafka_sources, timed={}, now_ms=0)


@pytest.mark.parametrize(
    ("user", "client_id", "level", "limit", "bucket"),
    [
        ("alice", "etl", 1, 10 * 2**20, ("alice", "etl")),
        ("alice", "other", 2, 5 * 2**20, ("alice", "other")),
        ("bob", "etl", 6, 2**20, ("bob", "")),
        ("alice-77", "etl", 1, 10 * 2**20, ("alice", "etl")),
    ],
)
def test_the_most_specific_rule_wins(
    user: str, client_id: str, level: int, limit: int, bucket: tuple[str, str]
) -> None:
    produce, *_ = explain(rules_of(CONFIG), user=user, client_id=client_id).verdicts

    assert produce.level is not None
    assert (produce.level.number, produce.limit, produce.bucket) == (level, limit, bucket)


def test_rules_that_lost_have_their_reasons() -> None:
    produce, fetch, *_ = explain(rules_of(CONFIG), user="alice", client_id="etl").verdicts

    assert [(lost.level and lost.level.number, lost.rule.source, lost.reason) for lost in produce.lost] == [
        (2, "c.yaml:9", "level 1 (user, client-id) is more specific"),
        (6, "c.yaml:10", "level 1 (user, client-id) is more specific"),
        (7, "c.yaml:11", "level 1 (user, client-id) is more specific"),
    ]
    assert [(lost.level and lost.level.number, lost.rule.source) for lost in fetch.lost] == [(8, "c.yaml:6")]


def test_enforcement_of_a_rule_overrides_the_listener_and_that_the_file() -> None:
    rules = rules_of(CONFIG)

    by_rule, *_ = explain(rules, user="bob", client_id="x").verdicts
    by_listener, *_ = explain(rules, user="alice", client_id="x").verdicts

    assert [at.enforcement for at in by_rule.at_listeners] == [Enforcement.DELAY, Enforcement.DELAY]
    assert [at.enforcement for at in by_listener.at_listeners] == [Enforcement.RESPOND, Enforcement.OBSERVE]
    assert [at.shaping for at in by_listener.at_listeners] == [Shaping.SAMPLED, Shaping.PACED]


def test_a_fetch_is_capped_at_a_window_or_a_burst_unless_observed() -> None:
    fetching = "{client-id: etl, consumer_byte_rate: 1MB, enforcement: respond}"
    enforced = rules_of(CONFIG.replace("{client-id: etl, producer_byte_rate: 3MiB}", fetching))

    _, fetch, *_ = explain(enforced, user="bob", client_id="etl").verdicts
    _, observed, *_ = explain(rules_of(CONFIG), user="bob", client_id="etl").verdicts

    assert [at.max_fetch_bytes for at in fetch.at_listeners] == [10_000_000, 2_000_000]
    assert [at.max_fetch_bytes for at in observed.at_listeners] == [20_000_000, None]


def test_an_address_without_a_rule_has_the_default_rule_or_none() -> None:
    with_default = rules_of(CONFIG.replace("{client-id: etl, producer_byte_rate: 3MiB}", FOR_OTHERS))

    found = explain(with_default, user="alice", client_id="", ip="10.0.0.8").of_ip
    nothing = explain(rules_of(CONFIG), user="alice", client_id="", ip="10.0.0.8").of_ip

    assert found is not None
    assert found.rule is not None
    assert (found.rule.source, found.lost) == ("c.yaml:11", ())
    assert nothing is not None
    assert nothing.rule is None
