"""Tests that explanations agree with the rules that the proxy applies."""

from kafka_quota_proxy.config.load import load_bytes
from kafka_quota_proxy.config.model import Enforcement, Shaping
from kafka_quota_proxy.proxy.cli.explanation.model import Rules
from kafka_quota_proxy.proxy.cli.explanation.resolve import explain
from tests.support.eight_levels import CONFIG


def rules_of(text: str) -> Rules:
    loaded = load_bytes(text.encode(), file="c.yaml")
    return Rules(config=loaded.config, kafka_sources=loaded.kafka_sources, timed={}, now_ms=0)


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
