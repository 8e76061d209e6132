"""What a reader of a quota topic tells: ``Began``, some ``Read``, ``AtEnd``, more ``Read``; at any time ``Failed``."""

from dataclasses import dataclass, field

from kafka_quota_proxy.proxy.client_quotas.topic.topic_rules import Seen


@dataclass(frozen=True, slots=True)
class Began:
    """The topic will be told from its beginning on."""


@dataclass(frozen=True, slots=True)
class Read:
    """What was read next; see ``QuotaTopicState.take``.

    ``is_whole``: it ends where a batch does. What is behind it says nothing else of what is in it.
    """

    records: tuple[Seen, ...]
    since_ms: int | None
    next_offset: int = 0  # all before it has been told
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class AtEnd:
    """All that was there, before ``next_offset``, has been told; what comes is told as it is written."""

    next_offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """The topic cannot be read; it is tried again.

    ``is_own_fault``: it cannot be for as long as somebody has not changed what this proxy is told.
    """

    reason: str
    is_own_fault: bool = False


Told = Began | Read | AtEnd | Failed
