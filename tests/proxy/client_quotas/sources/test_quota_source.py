"""Tests the interface of sources of rules, for topics and for brokers."""

from dataclasses import replace

from kafka_quota_proxy.config.model import Address, Listener, ProxyConfig, QuotaRule, QuotasFromBroker
from kafka_quota_proxy.proxy.client_quotas.sources.broker_source import BrokerSource
from kafka_quota_proxy.proxy.client_quotas.sources.quota_source import QuotaSource
from kafka_quota_proxy.proxy.client_quotas.sources.topic_source import TopicSource
from kafka_quota_proxy.proxy.quota.rule_changes import QuotaChanges
from tests.proxy.client_quotas.sources.test_topic_source import SETTINGS
from tests.support.playbook import Playbook

_CONFIG = ProxyConfig(listeners=(Listener(name="a", bind=Address(host="h", port=9092)),))
_RULE = QuotaRule(user="alice", producer_byte_rate=1_000.0, source="c.yaml:7")


async def test_each_source_says_that_it_is_unread_and_takes_the_rules_of_a_new_file() -> None:
    topic: QuotaSource = TopicSource(SETTINGS, (), on_changes=lambda _: None, reader=Playbook)
    brokers: QuotaSource = BrokerSource(QuotasFromBroker(), _CONFIG, (), on_changes=lambda *_: None)
    changed = []
    for source in (topic, brokers):
        assert (source.is_connected, source.failures) == (False, 0)
        assert not source.has_read.is_set()
        assert not source.may_serve.is_set()
        assert {"connected": False, "read": False}.items() <= source.detail().items()
        changed.append(source.follow_file(replace(_CONFIG, quotas=(_RULE,))))

    of_topic, of_brokers = changed
    assert of_topic == QuotaChanges({}, {})  # the rule hides none of the topic
    assert dict(of_brokers.rules) == {("alice", None): _RULE}
