"""Defines the events that a reader of a quota topic reports.

The first event is ``ReadingBegan``. ``RecordsRead`` then reports the records, a portion at a time. ``EndReached`` is
reported once, when the reader has caught up with the end of the topic. ``RecordsRead`` then continues for new records.
``ReadFailed`` may come at any time. The reader then begins again with ``ReadingBegan``.
"""

from dataclasses import dataclass, field

from kafka_quota_proxy.proxy.client_quotas.topic.record_table import TopicRecord


@dataclass(frozen=True, slots=True)
class ReadingBegan:
    """The reader begins, or begins again, at the first record of the topic."""


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """The next records were read. ``TopicRules.take`` explains ``since_ms``.

    If ``is_whole`` is false, the records end in the middle of a batch.
    """

    records: tuple[TopicRecord, ...]
    since_ms: int | None
    next_offset: int = 0  # all records before it have been reported
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class EndReached:
    """The end of the topic was reached. All records before ``next_offset`` have been reported."""

    next_offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """The topic cannot be read. The reader tries again. ``is_own_fault`` means that the configuration is wrong."""

    reason: str
    is_own_fault: bool = False


ReaderEvent = ReadingBegan | RecordsRead | EndReached | ReadFailed
