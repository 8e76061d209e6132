"""Changes of topics, and client quotas."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import NO_TOPIC_ID, RequestHeader

# -- CreateTopics (key 19), v2 to v7 --


class Assignment(NamedTuple):
    """The brokers of a partition."""

    partition: int
    brokers: Sequence[int]


class NewTopic(NamedTuple):
    """A topic to create. With ``assignments``, ``partitions`` and ``replication_factor`` are -1."""

    name: str
    partitions: int = 1
    replication_factor: int = 1
    assignments: Sequence[Assignment] = ()


class CreateTopicsRequest(NamedTuple):
    header: RequestHeader
    topics: Sequence[NewTopic]
    timeout_ms: int = 30_000
    validate_only: bool = False


class CreatedTopic(NamedTuple):
    """What became of a topic."""

    name: str
    error_code: int = 0
    error_message: str | None = None
    topic_id: bytes = NO_TOPIC_ID
    partitions: int = -1
    replication_factor: int = -1


class CreateTopicsResponse(NamedTuple):
    correlation_id: int
    topics: Sequence[CreatedTopic]
    throttle_ms: int = 0


create_topics: Final = Api(19, range(2, 8), CreateTopicsRequest, CreateTopicsResponse)


# -- CreatePartitions (key 37), v0 to v3 --


class AddedPartition(NamedTuple):
    """The brokers of a new partition."""

    brokers: Sequence[int]


class GrownTopic(NamedTuple):
    """A topic that is to have ``partitions`` in all. ``assignments`` None lets the broker choose."""

    name: str
    partitions: int
    assignments: Sequence[AddedPartition] | None = None


class CreatePartitionsRequest(NamedTuple):
    header: RequestHeader
    topics: Sequence[GrownTopic]
    timeout_ms: int = 30_000
    validate_only: bool = False


class GrowthResult(NamedTuple):
    """What became of a topic."""

    name: str
    error_code: int = 0
    error_message: str | None = None


class CreatePartitionsResponse(NamedTuple):
    correlation_id: int
    topics: Sequence[GrowthResult]
    throttle_ms: int = 0


create_partitions: Final = Api(37, range(4), CreatePartitionsRequest, CreatePartitionsResponse)


# -- DeleteTopics (key 20), v1 to v6. v6 may say which topic it is by its id alone --

_FIRST_TOPIC_ID: Final = 6


class DoomedTopic(NamedTuple):
    """A topic to delete. ``name`` is None if its id says which."""

    name: str | None
    topic_id: bytes = NO_TOPIC_ID


class DeleteTopicsRequest(NamedTuple):
    """A request: ``topics`` from v6 on, ``names`` before."""

    header: RequestHeader
    timeout_ms: int = 30_000
    topics: Sequence[DoomedTopic] = ()
    names: Sequence[str | None] = ()


class DeletedTopic(NamedTuple):
    """What became of a topic."""

    name: str | None
    error_code: int = 0
    error_message: str | None = None
    topic_id: bytes = NO_TOPIC_ID


class DeleteTopicsResponse(NamedTuple):
    correlation_id: int
    topics: Sequence[DeletedTopic]
    throttle_ms: int = 0


class _DeleteTopics(Api[..., DeleteTopicsRequest, ..., DeleteTopicsResponse]):
    def request(
        self,
        correlation_id: int,
        version: int,
        client_id: str | None,
        /,
        topics: Sequence[DoomedTopic],
        *,
        timeout_ms: int = 30_000,
    ) -> bytes:
        names = [topic.name for topic in topics]
        return super().request(correlation_id, version, client_id, timeout_ms, topics, names)

    def parse_request(self, frame: bytes) -> DeleteTopicsRequest:
        """Read a request, with its names among its topics."""
        found = super().parse_request(frame)
        if found.header.api_version >= _FIRST_TOPIC_ID:
            return found
        return found._replace(topics=[DoomedTopic(name) for name in found.names])


delete_topics: Final = _DeleteTopics(20, range(1, 7), DeleteTopicsRequest, DeleteTopicsResponse)


# -- DescribeClientQuotas (key 48), v0 and v1 --

# How a component of a filter matches.
EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2


class Component(NamedTuple):
    """A condition on one part of an entity: "user", "client-id" or "ip"."""

    entity_type: str
    match_type: int = ANY
    match: str | None = None


class DescribeClientQuotasRequest(NamedTuple):
    """A request. Without components, it asks for all."""

    header: RequestHeader
    components: Sequence[Component] = ()
    strict: bool = False


class EntityPart(NamedTuple):
    """A part of an entity. ``name`` None is the default of its type."""

    entity_type: str
    name: str | None


class QuotaValue(NamedTuple):
    key: str
    value: float


class QuotaEntry(NamedTuple):
    """The quotas of an entity."""

    entity: Sequence[EntityPart]
    values: Sequence[QuotaValue]


class DescribeClientQuotasResponse(NamedTuple):
    correlation_id: int
    entries: Sequence[QuotaEntry] | None
    throttle_ms: int = 0
    error_code: int = 0
    error_message: str | None = None


describe_client_quotas: Final = Api(48, range(2), DescribeClientQuotasRequest, DescribeClientQuotasResponse)


# -- AlterClientQuotas (key 49), v0 and v1 --


class Operation(NamedTuple):
    """A quota to set, or to remove."""

    key: str
    value: float = 0.0
    remove: bool = False


class Alteration(NamedTuple):
    """What to do to the quotas of an entity."""

    entity: Sequence[EntityPart]
    operations: Sequence[Operation]


class AlterClientQuotasRequest(NamedTuple):
    header: RequestHeader
    entries: Sequence[Alteration]
    validate_only: bool = False


class AlteredEntity(NamedTuple):
    """What became of an alteration."""

    entity: Sequence[EntityPart]
    error_code: int = 0
    error_message: str | None = None


class AlterClientQuotasResponse(NamedTuple):
    correlation_id: int
    entries: Sequence[AlteredEntity]
    throttle_ms: int = 0


alter_client_quotas: Final = Api(49, range(2), AlterClientQuotasRequest, AlterClientQuotasResponse)
