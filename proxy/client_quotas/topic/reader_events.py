"""The events that a reader of a quota topic reports.

First ``ReadingBegan``, then some ``RecordsRead``, ``EndReached``, and more ``RecordsRead``; ``ReadFailed`` at any time.
"""

from dataclasses import dataclass, field

from kafka_quota_proxy.proxy.client_quotas.topic.record_table import TopicRecord


@dataclass(frozen=True, slots=True)
class ReadingBegan:
    """The reader starts again at the topic's first record."""


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """The next records; see ``TopicRules.take``. ``is_whole``: they end with a batch."""

    records: tuple[TopicRecord, ...]
    since_ms: int | None
    next_offset: int = 0  # all records before it have been reported
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class EndReached:
    """All records before ``next_offset`` have been reported; later ones follow as they are written."""

    next_offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """The topic cannot be read; the reader tries again. ``is_own_fault``: the proxy's configuration is wrong."""

    reason: str
    is_own_fault: bool = False


ReaderEvent = ReadingBegan | RecordsRead | EndReached | ReadFailed
