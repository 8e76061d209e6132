"""The metrics of the brokers' own quotas, where these are the rules: whether they are read, and what there is."""

from collections.abc import Iterator
from typing import Final

from kafka_quota_proxy.proxy.admin.metrics.exposition import Family
from kafka_quota_proxy.proxy.admin.metrics.singles import Single, singles
from kafka_quota_proxy.proxy.client_quotas.sources.broker_source import BrokerFollower

_FAMILIES: Final[tuple[Single[BrokerFollower], ...]] = (
    ("connected", "gauge", "Whether the last reading of the brokers' quotas worked.",
     lambda broker: broker.is_connected),
    ("readings_total", "counter", "Readings that worked.", lambda broker: broker.readings),
    ("failures_total", "counter", "Readings that did not; it is tried again.", lambda broker: broker.failures),
    ("last_read_timestamp_seconds", "gauge", "When a reading worked last, Unix time; NaN before the first.",
     lambda broker: broker.last_read_s),
    ("entities", "gauge", "Entities that the brokers have quotas for.", lambda broker: broker.entities),
    ("overruled_entities", "gauge", "Those of them that the file has a rule for, which holds here.",
     lambda broker: broker.overruled),
    ("unknown_hosts", "gauge", "Hosts among them of which no address is known, so that their quotas do not hold.",
     lambda broker: broker.unknown_hosts),
    ("unconfirmed_changes_total", "counter",
     "Changes through the proxy that were acknowledged before the broker told of them, which was waited for in vain.",
     lambda broker: broker.unconfirmed),
)  # fmt: skip


def families(broker: BrokerFollower | None) -> Iterator[Family]:
    """Return them; nothing where the rules are others."""
    return singles("kafka_quota_proxy_broker_quotas", _FAMILIES, broker)
