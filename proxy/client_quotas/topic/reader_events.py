"""What a reader of a quota topic tells: ``Began``, some ``Read``, ``AtEnd``, more ``Read``; at any time ``Failed``."""

from dataclasses import dataclass, field

from kafka_quota_proxy.proxy.client_quotas.topic.topic_rules import TopicRecord


@dataclass(frozen=True, slots=True)
class ReadingBegan:
    """The topic will be told from its beginning on."""


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """What was read next; see ``TopicRules.take``.

    ``is_whole``: it ends where a batch does. What is behind it says nothing else of what is in it.
    """

    records: tuple[TopicRecord, ...]
    since_ms: int | None
    next_offset: int = 0  # all before it has been told
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class EndReached:
    """All that was there, before ``next_offset``, has been told; what comes is told as it is written."""

    next_offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """The topic cannot be read; it is tried again.

    ``is_own_fault``: it cannot be for as long as somebody has not changed what this proxy is told.
    """

    reason: str
    is_own_fault: bool = False


ReaderEvent = ReadingBegan | RecordsRead | EndReached | ReadFailed
