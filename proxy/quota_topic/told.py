"""What a reader of a quota topic tells: ``Began``, some ``Read``, ``AtEnd``, more ``Read``; at any time ``Failed``."""

from typing import NamedTuple

from proxy.quota_topic.state import Seen


class Began(NamedTuple):
    """The topic will be told from its beginning on."""


class Read(NamedTuple):
    """What was read next; see ``QuotaTopicState.take``."""

    records: tuple[Seen, ...]
    since_ms: int | None


class AtEnd(NamedTuple):
    """All that was there has been told; what comes is told as it is written."""


class Failed(NamedTuple):
    """The topic cannot be read; it is tried again."""

    reason: str


Told = Began | Read | AtEnd | Failed
