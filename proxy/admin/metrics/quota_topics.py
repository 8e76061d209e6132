"""The metrics of topics with quotas, one of rules and one that is a store: how they are read, and what they have."""

from collections.abc import Iterator
from typing import Final, Protocol

from kafka_quota_proxy.proxy.admin.metrics.exposition import Family
from kafka_quota_proxy.proxy.admin.metrics.singles import Single, singles
from kafka_quota_proxy.proxy.client_quotas.sources.topic_source import QuotaTopic
from kafka_quota_proxy.proxy.client_quotas.storage.topic_store import TopicStore


class _Records(Protocol):
    records: int
    not_understood: int


class _Topic(Protocol):
    failures: int
    is_connected: bool

    @property
    def state(self) -> _Records: ...


_OF_BOTH: Final[tuple[Single[_Topic], ...]] = (
    ("records_total", "counter", "Records that were read, again after each failure.",
     lambda topic: topic.state.records),
    ("not_understood_records_total", "counter", "Those of them that were not understood.",
     lambda topic: topic.state.not_understood),
    ("failures_total", "counter", "Times that the topic could not be read; it is tried again.",
     lambda topic: topic.failures),
    ("connected", "gauge", "Whether the topic is being read, and was read to its end.",
     lambda topic: topic.is_connected),
)  # fmt: skip
_OF_RULES: Final[tuple[Single[QuotaTopic], ...]] = (
    *_OF_BOTH,
    ("rules", "gauge", "Entities that the topic has a rule for.", lambda topic: topic.state.rules),
    ("shares", "gauge", "Entities that the topic has a share of this proxy for, in force or not.",
     lambda topic: topic.state.shares),
    ("rules_in_force", "gauge", "Entities whose limits are the topic's here: the file has no rule for them.",
     lambda topic: len(topic.state.in_force)),
    ("lease_in_force", "gauge", "Whether shares hold: there was news of late.", lambda topic: topic.state.has_lease),
    ("lease_ends_total", "counter", "Times that shares ceased to hold for want of news.",
     lambda topic: topic.state.lease_ends),
    ("news_age_seconds", "gauge", "How long ago the last news had come; NaN before the first.",
     lambda topic: topic.news_age_s()),
)  # fmt: skip
_OF_STORE: Final[tuple[Single[TopicStore], ...]] = (
    *_OF_BOTH,
    ("refused_changes_total", "counter", "Requests to change quotas that could not be kept there, or perhaps not.",
     lambda topic: topic.refused),
    ("entities", "gauge", "Entities that the topic has quotas for.", lambda topic: topic.state.entities),
    ("offset", "gauge", "The offset before which all records are in force here.", lambda topic: topic.offset),
    ("disk_failures_total", "counter", "Times that what is known could not be written to the directory of the store.",
     lambda topic: topic.copy.failures if topic.copy else 0),
)  # fmt: skip


def families(rules: QuotaTopic | None, store: TopicStore | None) -> Iterator[Family]:
    """Return those of rules from a topic, and of a store in one; nothing where there is neither."""
    yield from singles("kafka_quota_proxy_quotas_topic", _OF_RULES, rules)
    yield from singles("kafka_quota_proxy_store_topic", _OF_STORE, store)
