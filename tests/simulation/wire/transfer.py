"""Produce, Fetch, and the APIs of share groups (KIP-932), and Metadata, which says where partitions are."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import NO_LEADER, NO_TOPIC_ID, Leader, NodeEndpoint, RequestHeader, Topic

# -- Metadata (key 3), v1 to v13 --


class AskedTopic(NamedTuple):
    """A topic that is asked for: by its name, or from v12 on by its id alone."""

    name: str | None
    topic_id: bytes = NO_TOPIC_ID


class MetadataRequest(NamedTuple):
    """A request. ``topics`` None asks for all."""

    header: RequestHeader
    topics: Sequence[AskedTopic] | None
    allow_auto_creation: bool = False


class DescribedPartition(NamedTuple):
    partition: int
    leader: int
    replicas: Sequence[int]
    in_sync: Sequence[int]
    leader_epoch: int = -1
    error_code: int = 0
    offline: Sequence[int] = ()


class DescribedTopic(NamedTuple):
    name: str | None
    partitions: Sequence[DescribedPartition]
    topic_id: bytes = NO_TOPIC_ID
    error_code: int = 0


class MetadataResponse(NamedTuple):
    correlation_id: int
    brokers: Sequence[NodeEndpoint]
    topics: Sequence[DescribedTopic]
    controller_id: int = -1
    cluster_id: str | None = None
    throttle_ms: int = 0
    error_code: int = 0


metadata: Final = Api(3, range(1, 14), MetadataRequest, MetadataResponse)


# -- Produce (key 0), v3 to v13 --
#
# A topic is named up to v12. v13 has the 16 bytes of its id instead (KIP-516).


class PartitionData(NamedTuple):
    """The records for a partition."""

    partition: int
    records: bytes | None


class TopicData(NamedTuple):
    """The records for a topic."""

    topic: Topic
    partitions: Sequence[PartitionData]


class ProduceRequest(NamedTuple):
    header: RequestHeader
    topics: Sequence[TopicData]
    acks: int = -1
    timeout_ms: int = 30_000
    transactional_id: str | None = None


class PartitionAnswer(NamedTuple):
    """What became of the records for a partition. The leader is told from v10 on (KIP-951)."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    leader: Leader = NO_LEADER


class TopicAnswer(NamedTuple):
    topic: Topic
    partitions: Sequence[PartitionAnswer]


class ProduceResponse(NamedTuple):
    correlation_id: int
    topics: Sequence[TopicAnswer]
    throttle_ms: int = 0
    endpoints: Sequence[NodeEndpoint] = ()


produce: Final = Api(0, range(3, 14), ProduceRequest, ProduceResponse)


# -- Fetch (key 1), v4 to v16 --
#
# A topic is named up to v12. v13 and later have the 16 bytes of its id instead (KIP-516). A follower says who it is by
# ``replica_id`` up to v14, and in ``replica_state`` from v15 on (KIP-903).


class FetchPartition(NamedTuple):
    """What is asked of a partition."""

    partition: int
    offset: int
    max_bytes: int = 1_048_576
    leader_epoch: int = -1
    log_start_offset: int = -1
    last_fetched_epoch: int = -1


class FetchTopic(NamedTuple):
    topic: Topic
    partitions: Sequence[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions that leave the session."""

    topic: Topic
    partitions: Sequence[int]


class ReplicaState(NamedTuple):
    replica_id: int = -1
    replica_epoch: int = -1


class FetchRequest(NamedTuple):
    """A request. ``session_id`` 0 with ``session_epoch`` -1 is a full fetch without a session (KIP-227)."""

    header: RequestHeader
    topics: Sequence[FetchTopic]
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 52_428_800
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    forgotten: Sequence[ForgottenTopic] = ()
    rack: str = ""
    replica_id: int = -1
    replica_state: ReplicaState = ReplicaState()
    cluster_id: str | None = None

    @property
    def follower(self) -> int:
        """The broker that copies, or -1 if the request is a consumer's."""
        return max(self.replica_id, self.replica_state.replica_id)


class FetchedPartition(NamedTuple):
    """What a partition answers. The leader is told from v12 on (KIP-951)."""

    partition: int
    records: bytes | None = b""
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    preferred_replica: int = -1
    leader: Leader = NO_LEADER


class FetchedTopic(NamedTuple):
    topic: Topic
    partitions: Sequence[FetchedPartition]


class FetchResponse(NamedTuple):
    """A response. The endpoints are told from v16 on (KIP-951)."""

    correlation_id: int
    topics: Sequence[FetchedTopic]
    throttle_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    endpoints: Sequence[NodeEndpoint] = ()


fetch: Final = Api(1, range(4, 17), FetchRequest, FetchResponse)


# -- What ShareFetch and ShareAcknowledge have in common (KIP-932) --

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


# -- ShareFetch (key 78), v1 and v2 --


class ForgottenById(NamedTuple):
    """Partitions that leave the session."""

    topic_id: bytes
    partitions: Sequence[int]


class ShareFetchRequest(NamedTuple):
    header: RequestHeader
    topics: Sequence[ShareTopic]
    group_id: str | None = "share"
    member_id: str | None = "member"
    session_epoch: int = 0
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 52_428_800
    max_records: int = 500
    batch_size: int = 500
    forgotten: Sequence[ForgottenById] = ()


class AcquiredRecords(NamedTuple):
    first_offset: int
    last_offset: int
    delivery_count: int = 1


class SharedPartition(NamedTuple):
    """What a partition answers."""

    partition: int
    records: bytes | None = b""
    acquired: Sequence[AcquiredRecords] = ()
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    leader: Leader = NO_LEADER


class SharedTopic(NamedTuple):
    topic_id: bytes
    partitions: Sequence[SharedPartition]


class ShareFetchResponse(NamedTuple):
    correlation_id: int
    topics: Sequence[SharedTopic]
    throttle_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    lock_timeout_ms: int = 30_000
    endpoints: Sequence[NodeEndpoint] = ()


share_fetch: Final = Api(78, range(1, 3), ShareFetchRequest, ShareFetchResponse)


# -- ShareAcknowledge (key 79), v1 and v2 --


class ShareAcknowledgeRequest(NamedTuple):
    header: RequestHeader
    topics: Sequence[ShareTopic]
    group_id: str | None = "share"
    member_id: str | None = "member"
    session_epoch: int = 0


class AcknowledgedPartition(NamedTuple):
    """What a partition answers."""

    partition: int
    error_code: int = 0
    error_message: str | None = None
    leader: Leader = NO_LEADER


class AcknowledgedTopic(NamedTuple):
    topic_id: bytes
    partitions: Sequence[AcknowledgedPartition]


class ShareAcknowledgeResponse(NamedTuple):
    correlation_id: int
    topics: Sequence[AcknowledgedTopic]
    throttle_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    lock_timeout_ms: int = 30_000
    endpoints: Sequence[NodeEndpoint] = ()


share_acknowledge: Final = Api(79, range(1, 3), ShareAcknowledgeRequest, ShareAcknowledgeResponse)
