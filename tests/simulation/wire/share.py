"""What ShareFetch and ShareAcknowledge have in common (KIP-932)."""

from collections.abc import Sequence
from typing import Final, NamedTuple

ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3


class AcknowledgedBatch(NamedTuple):
    """What became of records: one type for all of them, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int] = (ACCEPT,)


class SharePartition(NamedTuple):
    """A partition, with the records of it that are acknowledged."""

    partition: int
    acknowledged: Sequence[AcknowledgedBatch] = ()


class ShareTopic(NamedTuple):
    topic_id: bytes
    partitions: Sequence[SharePartition]
