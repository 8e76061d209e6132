"""The metrics of rules from a topic: whether it is read, what it has, and whether shares hold."""

from collections.abc import Callable, Iterator
from typing import Final

from proxy.metrics.text import Family
from proxy.quota_topic.watcher import QuotaTopic

_PREFIX: Final = "kafka_quota_proxy_quotas_topic"

# name, type, what it means, how it is read
_FAMILIES: Final[tuple[tuple[str, str, str, Callable[[QuotaTopic], float]], ...]] = (
    ("records_total", "counter", "Records that were read, again after each failure.",
     lambda topic: topic.state.records),
    ("not_understood_records_total", "counter", "Those of them that were not understood.",
     lambda topic: topic.state.not_understood),
    ("failures_total", "counter", "Times that the topic could not be read; it is tried again.",
     lambda topic: topic.failures),
    ("connected", "gauge", "Whether the topic is being read, and was read to its end.",
     lambda topic: topic.is_connected),
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


def families(topic: QuotaTopic | None) -> Iterator[Family]:
    """Return them; nothing where there is no topic."""
    if topic is None:
        return
    for name, kind, help_, read in _FAMILIES:
        yield Family(f"{_PREFIX}_{name}", kind, help_, [("", float(read(topic)))])
