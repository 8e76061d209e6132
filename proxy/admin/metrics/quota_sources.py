"""Reads the metrics of the source of quotas: a directory, a topic or the brokers."""

from collections.abc import Iterator
from typing import Final

from kafka_quota_proxy.proxy.admin.metrics.exposition import PROXY, Family, Metric, Namespace, labels
from kafka_quota_proxy.proxy.rules.administration import QuotaManager
from kafka_quota_proxy.proxy.rules.audit import COUNTED, ChangeLog
from kafka_quota_proxy.proxy.rules.broker.broker_source import BrokerSource
from kafka_quota_proxy.proxy.rules.sqlite.directory_store import DirectoryStore
from kafka_quota_proxy.proxy.rules.topic.topic_source import TopicSource

_OF_TOPICS: Final[tuple[Metric[TopicSource], ...]] = (
    ("records_total", "Records that were read, again after each failure.",
     lambda topic: topic.state.records),
    ("not_understood_records_total", "Records that could not be parsed.",
     lambda topic: topic.state.not_understood),
    ("failures_total", "Times that the topic could not be read; the proxy tries again.",
     lambda topic: topic.failures),
    ("connected", "Whether the topic is being read, and was read to its end.",
     lambda topic: topic.is_connected),
)  # fmt: skip
_OF_STORE: Final[tuple[Metric[TopicSource], ...]] = (
    *_OF_TOPICS,
    ("refused_changes_total", "Requests to change quotas that were not stored, or may not have been stored.",
     lambda topic: topic.refused),
    ("entities", "Entities that the topic has quotas for.", lambda topic: topic.state.entities),
    ("offset", "The offset up to which this proxy has applied the records.", lambda topic: topic.offset),
)  # fmt: skip

_OF_BROKERS: Final[tuple[Metric[BrokerSource], ...]] = (
    ("connected", "Whether the brokers' quotas could be read the last time.",
     lambda broker: broker.is_connected),
    ("readings_total", "Readings that worked.", lambda broker: broker.readings),
    ("failures_total", "Failed attempts to read the brokers' quotas.", lambda broker: broker.failures),
    ("last_read_timestamp_seconds", "When the brokers' quotas were last read, Unix time; NaN before the first time.",
     lambda broker: broker.last_read_s),
    ("entities", "Entities that the brokers have quotas for.", lambda broker: broker.entities),
)  # fmt: skip
_OF_DIRECTORIES: Final[tuple[Metric[DirectoryStore], ...]] = (
    ("writable", "Whether the last change could be written.", lambda store: store.is_connected),
    ("write_failures_total", "Changes that could not be written, and were refused.",
     lambda store: store.failures),
    ("journal_bytes", "Changes that are not in the database yet.", lambda store: store.database.log_bytes),
    ("damaged_files", "Files that were found damaged when a change was written.",
     lambda store: store.database.damaged_files),
)  # fmt: skip


def quota_source_metrics(manager: QuotaManager) -> Iterator[Family]:
    """Yield the metrics of the source of quotas, or nothing if all rules come from the configuration file."""
    source, rules = manager.source, manager.rules
    if isinstance(source, TopicSource) and source.writer is None:
        yield from Namespace("kafka_quota_proxy_quotas_topic").single_values(_OF_TOPICS, source)
    elif isinstance(source, TopicSource):
        yield from Namespace("kafka_quota_proxy_store_topic").single_values(_OF_STORE, source)
    elif isinstance(source, BrokerSource):
        brokers = Namespace("kafka_quota_proxy_broker_quotas")
        yield from brokers.single_values(_OF_BROKERS, source)
        help_ = "Entities that have quotas at the brokers, but a rule in the file takes precedence."
        yield brokers.gauge("overruled_entities", help_, [("", rules.overruled)])
    if manager.store is not None:
        store = Namespace("kafka_quota_proxy_quota_store")
        yield store.gauge("entities", "Entities whose quotas were set through a proxy.", [("", len(rules.stored))])
        if isinstance(source, DirectoryStore):
            yield from store.single_values(_OF_DIRECTORIES, source)


def quota_change_metrics(change_log: ChangeLog | None) -> Iterator[Family]:
    """Yield the metrics of requests to change quotas, or nothing if ``change_log`` is None."""
    if change_log is None:
        return
    samples = [(labels(result=result), float(change_log.counts[result])) for result in COUNTED]
    yield PROXY.counter("quota_changes", "Changes of an entity's quotas that were requested, by their result.", samples)
    if change_log.audit is not None:
        help_ = "Lines of the audit log that are lost because they could not be written."
        yield PROXY.counter("quota_audit_lost_lines", help_, [("", float(change_log.audit.lost))])
