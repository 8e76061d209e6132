"""What ShareFetch and ShareAcknowledge have in common (KIP-932)."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.layout import I8, I32, I64, UUID, Array, Field, Struct

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


_ACKNOWLEDGED: Final = Struct(
    AcknowledgedBatch, Field("first_offset", I64), Field("last_offset", I64), Field("types", Array(I8))
)
_PARTITION: Final = Struct(SharePartition, Field("partition", I32), Field("acknowledged", Array(_ACKNOWLEDGED)))
SHARE_TOPIC: Final = Struct(ShareTopic, Field("topic_id", UUID), Field("partitions", Array(_PARTITION)))
