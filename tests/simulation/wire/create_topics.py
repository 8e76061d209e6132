"""CreateTopics (key 19), v2 to v7."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.common import NO_TOPIC_ID, RequestHeader
from tests.simulation.wire.layout import (
    BOOLEAN,
    I8,
    I16,
    I32,
    NULLABLE_STRING,
    STRING,
    UUID,
    Array,
    Field,
    Request,
    Response,
    Struct,
)

API_KEY: Final = 19
VERSIONS: Final = range(2, 8)
# The first version in which a refusal has THROTTLING_QUOTA_EXCEEDED (KIP-599).
FIRST_REFUSAL: Final = 6
THROTTLING_QUOTA_EXCEEDED: Final = 89


class Assignment(NamedTuple):
    """The brokers of a partition."""

    partition: int
    brokers: Sequence[int]


class Config(NamedTuple):
    name: str
    value: str | None


class NewTopic(NamedTuple):
    """A topic to create. With ``assignments``, ``partitions`` and ``replication_factor`` are -1."""

    name: str
    partitions: int = 1
    replication_factor: int = 1
    assignments: Sequence[Assignment] = ()
    configs: Sequence[Config] = ()


class CreateTopicsRequest(NamedTuple):
    header: RequestHeader
    topics: Sequence[NewTopic]
    timeout_ms: int
    validate_only: bool


class CreatedConfig(NamedTuple):
    name: str
    value: str | None
    read_only: bool = False
    source: int = 5
    is_sensitive: bool = False


class CreatedTopic(NamedTuple):
    """What became of a topic."""

    name: str
    error_code: int = 0
    error_message: str | None = None
    topic_id: bytes = NO_TOPIC_ID
    partitions: int = -1
    replication_factor: int = -1
    configs: Sequence[CreatedConfig] | None = ()


class CreateTopicsResponse(NamedTuple):
    correlation_id: int
    throttle_ms: int
    topics: Sequence[CreatedTopic]


_ASSIGNMENT: Final = Struct(Assignment, Field("partition", I32), Field("brokers", Array(I32)))
_CONFIG: Final = Struct(Config, Field("name", STRING), Field("value", NULLABLE_STRING))
_NEW_TOPIC: Final = Struct(
    NewTopic,
    Field("name", STRING),
    Field("partitions", I32),
    Field("replication_factor", I16),
    Field("assignments", Array(_ASSIGNMENT)),
    Field("configs", Array(_CONFIG)),
)
_REQUEST: Final = Request(
    API_KEY,
    VERSIONS,
    CreateTopicsRequest,
    Field("topics", Array(_NEW_TOPIC)),
    Field("timeout_ms", I32),
    Field("validate_only", BOOLEAN),
)
_CREATED_CONFIG: Final = Struct(
    CreatedConfig,
    Field("name", STRING),
    Field("value", NULLABLE_STRING),
    Field("read_only", BOOLEAN),
    Field("source", I8),
    Field("is_sensitive", BOOLEAN),
)
_CREATED_TOPIC: Final = Struct(
    CreatedTopic,
    Field("name", STRING),
    Field("topic_id", UUID, first=7),
    Field("error_code", I16),
    Field("error_message", NULLABLE_STRING),
    Field("partitions", I32, first=5),
    Field("replication_factor", I16, first=5),
    Field("configs", Array(_CREATED_CONFIG, nullable=True), first=5),
)
_RESPONSE: Final = Response(
    API_KEY, VERSIONS, CreateTopicsResponse, Field("throttle_ms", I32), Field("topics", Array(_CREATED_TOPIC))
)


def request(
    correlation_id: int,
    version: int,
    client_id: str | None,
    topics: Sequence[NewTopic],
    *,
    timeout_ms: int = 30_000,
    validate_only: bool = False,
) -> bytes:
    """Return a request."""
    return _REQUEST.write(
        correlation_id, version, client_id, topics=topics, timeout_ms=timeout_ms, validate_only=validate_only
    )


parse_request: Final = _REQUEST.read


def response(correlation_id: int, version: int, topics: Sequence[CreatedTopic], *, throttle_ms: int = 0) -> bytes:
    """Return a response."""
    return _RESPONSE.write(correlation_id, version, topics=topics, throttle_ms=throttle_ms)


parse_response: Final = _RESPONSE.read
