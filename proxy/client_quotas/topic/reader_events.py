"""Defines the events that a reader of a quota topic reports.

First comes ``ReadingBegan``. Then ``RecordsRead`` reports the records that are in the topic, some at a time.
``EndReached`` follows once, when all of them have been reported. After that, ``RecordsRead`` reports new records as
they arrive. ``ReadFailed`` may be reported at any time. The reader then starts again from the first record, with
``ReadingBegan``.
"""

from dataclasses import dataclass, field

from kafka_quota_proxy.proxy.client_quotas.topic.record_table import TopicRecord


@dataclass(frozen=True, slots=True)
class ReadingBegan:
    """Reported when the reader begins to read the topic from its first record, for the first time or again."""


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """The next records of the topic.

    If ``is_whole`` is false, the records end in the middle of a batch.
    """

    records: tuple[TopicRecord, ...]
    next_offset: int = 0  # all records before it have been reported
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class EndReached:
    """Reported when all records up to the end of the topic have been reported. ``next_offset`` is the end offset."""

    next_offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """Reported when the topic cannot be read. The reader will try again.

    If ``is_own_fault`` is true, the leader's address leads to this proxy itself. Further attempts then fail, too, until
    the configuration is corrected.
    """

    reason: str
    is_own_fault: bool = False


ReaderEvent = ReadingBegan | RecordsRead | EndReached | ReadFailed
