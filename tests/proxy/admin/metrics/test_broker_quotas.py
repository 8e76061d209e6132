"""The metrics of the brokers' quotas: there where these are the rules, with what is known of them."""

from math import isnan

from kafka_quota_proxy.config.model import Address, Listener, ProxyConfig, QuotaRule, QuotasFromBroker
from kafka_quota_proxy.proxy.admin.metrics.quota_sources import broker_quota_metrics
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.client_quotas.sources.broker_source import BrokerSource

LISTENER = Listener(name="a", bind=Address(host="h", port=9), upstream=Address(host="k", port=1))


def test_without_quotas_from_brokers_there_are_no_families() -> None:
    assert list(broker_quota_metrics(None)) == []


def test_families_show_the_state_of_the_source() -> None:
    config = ProxyConfig(listeners=(LISTENER,), quotas=(QuotaRule(user="a", producer_byte_rate=1.0),))
    follower = BrokerSource(QuotasFromBroker(), config, (), on_changes=lambda changes, has_addresses: None)
    told = {
        family.name.removeprefix("kafka_quota_proxy_broker_quotas_"): family
        for family in broker_quota_metrics(follower)
    }
    assert isnan(dict(told["last_read_timestamp_seconds"].samples)[""])

    follower._rules = {Entity(user=name): StoredRule(limits={"producer_byte_rate": 1.0}) for name in ("a", "b")}
    follower.is_connected, follower.readings, follower.failures, follower.last_read_s = True, 3, 2, 7.5
    follower.unconfirmed = 1
    lost = Change(Entity(ip="nobody.example"), StoredRule(limits={"connection_creation_rate": 1.0}))
    follower._in_force.change([lost], now_ms=0)
    values = {family.name: [value for _, value in family.samples] for family in broker_quota_metrics(follower)}

    assert values == {
        "kafka_quota_proxy_broker_quotas_connected": [1.0],
        "kafka_quota_proxy_broker_quotas_readings_total": [3.0],
        "kafka_quota_proxy_broker_quotas_failures_total": [2.0],
        "kafka_quota_proxy_broker_quotas_last_read_timestamp_seconds": [7.5],
        "kafka_quota_proxy_broker_quotas_entities": [2.0],
        "kafka_quota_proxy_broker_quotas_overruled_entities": [1.0],
        "kafka_quota_proxy_broker_quotas_unknown_hosts": [1.0],
        "kafka_quota_proxy_broker_quotas_unconfirmed_changes_total": [1.0],
    }
