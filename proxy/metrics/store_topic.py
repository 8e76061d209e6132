"""The metrics of a store in a topic: whether it is read, how far, and what it has."""

from collections.abc import Callable, Iterator
from typing import Final

from proxy.metrics.text import Family
from proxy.quota_keeper.topic import TopicKeeper

_PREFIX: Final = "kafka_quota_proxy_store_topic"

# name, type, what it means, how it is read
_FAMILIES: Final[tuple[tuple[str, str, str, Callable[[TopicKeeper], float]], ...]] = (
    ("records_total", "counter", "Records that were read, again after each failure.",
     lambda topic: topic.state.records),
    ("not_understood_records_total", "counter", "Those of them that were not understood.",
     lambda topic: topic.state.not_understood),
    ("failures_total", "counter", "Times that the topic could not be read; it is tried again.",
     lambda topic: topic.failures),
    ("refused_changes_total", "counter", "Requests to change quotas that could not be kept there, or perhaps not.",
     lambda topic: topic.refused),
    ("connected", "gauge", "Whether the topic is being read, and was read to its end.",
     lambda topic: topic.is_connected),
    ("entities", "gauge", "Entities that the topic has quotas for.", lambda topic: topic.state.entities),
    ("offset", "gauge", "The offset before which all records are in force here.",
     lambda topic: topic.offset),
    ("disk_failures_total", "counter", "Times that what is known could not be written to the directory of the store.",
     lambda topic: topic.last_known.failures if topic.last_known else 0),
)  # fmt: skip


def families(topic: TopicKeeper | None) -> Iterator[Family]:
    """Return them; nothing where there is no such store."""
    if topic is None:
        return
    for name, kind, help_, read in _FAMILIES:
        yield Family(f"{_PREFIX}_{name}", kind, help_, [("", float(read(topic)))])
